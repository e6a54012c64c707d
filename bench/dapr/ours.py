"""Our side: the agent as one writes it for any engine. ``strands-durable worker`` is its worker."""

from __future__ import annotations

from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager, SlidingWindowConversationManager

from bench.dapr.script import LAST, TEXT_CHARS, begin, text
from strands_durable import durable_agent
from strands_durable.testing import Answer, ScriptedModel, call

WINDOW = 40


@tool
def read_page(page: int) -> str:
    """Read a page.

    Args:
        page: Its number.
    """
    begin("tool", page)
    return text("tool", page)


def _model(cycles: int) -> ScriptedModel:
    def script(turn: int, messages: list[Any]) -> Any:
        page = _next_page(messages[-1])
        begin("model", page)
        if page == cycles:
            return LAST
        return Answer(
            text=text("model", page), calls=[call("read_page", tool_use_id=f"page-{page}", page=page)], chunk=TEXT_CHARS
        )

    return ScriptedModel(script)


def _next_page(last: Any) -> int:
    """Return the page to read next: a window does not hold all messages that could be counted."""
    results = [block["toolResult"]["toolUseId"] for block in last["content"] if "toolResult" in block]
    return int(results[0].partition("-")[2]) + 1 if results else 0


def whole(cycles: int, **options: Any) -> Agent:
    """Return an agent that keeps its whole conversation."""
    return Agent(
        model=_model(cycles),
        tools=[read_page],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
        **options,
    )


@durable_agent
def reader(cycles: int = 0) -> Agent:
    """Return an agent that keeps its whole conversation."""
    return whole(cycles)


@durable_agent
def window_reader(cycles: int = 0) -> Agent:
    """Return an agent that keeps the last messages, trimmed in each turn: by default only at the end of a call."""
    return Agent(
        model=_model(cycles),
        tools=[read_page],
        conversation_manager=SlidingWindowConversationManager(window_size=WINDOW, per_turn=True),
        callback_handler=None,
    )
