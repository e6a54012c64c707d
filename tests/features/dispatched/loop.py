"""The loop: tools, state, hooks, models, conversation managers, and what ends a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator
from strands import Agent, ModelRetryStrategy
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    AfterToolsEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
    MessageAddedEvent,
)
from strands.middleware import ExecuteToolStage
from strands.tools.executors import SequentialToolExecutor
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException

from strands_durable import Durability, ToolPolicy, durable
from strands_durable.testing import Answer, call
from tests.crash.scenarios import Ledger

from .hands import Says, agent_of, note, played

EVENTS = (
    BeforeInvocationEvent, AfterInvocationEvent, BeforeModelCallEvent, AfterModelCallEvent, BeforeToolsEvent,
    AfterToolsEvent, BeforeToolCallEvent, AfterToolCallEvent, MessageAddedEvent,
)  # fmt: skip


# Tools and state


@played
def tools(folder: str) -> Agent:
    """Sync, async and streaming tools, one by one and at the same time."""
    many = [call("pay", amount=1), call("slow", city="Rome"), call("book", city="Rome")]
    return agent_of(folder, [call("book", city="Paris"), many, "Done."], "book", "pay", "slow")


@played
def context(folder: str) -> Agent:
    """Tools that read and write whatever a tool may."""
    script = [call("tell"), call("keep", key="a"), call("tell"), "Done."]
    return agent_of(folder, script, "keep", "tell", state={"before": [1, 2]})


@played
def parallel_state(folder: str) -> Agent:
    """Tools that write different keys at the same time."""
    return agent_of(folder, [[call("keep", key=key) for key in "abcd"], call("tell"), "Done."], "keep", "tell")


@played
def sequential(folder: str) -> Agent:
    """Tools one after the other, in the order of the answer."""
    uses = [call("book", city=city) for city in ("c", "a", "b")]
    return agent_of(
        folder, [[*uses, call("pay", amount=1)], "Done."], "book", "pay", tool_executor=SequentialToolExecutor()
    )


@played
def failing_tools(folder: str) -> Agent:
    """A tool that raises, one that is not there, and one that is called in a wrong way."""
    uses = [call("refuse", reason="no room"), call("nobody"), call("book", town="Rome")]
    return agent_of(folder, [uses, "I see."], "refuse", "book")


@played
def pictures(folder: str) -> Agent:
    """Images and documents in results, also of a tool that failed."""
    return agent_of(folder, [call("photograph", ok=True), call("photograph", ok=False), "Nice."], "photograph")


@played(
    tool_policies={
        "flaky": ToolPolicy(retries=2),
        "stuck": ToolPolicy(timeout=0.2),
        "errand": ToolPolicy(inline=True),
    }
)
def policies(folder: str, script: list[Any]) -> Agent:
    """Tools that are tried again, that have a time limit, that run inline."""
    return agent_of(
        folder, [call(name, **given) if name != "-" else "Done." for name, given in script], "flaky", "stuck", "errand"
    )


@played(tool_policies={"stuck": ToolPolicy(timeout=0.2, in_doubt="ask")})
def doubtful(folder: str) -> Agent:
    """A tool whose outcome a person knows."""
    return agent_of(folder, [call("stuck"), "Done."], "stuck")


@played
def effects(folder: str) -> Agent:
    """Recorded effects in tools, also at the same time."""
    uses = [call("errand", city="Paris"), call("errand", city="Rome")]
    return agent_of(folder, [uses, call("errand", city="Oslo"), "Done."], "errand")


@played
def slow_effects(folder: str) -> Agent:
    """Recorded effects in a tool that takes its time."""
    return agent_of(folder, [call("half"), "Done."], "half")


@played
def unstorable(folder: str) -> Agent:
    """A result that cannot be recorded, beside one that can."""
    return agent_of(folder, [[call("strange"), call("book", city="Rome")], "Done."], "strange", "book")


@played
def clients(folder: str) -> Agent:
    """A value of the invocation state that cannot be recorded."""
    return agent_of(folder, [call("open_client"), call("use_client"), "Done."], "open_client", "use_client")


# Hooks


@played
def hooks(folder: str) -> Agent:
    """Hooks of every kind, sync and async, that leave marks and count."""
    agent = agent_of(
        folder,
        [[call("book", city="a"), call("pay", amount=1)], call("refuse", reason="no"), "Done."],
        "book",
        "pay",
        "refuse",
    )

    def marking(kind: Any) -> Any:
        def mark(event: Any) -> None:
            note(folder, kind.__name__)
            event.agent.state.set(kind.__name__, (event.agent.state.get(kind.__name__) or 0) + 1)

        async def mark_async(event: Any) -> None:
            note(folder, f"async {kind.__name__}")

        return mark, mark_async

    for kind in EVENTS:
        for callback in marking(kind):
            agent.add_hook(callback, kind)
    return agent


@played
def verdicts(folder: str) -> Agent:
    """Hooks that cancel a tool, send answers and results back, deny a batch and end the turn."""

    def turn(_: int, messages: list[Any]) -> Any:
        if len(messages) == 1:
            return [call("book", city="a"), call("pay", amount=1)] if agent.state.get("sent back") else "Hm."
        return [call("book", city="b")] if len(messages) == 3 else "never"

    agent = agent_of(folder, turn, "book", "pay")

    def send_back(event: AfterModelCallEvent) -> None:
        if event.stop_response is not None and "Hm." in str(event.stop_response.message):
            event.agent.state.set("sent back", True)
            event.retry = True

    def cancel_one(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "pay":
            event.cancel_tool = "no money"

    def again(event: AfterToolCallEvent) -> None:
        if event.tool_use["input"].get("city") == "a" and not event.agent.state.get("again"):
            event.agent.state.set("again", True)
            event.retry = True

    def cancel_all(event: BeforeToolsEvent) -> None:
        if "'b'" in str(event.message["content"]):
            event.cancel = "not there"

    def enough(event: AfterToolsEvent) -> None:
        if "not there" in str(event.message["content"]):
            event.end_turn = "That is all."

    for callback in (send_back, cancel_one, again, cancel_all, enough):
        agent.add_hook(callback)
    return agent


@played
def rewriting(folder: str) -> Agent:
    """Hooks that change what the model is about to see, what a tool is given and what it gave, and add a pass."""
    agent = agent_of(folder, [call("book", city="a"), "One.", call("book", city="b"), "Two."], "book")

    def ask_briefly(event: BeforeModelCallEvent) -> None:
        event.agent.messages[-1]["content"].append({"text": "briefly"})

    def elsewhere(event: BeforeToolCallEvent) -> None:
        event.tool_use["input"] = {"city": event.tool_use["input"]["city"] + "!"}

    async def rate(event: AfterToolCallEvent) -> None:
        event.result["content"].append({"text": "4 stars"})

    def more(event: AfterInvocationEvent) -> None:
        if len(event.agent.messages) < 6:
            event.resume = "And then?"

    for callback in (ask_briefly, elsewhere, rate, more):
        agent.add_hook(callback)
    return agent


@played
def effects_of_hooks(folder: str) -> Agent:
    """Recorded effects, clocks, ids and timers in hooks around everything."""
    agent = agent_of(folder, [[call("book", city="a"), call("book", city="b")], "Done."], "book")

    async def act(event: Any) -> None:
        name = type(event).__name__
        found = await durable.step(name, lambda: note(folder, name) or [name])
        event.agent.state.set(name, found)
        await durable.sleep(0)

    def look(event: Any) -> None:
        event.agent.state.set("times", durable.now() <= durable.now())
        event.agent.state.set("ids", durable.uuid() != durable.uuid())

    for kind in EVENTS:
        agent.add_hook(act, kind)
    for kind in (BeforeInvocationEvent, AfterToolCallEvent):
        agent.add_hook(look, kind)
    return agent


@played
def fickle(folder: str, wish: str) -> Agent:
    """A worker that is killed in the second tool of an answer; hooks and a middleware then want the first one undone."""
    uses = [call("book", city="Rome"), call("book_and_die", city="Oslo")]

    def turn(_: int, messages: list[Any]) -> Any:
        results = [block["toolResult"]["content"] for block in messages[-1]["content"] if "toolResult" in block]
        return str([content[0]["text"] for content in results]) if results else uses

    def has_happened(city: str) -> bool:
        return any(entry["facts"].get("city") == city for entry in Ledger(Path(folder, "ledger.jsonl")).read())

    def before(event: BeforeToolCallEvent) -> None:
        if has_happened(event.tool_use["input"]["city"]):
            if wish == "cancel":
                event.cancel_tool = "it has happened"
            elif wish == "ask":
                event.interrupt("again?")

    def before_all(event: BeforeToolsEvent) -> None:
        if has_happened("Oslo"):
            if wish == "cancel all":
                event.cancel = "it has happened"
            elif wish == "ask about all":
                event.interrupt("all of it again?")

    def after(event: AfterToolCallEvent) -> None:
        event.retry = wish == "retry" and event.tool_use["input"]["city"] == "Rome" and has_happened("Oslo")

    async def around(context: Any, next_fn: Any) -> Any:
        if wish == "ask around" and has_happened(context.tool_use["input"]["city"]):
            context.interrupt("really?")
        async for event in next_fn(context):
            yield event

    hooks = [before, before_all, after]
    agent = agent_of(folder, turn, "book", "book_and_die", hooks=hooks, tool_executor=SequentialToolExecutor())
    agent.add_middleware(ExecuteToolStage, around)
    return agent


@played
def wrapped(folder: str) -> Agent:
    """A middleware of the user's around tools."""
    agent = agent_of(folder, [call("book", city="Paris"), "Done."], "book")

    async def around(context: Any, next_fn: Any) -> Any:
        note(folder, "around", city=context.tool_use["input"]["city"])
        async for event in next_fn(context.replace(tool_use={**context.tool_use, "input": {"city": "Rome"}})):
            yield event

    agent.add_middleware(ExecuteToolStage, around)
    return agent


