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
    """Make a script whose turn is told by the number of cities in sight, whatever the manager has dropped."""

    def turn(_: int, messages: list[Any]) -> Any:
        texts = [str(message["content"]) for message in messages]
        return script[sum("booked" in text for text in texts[-1:]) and _last_city(texts[-1])]

    return turn


def _last_city(text: str) -> int:
    return max(number for number in range(10) if f"booked c{number}" in text)


@feature(4, "a sliding window, applied at the end")
def sliding() -> Any:
    script = by_calls([call("book", city="c1"), call("book", city="c2"), "Done."])
    manager = SlidingWindowConversationManager(window_size=4)
    agent = Agent(
        model=LedgerModel(script),
        tools=[book],
        plugins=[durability()],
        conversation_manager=manager,
        callback_handler=None,
    )
    return seen(agent, agent("Go")), manager.removed_message_count


@feature(4, "a sliding window, applied in every turn")
def sliding_per_turn() -> Any:
    script = by_calls([call("book", city="c1"), call("book", city="c2"), "Done."])
    manager = SlidingWindowConversationManager(window_size=3, per_turn=True)
    agent = Agent(
        model=LedgerModel(script),
        tools=[book],
        plugins=[durability()],
        conversation_manager=manager,
        callback_handler=None,
    )
    return seen(agent, agent("Go")), manager.removed_message_count


def crowded(number: int, script: Any) -> LedgerModel:
    """Return a model whose context holds ``number`` messages."""

    def turn(at: int, messages: list[Any]) -> Any:
        if "Please summarize" in str(messages[-1]["content"]):
            return "In short: cities."
        if len(messages) > number:
            return Answer(errors=[OVERFLOW] * 99)
        return script(at, messages)

    return LedgerModel(turn)


@feature(4, "an overflow, and a window that makes room")
def overflow() -> Any:
    manager = SlidingWindowConversationManager(window_size=4)
    model = crowded(3, by_calls([call("book", city="c1"), call("book", city="c2"), "Done."]))
    agent = Agent(
        model=model, tools=[book], plugins=[durability()], conversation_manager=manager, callback_handler=None
    )
    return seen(agent, agent("Go")), manager.removed_message_count


@feature(4, "an overflow, and a summary by the agent's own model")
def summary() -> Any:
    manager = SummarizingConversationManager(summary_ratio=0.6, preserve_recent_messages=1)
    model = crowded(3, by_calls([call("book", city="c1"), call("book", city="c2"), "Done."]))
    agent = Agent(
        model=model, tools=[book], plugins=[durability()], conversation_manager=manager, callback_handler=None
    )
    return seen(agent, agent("Go")), manager.removed_message_count


@feature(4, "an overflow, and a summary by another model")
def summary_elsewhere() -> Any:
    manager = SummarizingConversationManager(summary_ratio=0.6, preserve_recent_messages=1)
    model = crowded(3, by_calls([call("book", city="c1"), call("book", city="c2"), "Done."]))
    other = LedgerModel(lambda at, messages: f"{len(messages)} messages, in short.", model_id="small")
    agent = Agent(
        model=model,
        aux_model=other,
        tools=[book],
        plugins=[durability()],
        conversation_manager=manager,
        callback_handler=None,
    )
    return seen(agent, agent("Go")), manager.removed_message_count
