"""The processes in which the tools are used: one runs every use to its end, and again up to a gate, where it is killed; others
resume. `python -m tests.public_tools.program killed|reuse|default URL`, in the folder of the run.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.types.tools import AgentTool

from strands_durable import Durability, ToolPolicy
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing._model import ToolCall
from tests.public_tools.uses import USES, Use


@tool
async def gate(name: str) -> str:
    """Wait for the end of the process, unless the gate is open."""
    if os.environ["GATE"] == "closed" and name.startswith("dying"):
        Path(f"{name}.here").touch()
        await asyncio.Event().wait()
    return "open"


DATES = {"plain": "2026-01-02", "dying": "2026-01-03"}
"""The runs: their names, which are of one length, and a day for each."""


def _filled(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, str):
        for place, found in places.items():
            value = value.replace(place, found)
        return value
    if isinstance(value, dict):
        return {key: _filled(item, places) for key, item in value.items()}
    return [_filled(item, places) for item in value] if isinstance(value, list) else value


def _script(use: Use, name: str, url: str) -> Any:
    places = {"{name}": name, "{url}": url, "{folder}": os.getcwd(), "{date}": DATES[name]}

    def filled(found: ToolCall) -> ToolCall:
        return ToolCall(found.name, _filled(found.input, places))

    waits = call("gate", name=f"{name}-{use.tool}")
    before, after = list(map(filled, use.before)), list(map(filled, use.after))
    turns: list[Any] = [[*before, waits]] if use.is_last else [*before, waits]
    turns += [*after, "Done."]

    def next_turn(turn: int, messages: list[Any]) -> Any:
        asked = messages[0]["content"][0].get("text", "")
        return turns[turn] if asked == "Go" else "Something."

    return next_turn


def _tool(name: str) -> Any:
    """Return a tool as a user would list it: the decorated function, or else the module."""
    module = importlib.import_module(f"strands_tools.{name}")
    found = getattr(module, name, None)
    return found if isinstance(found, AgentTool) else module


def _agent(use: Use, name: str, url: str, **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel(_script(use, name, url)),
        tools=[*map(_tool, dict.fromkeys([use.tool, "file_read", "file_write"])), gate],
        plugins=[Durability("runs.db", execution_id=f"{name}-{use.tool}", **options)],
        callback_handler=None,
    )


def _shown(agent: Agent, name: str) -> list[str]:
    """Return what the tools after the gate gave, without what differs from run to run."""
    blocks = [block for message in agent.messages for block in message["content"] if "toolResult" in block]
    results = [f"{found['status']}: {found['content']}" for found in (block["toolResult"] for block in blocks)]
    passed = next(index for index, text in enumerate(results) if "'open'" in text)
    texts = [
        re.sub(r"\d+", "#", text.replace(os.getcwd(), "FOLDER").replace(name, "NAME")) for text in results[passed + 1 :]
    ]
    if name == "plain":
        assert all(text.startswith("success") for text in results), results
    said = [message for message in agent.messages if message["role"] == "assistant"]
    return [*texts, f"{len(said)} answers"]


async def _killed(url: str) -> None:
    """Run every use to its end, and again up to the gate."""
    found, under_way = {}, []
    for use in USES:
        agent = _agent(use, "plain", url)
        await agent.invoke_async("Go")
        found[use.tool] = _shown(agent, "plain")
        under_way.append(asyncio.create_task(_agent(use, "dying", url).invoke_async("Go")))
        while not Path(f"dying-{use.tool}.here").exists():
            assert not under_way[-1].done(), f"{use.tool} has not come to the gate: {under_way[-1].result()}"
            await asyncio.sleep(0.005)
    Path("plain.json").write_text(json.dumps(found))
    Path("ready").touch()
    await asyncio.Event().wait()


async def _resumed(how: str, url: str) -> None:
    """Resume what was killed; with ``reuse`` as it would be without anything being made again."""
    found = {}
    for use in USES:
        reuse = {"tool_policies": {use.tool: ToolPolicy(on_resume="reuse")}, "on_drift": "warn"}
        agent = _agent(use, "dying", url, **(reuse if how == "reuse" else {}))
        await agent.invoke_async("Go")
        found[use.tool] = _shown(agent, "dying")
    Path(f"{how}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    how, url = sys.argv[1:]
    asyncio.run(_killed(url) if how == "killed" else _resumed(how, url))
    os._exit(0)  # a graph of agents has threads that never end
