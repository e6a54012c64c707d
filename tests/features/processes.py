"""Tools whose effect lives in the process: what they did is there after a kill, in the agent that did it."""

from __future__ import annotations

from typing import Any

from strands import Agent, ToolContext, tool

from strands_durable import policy
from strands_durable.testing import call
from tests.features.harness import BriefModel, durability, effect, feature, seen

connections: dict[str, str] = {}


@policy(on_resume="rerun")
@tool
def open_shop(name: str) -> str:
    """Open a connection for the other tools."""
    connections[name] = f"connection to {name}"
    return f"{name} is open"


@tool
def buy(name: str) -> str:
    """Buy something over a connection."""
    effect("buy", item=name)
    return f"bought over {connections.get(name)}"


@policy(on_resume="rerun")
@tool(context=True)
def learn(tool_context: ToolContext) -> str:
    """Give the agent another tool."""
    tool_context.agent.tool_registry.register_tool(buy)
    return "learnt"


@feature(15, "a connection that the tool of one agent opens for another, and a tool that is loaded", points="tool")
def shops() -> Any:
    opening = [call("open_shop", name="tea"), "Open."]
    helper = Agent(name="helper", model=BriefModel(opening), tools=[open_shop], callback_handler=None)
    turns = [[call("helper", input="Open."), call("learn")], call("buy", name="tea"), "Done."]
    agent = Agent(model=BriefModel(turns), tools=[helper, learn], plugins=[durability()], callback_handler=None)
    return seen(agent, agent("Go"))
