"""A person's answer, days later, in a new process."""

from __future__ import annotations

from typing import Any

from strands import Agent, ToolContext, tool

from strands_durable.testing import call
from tests.features.harness import LedgerModel, answered, durability, effect, feature, seen


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    effect("approve", what=what)
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


@feature(1, "a tool asks", lossy=True)  # the code of a tool before its question runs again with the answer
def a_tool_asks() -> Any:
    agent = Agent(
        model=LedgerModel([call("approve", what="paint"), "Done."]),
        tools=[approve],
        plugins=[durability()],
        callback_handler=None,
    )
    result = answered(agent, "Paint", lambda found: f"yes to {found.reason}")
    return seen(agent, result)