# Models


class Trip(BaseModel):
    """A trip."""

    city: str
    nights: int

    @field_validator("nights")
    @classmethod
    def _some(cls, nights: int) -> int:
        if nights < 1:
            raise ValueError("stay at least one night")
        return nights


@played
def structured(folder: str, how: str) -> Agent:
    """Structured output: by its tool, after the forced prompt, and after a validation error in it."""
    good, wrong = call("Trip", city="Rome", nights=2), call("Trip", city="Rome", nights=0)
    scripts: dict[str, list[Any]] = {
        "by its tool": [call("book", city="Rome"), [good, call("book", city="Oslo")]],
        "forced": ["I would go to Rome.", good],
        "forced and wrong": ["I would go to Rome.", wrong, good],
    }
    return agent_of(folder, scripts[how], "book", structured_output_model=Trip)


@played
def throttled(folder: str) -> Agent:
    """A model that is too busy, asked again by Strands' own strategy."""
    errors = [ModelThrottledException("slow down")]
    script = [Answer(calls=[call("book", city="Rome")], errors=errors * 2), Answer(text="Done.", errors=errors)]
    strategy = ModelRetryStrategy(max_attempts=4, initial_delay=0, max_delay=0)
    return agent_of(folder, script, "book", retry_strategy=strategy)


