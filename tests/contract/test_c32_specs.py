"""C32: what an AgentSpec is, what changes it, and what building one does not do."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.multiagent import GraphBuilder, Swarm

from strands_durable import AgentSpec, DurableAgent, connect, durable_agent, errors
from strands_durable._dispatch import registry as registry_module
from strands_durable.testing import ScriptedModel
from tests import dispatched

ROOT = Path(__file__).parents[2]
SERVER = str(ROOT / "tests" / "features" / "mcp_server.py")


@tool
def book(city: str) -> str:
    """Book a hotel."""
    return city


@tool(name="book")
def book_for(city: str, nights: int) -> str:
    """Book a hotel."""
    return city


@tool
def fly(to: str) -> str:
    """Fly."""
    return to


def agent(**given: Any) -> Agent:
    given = {"model": ScriptedModel(["Hi."]), "tools": [book, fly], "system_prompt": "Be brief.", **given}
    return Agent(callback_handler=None, **given)


def plain() -> Agent:
    return agent()


def graph(*edges: tuple[str, str], **given: Any) -> Any:
    builder = GraphBuilder()
    for name in "abc":
        builder.add_node(agent(**(given if name == "c" else {})), name)
    for edge in edges:
        builder.add_edge(*edge)
    builder.set_entry_point("a")
    builder.set_max_node_executions(9)
    return builder.build()


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "agents", dict(registry_module.agents))


def spec_of(build: Any, name: str = "subject") -> AgentSpec:
    registry_module.agents.pop(name, None)
    return DurableAgent(build, name).spec


CHANGED = {
    "the prompt": lambda: agent(system_prompt="Be long."),
    "the model": lambda: agent(model=ScriptedModel(["Hi."], model_id="other")),
    "a tool less": lambda: agent(tools=[book]),
    "the schema of a tool": lambda: agent(tools=[book_for, fly]),
    "an agent behind a tool": lambda: agent(tools=[book, fly, agent(name="sub").as_tool()]),
    "a graph": lambda: graph(("a", "b"), ("b", "c")),
    "another topology": lambda: graph(("a", "b"), ("a", "c")),
    "a node of a graph": lambda: graph(("a", "b"), ("b", "c"), system_prompt="Be long."),
    "a swarm": lambda: Swarm([agent(name="one"), agent(name="two")]),
    "an agent of a swarm": lambda: Swarm([agent(name="one"), agent(name="two", tools=[book])]),
    "a sub-agent's prompt": lambda: agent(tools=[book, fly, agent(name="sub", system_prompt="Other.").as_tool()]),
}


def test_c32_every_change_of_an_agent_changes_its_fingerprint() -> None:
    found = {what: spec_of(build).fingerprint for what, build in {"as it was": plain, **CHANGED}.items()}
    assert len(set(found.values())) == len(found), found
    assert spec_of(plain).fingerprint == spec_of(lambda: agent(tools=[fly, book])).fingerprint, "order is nothing"
    assert spec_of(plain, "other").fingerprint != found["as it was"]


@pytest.mark.parametrize("build", [plain, *CHANGED.values()], ids=["as it was", *CHANGED])
def test_c32_a_spec_is_frozen_json_and_hashable(build: Any) -> None:
    spec = spec_of(build)
    again = AgentSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert len({again, spec}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]


def test_c32_a_spec_describes_an_agent() -> None:
    spec = spec_of(plain)
    assert (spec.kind, spec.model_id, set(spec.tool_names)) == ("agent", "scripted", {"book", "fly"})
    assert "city" in json.dumps(spec.tool_schemas["book"])
    assert "Be brief." in json.dumps(spec.system_prompt)
    found = spec_of(CHANGED["a graph"])
    assert (found.kind, set(found.nodes), len(found.edges)) == ("graph", {"a", "b", "c"}, 2)
    assert spec_of(CHANGED["a swarm"]).kind == "swarm"


def test_c32_a_spec_of_a_later_version_can_be_read() -> None:
    spec = spec_of(plain)
    assert AgentSpec.from_json({**spec.to_json(), "invented_later": 1}) == spec


def test_c32_a_fingerprint_is_the_same_in_every_process_and_under_every_hash_seed() -> None:
    code = (
        "from tests.contract.test_c32_specs import *\n"
        "print([spec_of(build).fingerprint for build in (plain, *CHANGED.values())])"
    )
    here = str([spec_of(build).fingerprint for build in (plain, *CHANGED.values())])
    for seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        assert ended.stdout.strip() == here


def test_c32_arguments_are_recorded_and_only_what_they_change_is_in_the_fingerprint() -> None:
    def build(style: str, note: str = "") -> Agent:
        return agent(system_prompt=style)

    subject = DurableAgent(build, "subject")
    one, other, third = (subject.spec_with(**given) for given in (
        {"style": "A"}, {"style": "B"}, {"style": "A", "note": "x"},
    ))  # fmt: skip
    assert one.arguments == {"style": "A"}
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == third.fingerprint
    with pytest.raises(TypeError, match="'style'"):
        subject.spec  # noqa: B018
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        subject.spec_with(style="A", colour="red")
    with pytest.raises(errors.NotSerializableError):
        subject.spec_with(style=object())


def test_c32_a_factory_takes_named_arguments_only_and_none_of_ours() -> None:
    for wrong in (lambda *found: agent(), lambda **found: agent(), lambda prompt: agent(), lambda limits=None: agent()):
        with pytest.raises(TypeError, match="factory of agent 'subject'"):
            DurableAgent(wrong, "subject")


def test_c32_a_factory_that_returns_something_else_is_refused() -> None:
    async def build() -> Agent:
        return agent()

    for wrong in (build, lambda: "an agent", lambda: None):
        with pytest.raises(errors.UnsupportedFeatureError, match="A factory that returns a"):
            spec_of(wrong)


def test_c32_two_agents_of_one_name_are_refused_and_the_same_one_loaded_again_is_not() -> None:
    def build() -> Agent:
        return agent()

    DurableAgent(build, "subject")
    DurableAgent(build, "subject")
    with pytest.raises(ValueError, match="Two agents are named 'subject'"):
        DurableAgent(plain, "subject")


def test_c32_building_a_spec_calls_no_model_and_starts_no_server() -> None:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client
    from strands.tools.mcp import MCPClient

    model = ScriptedModel(["Hi."])
    code = f"open('started', 'w').close(); import runpy; runpy.run_path({SERVER!r}, run_name='__main__')"

    def client() -> MCPClient:
        server = StdioServerParameters(command=sys.executable, args=["-c", code, "stdio", "price"], cwd=Path.cwd())
        return MCPClient(lambda: stdio_client(server))

    spec = spec_of(lambda: agent(model=model, tools=[book, client()]))
    assert model.calls == 0
    assert not Path("started").exists()
    assert set(spec.tool_names) == {"book"}
    built = agent(tools=[book, client()])
    assert Path("started").exists(), "the server would have written it"
    assert "price" in built.tool_names
    built.cleanup()


def test_c32_an_id_in_the_invocation_state_is_the_id_of_the_run() -> None:
    backend = connect(dispatched.OFF)
    subject = dispatched.scripted.on(backend)
    handle = asyncio.run(subject.dispatch_async("Go", invocation_state={"execution_id": "named"}, script=["Hi."]))
    assert handle.execution_id == "named"
    with pytest.raises(ValueError, match="two execution_ids"):
        asyncio.run(
            subject.dispatch_async("Go", execution_id="a", invocation_state={"execution_id": "b"}, script=["Hi."])
        )
    current = dispatched.worker()
    assert str(dispatched.result(handle)) == "Hi.\n"
    dispatched.stop(current)
    assert [found.execution_id for found in asyncio.run(backend.list())] == ["named"]


def test_c32_limits_of_a_graph_are_refused() -> None:
    @durable_agent(name="subject")
    def build() -> Any:
        return graph(("a", "b"))

    with pytest.raises(errors.UnsupportedFeatureError, match="limits"):
        asyncio.run(build.on(connect(dispatched.OFF)).dispatch_async("Go", limits={"turns": 1}))
