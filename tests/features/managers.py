"""Conversation managers: windows, summaries, and what happens when the context overflows."""

from __future__ import annotations

from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.types.exceptions import ContextWindowOverflowException

from strands_durable.testing import Answer, call
from tests.crash.scenarios import book
from tests.features.harness import LedgerModel, durability, feature, seen

OVERFLOW = ContextWindowOverflowException("too long")


def by_calls(script: list[Any]) -> Any:
    """Return a script whose turn depends on the number of visible cities, whatever the manager has dropped."""

    def turn(_: int, messages: list[Any]) -> Any:
        texts = [str(message["content"]) for message in messages]
        return script[sum("booked" in text for text in texts[-1:]) and _last_city(texts[-1])]

    return turn


def _last_city(text: str) -> int:
    return max(number for number in range(10) if f"booked c{number}" in text)


def windowed(**options: Any) -> Any:
    manager = SlidingWindowConversationManager(**options)
    model = LedgerModel(by_calls([call("book", city="c1"), "Done."]))
    agent = Agent(
        model=model, tools=[book], plugins=[durability()], conversation_manager=manager, callback_handler=None
    )
    first = seen(agent, agent("Go"))
    return first, manager.removed_message_count


@feature(4, "a sliding window, applied at the end")
def sliding() -> Any:
    return windowed(window_size=2)


@feature(4, "a sliding window, applied in every turn")
def sliding_per_turn() -> Any:
    return windowed(window_size=2, per_turn=True)


def crowded(script: list[Any], *, room: int = 9) -> LedgerModel:
    """Return a model whose context holds ``room`` messages, and no prompt to go far."""

    def turn(at: int, messages: list[Any]) -> Any:
        if "Please summarize" in str(messages[-1]["content"]):
            return "In short: a trip."
        if len(messages) > room or ("Go far" in str(messages) and len(messages) > 1):
            return Answer(errors=[OVERFLOW] * 99)
        return by_calls(script)(at, messages)

    return LedgerModel(turn)


def overflowing(model: LedgerModel, manager: Any, prompt: str, **options: Any) -> Any:
    agent = Agent(
        model=model,
        tools=[book],
        plugins=[durability()],
        conversation_manager=manager,
        callback_handler=None,
        **options,
    )
    return seen(agent, agent(prompt)), manager.removed_message_count


@feature(4, "an overflow, and a window that makes room")
def overflow() -> Any:
    model = crowded([call("book", city="c1"), call("book", city="c2"), "Done."], room=3)
    return overflowing(model, SlidingWindowConversationManager(window_size=4), "Go")


@feature(4, "an overflow, and a summary by the agent's own model")
def summary() -> Any:
    manager = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=1)
    return overflowing(crowded([call("book", city="c1"), "Done."]), manager, "Go far")


@feature(4, "an overflow, and a summary by another model")
def summary_elsewhere() -> Any:
    manager = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=1)
    other = LedgerModel(lambda at, messages: f"{len(messages)} messages, in short.", model_id="small")
    return overflowing(crowded([call("book", city="c1"), "Done."]), manager, "Go far", aux_model=other)


@feature(4, "a summary ahead of a call, made once")
def proactive() -> Any:
    class Small(LedgerModel):
        context_window_limit = 30

    model = Small(crowded([call("book", city="c1"), "Done."]).script)
    ahead: Any = {"compression_threshold": 0.4}
    manager = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=1, proactive_compression=ahead)
    return overflowing(model, manager, "Go")


@feature(4, "an overflow, and a summary by an agent for it")
def summary_by_an_agent() -> Any:
    helper = Agent(
        model=LedgerModel(lambda at, messages: f"{len(messages)} messages, in short."), callback_handler=None
    )
    manager = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=1, summarization_agent=helper)
    return overflowing(crowded([call("book", city="c1"), "Done."]), manager, "Go far")
