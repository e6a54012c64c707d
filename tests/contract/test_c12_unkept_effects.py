"""C12: what an agent uses that a crash loses or repeats is said in the log when Durability is attached."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from strands import Agent
from strands.memory import MemoryManager
from strands.multiagent import Swarm
from strands.storage import InMemoryStorage, LocalFileStorage
from strands.vended_memory_stores.test_memory_store import TestMemoryStore as MemoryOfTests
from strands.vended_plugins.context_offloader import ContextOffloader, FileStorage
from strands.vended_plugins.context_offloader import InMemoryStorage as OldInMemoryStorage
from strands.vended_tools import file_editor, make_shell, python_repl, shell
from strands_tools import agent_graph, editor, workflow
from strands_tools import python_repl as repl_of_tools
from strands_tools import shell as shell_of_tools

from strands_durable import Durability, ToolPolicy, connect, durable_agent, policy
from strands_durable.testing import ScriptedModel


@pytest.fixture(autouse=True)
def desk(request: pytest.FixtureRequest) -> str:
    """Give the agents of each test a name, as each warning is logged once in a process."""
    return str(request.node.name)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING)
    return lambda: [text for text in map(logging.LogRecord.getMessage, caplog.records) if text.startswith("agent=<")]


@pytest.fixture
def agent_of(desk: str) -> Any:
    def agent_of(*, first: bool = True, plugins: Any = (), policies: Any = None, **more: Any) -> Agent:
        """Return an agent with Durability before its other plugins, or after them."""
        durability = Durability("runs.db", execution_id="trip", tool_policies=policies)
        plugins = [durability, *plugins] if first else [*plugins, durability]
        return Agent(name=desk, model=ScriptedModel(["Done."]), plugins=plugins, callback_handler=None, **more)

    return agent_of


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("storage", [None, OldInMemoryStorage, InMemoryStorage])
def test_c12_offloading_to_memory_is_warned_of(said: Any, agent_of: Any, desk: str, storage: Any, first: bool) -> None:
    agent_of(first=first, plugins=[ContextOffloader(storage and storage())])
    [text] = said()
    assert f"agent=<{desk}>" in text
    assert "ContextOffloader" in text
    assert "LocalFileStorage" in text


@pytest.mark.parametrize("storage", [FileStorage, LocalFileStorage])
def test_c12_offloading_to_files_is_not_warned_of(said: Any, agent_of: Any, desk: str, storage: Any) -> None:
    agent_of(plugins=[ContextOffloader(storage("artifacts"))])
    agent_of(plugins=[ContextOffloader()], storage=LocalFileStorage("artifacts"))
    assert said() == []


@pytest.mark.parametrize("is_plugin", [True, False])
def test_c12_extraction_of_memory_is_warned_of(said: Any, agent_of: Any, desk: str, is_plugin: bool) -> None:
    memory = MemoryManager([MemoryOfTests(name="facts", extraction=True)])
    agent_of(**({"plugins": [memory]} if is_plugin else {"memory_manager": memory}))
    [text] = said()
    assert f"agent=<{desk}>, store=<facts>" in text
    assert "add_tool_config=True" in text


def test_c12_unawaited_writes_to_memory_are_warned_of(said: Any, agent_of: Any, desk: str) -> None:
    agent_of(memory_manager=MemoryManager([MemoryOfTests(name="facts")], add_tool_config={"wait_for_writes": False}))
    [text] = said()
    assert f"agent=<{desk}>, tool=<add_memory>" in text
    assert "wait_for_writes" in text


def test_c12_writes_to_memory_that_are_waited_for_are_not_warned_of(said: Any, agent_of: Any, desk: str) -> None:
    agent_of(memory_manager=MemoryManager([MemoryOfTests(name="facts")], add_tool_config=True))
    assert said() == []


TWICE = {
    "shell": [shell, shell_of_tools],
    "python_repl": [python_repl, repl_of_tools],
    "file_editor": [file_editor],
    "editor": [editor],
    "agent_graph": [agent_graph],
    "workflow": [workflow],
}


@pytest.mark.parametrize(("name", "tool"), [(name, tool) for name, found in TWICE.items() for tool in found])
def test_c12_tools_whose_calls_should_not_be_repeated_are_warned_of_once(
    said: Any, agent_of: Any, desk: str, name: str, tool: Any
) -> None:
    agent = agent_of(tools=[tool])
    agent("Go")
    agent_of(tools=[tool])
    [text] = [each for each in said() if "if a crash interrupts a call" in each]
    assert f"agent=<{desk}>, tool=<{name}>" in text
    assert f"""tool_policies={{"{name}": ToolPolicy(in_doubt="ask")}}""" in text


@pytest.mark.parametrize("in_doubt", ["ask", "retry", "fail"])
def test_c12_tools_whose_policy_was_chosen_are_not_warned_of(
    said: Any, agent_of: Any, desk: str, in_doubt: Any
) -> None:
    agent_of(tools=[shell], policies={"shell": ToolPolicy(in_doubt=in_doubt)})
    agent_of(tools=[policy(in_doubt=in_doubt)(make_shell(name="terminal"))])
    assert said() == []


def test_c12_the_tools_of_agents_behind_tools_and_of_nodes_are_warned_of(said: Any, agent_of: Any, desk: str) -> None:
    def helper(name: str) -> Agent:
        return Agent(name=f"{desk} {name}", description="Helps.", tools=[shell], callback_handler=None)

    asks = {"shell": ToolPolicy(in_doubt="ask")}
    agent_of(tools=[helper("first")])
    agent_of(tools=[helper("second")], policies=asks)
    Swarm([helper("third"), helper("fourth")], plugins=[Durability("runs.db", execution_id="trip")])
    Swarm([helper("fifth")], plugins=[Durability("runs.db", execution_id="trip", tool_policies=asks)])
    found = [f"agent=<{desk} {name}>, tool=<shell>" for name in ("first", "third", "fourth")]
    assert [text.partition(" |")[0] for text in said()] == found


def test_c12_a_worker_warns_of_an_agent_once(said: Any, desk: str) -> None:
    backend = connect("sqlite:///runs.db")

    @durable_agent(name="unkept_desk")
    def office() -> Agent:
        return Agent(name=desk, model=ScriptedModel(["Done."]), tools=[shell], callback_handler=None)

    for number in range(3):
        office.on(backend)("Go", execution_id=f"trip-{number}")
    asyncio.run(backend.close())
    [text] = said()
    assert f"agent=<{desk}>, tool=<shell>" in text