@played
def out_of_order(folder: str) -> Agent:
    """A model that fails in its second turn until the file ``fixed`` exists."""

    def turn(number: int, messages: Any) -> Any:
        if number == 0:
            return call("book", city="Rome")
        broken = [] if Path(folder, "fixed").exists() else [ValueError("the model is out of order")] * 9
        return Answer(text="Fixed.", errors=broken)

    return agent_of(folder, turn, "book")


@played
def cut_off(folder: str) -> Agent:
    """A model that runs out of tokens."""
    return agent_of(folder, [call("book", city="Rome"), Answer(text="I was about", stop_reason="max_tokens")], "book")


@played
def redacting(folder: str) -> Agent:
    """A provider whose guardrail takes the prompt out."""
    answer = Answer(text="I cannot help.", redact_user="[redacted]", stop_reason="guardrail_intervened")
    return agent_of(folder, [answer])


@played
def turns(folder: str, count: int, segment_turns: int | None = None) -> Agent:
    """A call of many turns, in segments."""
    own = [] if segment_turns is None else [Durability("own.db", segment_turns=segment_turns)]
    return agent_of(
        folder, lambda turn, messages: call("book", city=str(turn)) if turn < count else "Done.", "book", plugins=own
    )


@played
def talkative(folder: str) -> Agent:
    """An agent that has talked before it is called."""
    before: Any = [
        {"role": "user", "content": [{"text": "Hello"}]},
        {"role": "assistant", "content": [{"text": "Hi."}]},
    ]
    script = ["never", call("tell"), "I have said it."]
    return agent_of(folder, script, "tell", messages=before, system_prompt="Talk.")


