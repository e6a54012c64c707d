"""A file of agents, as a user of the command line has one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool

from strands_durable import ToolPolicy, durable_agent
from strands_durable.testing import ScriptedModel, call


@tool
def book(city: str) -> str:
    """Book a hotel."""
    print("booking", city)
    return f"booked {city}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason={'what': what})}"


@tool(context=True)
def season(tool_context: ToolContext) -> str:
    """Say what the caller said."""
    return str(tool_context.invocation_state["season"])


@tool
def wait_for(path: str) -> str:
    """Wait until a file is there."""
    Path("waiting").touch()
    while not Path(path).exists():
        time.sleep(0.01)
    return "it is there"


@tool
def die_once() -> str:
    """Kill the first process that comes here."""
    try:
        Path("died").touch(exist_ok=False)
    except FileExistsError:
        return f"alive as {os.getpid()}"
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def build(*script: Any) -> Agent:
    """Return an agent that prints what it says, as Strands' agents do."""
    tools = [book, approve, season, wait_for, die_once]
    return Agent(model=ScriptedModel(list(script)), tools=tools, retry_strategy=ModelRetryStrategy(max_attempts=1))


@durable_agent
def planner(city: str = "Paris") -> Agent:
    return build(call("book", city=city), f"Your trip to {city} is booked.")


@durable_agent
def asker() -> Agent:
    return build(call("approve", what="trip"), "Approved.")


@durable_agent
def twice() -> Agent:
    return build([call("approve", what="one"), call("approve", what="two")], "Both.")


@durable_agent
def seasonal() -> Agent:
    return build(call("season"), "Then.")


@durable_agent
def waiter() -> Agent:
    return build(call("wait_for", path="go"), call("book", city="Rome"), "Done.")


@durable_agent(tool_policies={"wait_for": ToolPolicy(timeout=0.1, in_doubt="fail")})
def hasty() -> Agent:
    return build(call("wait_for", path="go"), "Given up.")


@durable_agent
def killer() -> Agent:
    return build(call("die_once"), "Survived.")


@durable_agent
def broken() -> Agent:
    return build(call("book", city="Rome"))


@durable_agent
def unbuilt() -> Agent:
    raise LookupError("no model is configured")
