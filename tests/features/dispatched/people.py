"""Questions to people: from tools, from hooks, several at once."""

from __future__ import annotations

from typing import Any

from strands import Agent
from strands.hooks import BeforeToolCallEvent, BeforeToolsEvent
from strands.middleware import ExecuteToolStage

from strands_durable.testing import call

from .hands import agent_of, played


@played
def asking(folder: str) -> Agent:
    """A tool that asks, and another after it."""
    return agent_of(folder, [call("approve", what="paint"), call("book", city="Rome"), "Done."], "approve", "book")


@played
def asking_twice(folder: str) -> Agent:
    """A tool that asks two things, one after the other."""
    return agent_of(folder, [call("approve_twice", what="wall"), "Done."], "approve_twice")


@played
def asking_at_once(folder: str) -> Agent:
    """Tools that ask at the same time, beside one that does not."""
    uses = [call("approve", what="paint"), call("book", city="Paris"), call("approve", what="sand")]
    return agent_of(folder, [uses, "Done."], "approve", "book")


@played
def hooks_asking(folder: str) -> Agent:
    """Hooks that ask before all tools, and before each."""
    agent = agent_of(folder, [[call("book", city="Paris"), call("book", city="Rome")], "Done."], "book")

    def before_tools(event: BeforeToolsEvent) -> None:
        if event.interrupt("all", reason="the batch") == "no":
            event.cancel = "not today"

    async def before_tool(event: BeforeToolCallEvent) -> None:
        city = event.tool_use["input"]["city"]
        if event.interrupt(f"book {city}", reason=city) == "no":
            event.cancel_tool = "not there"

    agent.add_hook(before_tools)
    agent.add_hook(before_tool)
    return agent


@played
def middleware_asking(folder: str) -> Agent:
    """A middleware that asks around a tool, and has it do something else."""
    agent = agent_of(folder, [call("book", city="Paris"), "Booked."], "book")

    async def gate(context: Any, next_fn: Any) -> Any:
        answer = context.interrupt("where", reason=context.tool_use["input"]).response
        async for event in next_fn(context.replace(tool_use={**context.tool_use, "input": {"city": answer}})):
            yield event

    agent.add_middleware(ExecuteToolStage, gate)
    return agent
