"""What a model provider may do: fail, break off, redact, keep state of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy
from strands.hooks import AfterModelCallEvent
from strands.models.routing import FallbackStrategy, ModelRouter
from strands.types.exceptions import MaxTokensReachedException, ModelThrottledException

from strands_durable.testing import Answer, call
from tests.crash.scenarios import book
from tests.features.harness import LedgerModel, durability, feature, seen


def build(script: Any, **options: Any) -> Agent:
    return Agent(model=LedgerModel(script), tools=[book], plugins=[durability()], callback_handler=None, **options)


def secrets_kept() -> list[str]:
    """Return the files that still hold what a guardrail took out."""
    return [path.name for path in Path().glob("runs.db*") if b"8472-XK" in path.read_bytes()]


@feature(5, "a throttled model, retried by Strands")
def throttled() -> Any:
    answer = Answer(calls=[call("book", city="Rome")], errors=[ModelThrottledException("slow down")])
    retry = ModelRetryStrategy(max_attempts=3, initial_delay=0, max_delay=0)
    agent = build([answer, "Booked."], retry_strategy=retry)
    return seen(agent, agent("Go"))


@feature(5, "a router that falls back to another model")
def router() -> Any:
    down = LedgerModel(lambda turn, messages: Answer(errors=[ModelThrottledException("no")] * 9), model_id="down")
    up = LedgerModel([call("book", city="Rome"), "Booked."], model_id="up")
    agent = Agent(
        model=ModelRouter([down, up], strategy=FallbackStrategy()),
        tools=[book],
        plugins=[durability()],
        retry_strategy=None,
        callback_handler=None,
    )
    return seen(agent, agent("Go"))


@feature(5, "a stream that breaks in the middle, retried by a hook")
def broken_stream() -> Any:
    agent = build([Answer(calls=[call("book", city="Rome")], break_after=2), "Booked."])

    def again(event: AfterModelCallEvent) -> None:
        event.retry = isinstance(event.exception, ConnectionError)

    agent.add_hook(again)
    return seen(agent, agent("Go"))


@feature(5, "an answer that a hook discards and retries")
def sent_back() -> Any:
    agent = build(lambda turn, messages: "Done." if agent.state.get("sent back") else "Hm.")

    def again(event: AfterModelCallEvent) -> None:
        if event.stop_response is not None and "Hm." in str(event.stop_response.message):
            event.agent.state.set("sent back", 1)
            event.retry = True

    agent.add_hook(again)
    return seen(agent, agent("Go"))


@feature(5, "too many tokens, and another call follows")
def max_tokens() -> Any:
    cut = Answer(text="I was about to", stop_reason="max_tokens")
    agent = build([call("book", city="Rome"), cut, "Booked."])
    try:
        agent("Go")
    except MaxTokensReachedException as error:
        return str(error)[:20], seen(agent, agent("Go on"))
    raise AssertionError("it was cut off")


@feature(5, "a guardrail redacts the prompt")
def redacted_input() -> Any:
    agent = build([Answer(text="I cannot help.", redact_user="[redacted]", stop_reason="guardrail_intervened"), "Hi."])
    first = seen(agent, agent("my secret is 8472-XK"))
    second = seen(agent, agent("Hello"))
    assert not secrets_kept()
    return first, second


class RedactingModel(LedgerModel):
    """Streams text, and then takes it back, as Bedrock's guardrails do."""

    async def stream(self, *args: Any, **kwargs: Any) -> Any:
        async for chunk in super().stream(*args, **kwargs):
            if "messageStop" in chunk:
                yield {"redactContent": {"redactAssistantContentMessage": "[withheld]"}}
            yield chunk


@feature(5, "a guardrail redacts the answer")
def redacted_output() -> Any:
    model = RedactingModel([Answer(text="the code is 8472-XK", stop_reason="guardrail_intervened", chunk=40), "Hi."])
    agent = Agent(model=model, plugins=[durability()], callback_handler=None)
    first = seen(agent, agent("Tell me"))
    assert not secrets_kept()
    return first


class StatefulModel(LedgerModel):
    """Keeps the conversation on its server, and returns only its location to Strands."""

    stateful = True

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        state = kwargs["model_state"]
        before = state.get("response_id", 0)
        async for chunk in super().stream(messages, *args, **kwargs):
            if "messageStop" in chunk:
                state["response_id"] = before + 1
                state["seen"] = [*state.get("seen", []), len(messages)]
            yield chunk


@feature(5, "a model that keeps its conversation on a server")
def stateful() -> Any:
    model = StatefulModel(lambda turn, messages: call("book", city="Rome") if turn == 0 else "Booked.")
    agent = Agent(model=model, tools=[book], plugins=[durability()], callback_handler=None)
    result = agent("Go")
    return seen(agent, result), dict(agent.take_snapshot(preset="session").data["model_state"])
