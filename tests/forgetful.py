"""A process that forgets: tools whose effect dies with it, for tests of what is made again."""

from __future__ import annotations

from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, policy
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process

memory: dict[str, str] = {}
"""What dies with the process."""
runs: list[str] = []
"""What was done to the outside world."""


def start_afresh() -> None:
    """Forget what was kept, and what was done."""
    memory.clear()
    runs.clear()


@policy(on_resume="rerun")
@tool
def remember(name: str, value: str) -> str:
    """Keep a value in the process."""
    runs.append(f"remember {name}={value}")
    if value == "bad":
        raise ValueError("a bad value")
    memory[name] = value
    return f"{name} is {value}"


@tool
def recall() -> str:
    """Say what is kept in the process."""
    runs.append("recall")
    return str(sorted(memory.items()))


@tool(context=True)
def ask(tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"answered {tool_context.interrupt('question')}"


SCRIPT = [call("remember", name="city", value="Rome"), call("recall"), "Done."]


def agent_of(script: Any = SCRIPT, tools: Any = (remember, recall, ask), **options: Any) -> Agent:
    more = {name: options.pop(name) for name in ("agent_id", "name") if name in options}
    plugins = [Durability("runs.db", **{"execution_id": "trip", **options})] if options.pop("durable", True) else []
    return Agent(model=ScriptedModel(script), tools=list(tools), plugins=plugins, callback_handler=None, **more)


def die_at(point: str, agent: Any, prompt: str = "Go") -> None:
    """Crash, and forget what the process knew."""
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt)
    forget_process()
    memory.clear()


def results(agent: Agent) -> list[str]:
    blocks = [block for message in agent.messages for block in message["content"] if "toolResult" in block]
    return [block["toolResult"]["content"][0]["text"] for block in blocks]