@played
def stopping(folder: str, how: str) -> Agent:
    """A tool that ends the call."""
    return agent_of(
        folder,
        [[call("stop", how=how), call("book", city="a")], "never"],
        "stop",
        "book",
        tool_executor=SequentialToolExecutor(),
    )


# Conversation managers


def by_cities(script: list[Any]) -> Any:
    """Return a script whose turn depends on the last visible city, whatever a manager has dropped."""

    def turn(_: int, messages: list[Any]) -> Any:
        last = str(messages[-1]["content"])
        return script[max((number for number in range(1, 10) if f"booked c{number}" in last), default=0)]

    return turn


def crowded(script: list[Any], room: int) -> Any:
    """Make a script for a model whose context holds ``room`` messages, and no prompt to go far."""

    def turn(number: int, messages: list[Any]) -> Any:
        if "Please summarize" in str(messages[-1]["content"]):
            return "In short: a trip."
        if len(messages) > room or ("Go far" in str(messages) and len(messages) > 1):
            return Answer(errors=[ContextWindowOverflowException("too long")] * 99)
        return by_cities(script)(number, messages)

    return turn


TWO = [call("book", city="c1"), call("book", city="c2"), "Done."]


@played
def windowed(folder: str, per_turn: bool) -> Agent:
    """A sliding window, applied at the end or in every turn."""
    manager = SlidingWindowConversationManager(window_size=2, per_turn=per_turn)
    return agent_of(folder, by_cities(TWO), "book", "tell", conversation_manager=manager)


@played
def overflowing(folder: str) -> Agent:
    """A context that overflows, and a window that makes room."""
    manager = SlidingWindowConversationManager(window_size=4)
    return agent_of(folder, crowded(TWO, room=3), "book", conversation_manager=manager)


@played
def summarized(folder: str, by: str) -> Agent:
    """A context that overflows, and a summary: by the agent's model, by another one, by an agent for it."""
    options: Any = {"summary_ratio": 0.5, "preserve_recent_messages": 1}
    other = Says(folder, lambda turn, messages: f"{len(messages)} messages, in short.", model_id="small")
    more: Any = {"aux_model": other} if by == "another model" else {}
    if by == "an agent":
        options["summarization_agent"] = Agent(model=other, callback_handler=None)
    manager = SummarizingConversationManager(**options)
    script = crowded([call("book", city="c1"), "Done."], room=9)
    return agent_of(folder, script, "book", conversation_manager=manager, **more)


@played
def consulting(folder: str) -> Agent:
    """A hook that asks the auxiliary model beside the loop."""
    other = Says(folder, ["It is a fine city."], model_id="small")
    agent = agent_of(folder, [call("book", city="Rome"), "Done."], "book", aux_model=other)

    async def judge(event: AfterToolCallEvent) -> None:
        asked: Any = [{"role": "user", "content": [{"text": "Is it?"}]}]
        said = [
            chunk["contentBlockDelta"]["delta"]["text"]
            async for chunk in event.agent.aux_model.stream(asked)
            if "contentBlockDelta" in chunk
        ]
        event.agent.state.set("judgement", "".join(said))

    agent.add_hook(judge)
    return agent
