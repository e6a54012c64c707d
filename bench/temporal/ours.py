"""Our side: the agent as one writes it for any engine. ``strands-durable worker`` is its worker."""

from __future__ import annotations

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager

from bench.temporal.script import SYSTEM_PROMPT, model, read
from strands_durable import durable_agent


@tool
def read_page(page: int) -> str:
    """Read a page.

    Args:
        page: Its number.
    """
    return read(page)


@durable_agent
def reader() -> Agent:
    """Return the agent."""
    return Agent(
        model=model(),
        system_prompt=SYSTEM_PROMPT,
        tools=[read_page],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
