"""Agents whose questions, failures and ends tests have reported: a file as a worker of the command line takes it."""

from __future__ import annotations

from typing import Any

from strands import Agent, ToolContext, tool

from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel, call


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason={'what': what})}"


def build(*script: Any) -> Agent:
    return Agent(model=ScriptedModel(list(script)), tools=[approve], callback_handler=None)


@durable_agent(name="c37-planner")
def planner() -> Agent:
    return build("Your trip is booked.")


@durable_agent(name="c37-asker")
def asker() -> Agent:
    return build(call("approve", what="trip"), "Approved.")


@durable_agent(name="c37-broken")
def broken() -> Agent:
    return build()
