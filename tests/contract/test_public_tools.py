"""C12: what a kill does to the tools of strands-agents-tools, found out by using them; docs/features.md says the same."""

from __future__ import annotations

import pkgutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import strands_tools
from strands import Agent
from strands.vended_tools import make_mcp_router

from strands_durable import Durability
from strands_durable._strands.public_tools import _IN_PROCESS
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.public_tools import survey
from tests.public_tools.uses import NOT_RUN, SERVER, USES


def test_c12_every_tool_of_the_package_is_used_or_is_said_not_to_be() -> None:
    there = {found.name for found in pkgutil.iter_modules(strands_tools.__path__)} - {"utils"}
    used = {use.tool for use in USES}
    assert used | set(NOT_RUN) == there
    assert not used & set(NOT_RUN)


def test_c12_the_effects_of_public_tools_that_live_in_the_process_are_there_after_a_kill(tmp_path: Path) -> None:
    found = survey.survey(tmp_path)
    assert survey.table(found) == survey.documented(), "run python -m tests.public_tools.survey"
    ours = {name.partition(".")[2] for name in _IN_PROCESS if name.startswith("strands_tools.")}
    assert {tool for tool, verdict in found.items() if verdict == survey.MADE_AGAIN} == ours
    assert f"strands-agents-tools {version('strands-agents-tools')}" in survey.PAGE.read_text()


@pytest.mark.parametrize("is_open", [True, False])
def test_c12_the_connections_of_an_mcp_router_are_there_after_a_kill(is_open: bool) -> None:
    connect = call("mcp_router", command="connect", server_name="shop", connection_id="one")
    change = connect if is_open else call("mcp_router", command="disconnect", connection_id="one")
    use = call("mcp_router", command="call_tool", connection_id="one", tool_name="price", arguments={"item": "tea"})
    turns: list[Any] = [connect, use, use] if is_open else [connect, change, use]

    def agent_of() -> Agent:
        router = make_mcp_router(servers={"shop": {"command": sys.executable, "args": [SERVER]}})
        return Agent(
            model=ScriptedModel([*turns, "Done."]),
            tools=[router],
            plugins=[Durability("runs.db", execution_id="trip")],
            callback_handler=None,
        )

    with pytest.raises(SimulatedCrash), CrashPoints().crashing("tool.start:after@3", "raise"):
        agent_of()("Go")
    forget_process()
    agent = agent_of()
    agent("Go")
    last = agent.messages[-2]["content"][0]["toolResult"]
    assert last["status"] == ("success" if is_open else "error")
    assert ("tea costs 3" if is_open else "No active connection") in str(last["content"])
