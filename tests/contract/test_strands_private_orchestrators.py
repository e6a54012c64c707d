"""Every private name of Graph, Swarm and agents as tools that the adapters in `_strands` touch is still what it was."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
from strands import Agent
from strands.agent._agent_as_tool import _AgentAsTool
from strands.interrupt import _InterruptState
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import NodeResult, Status
from strands.multiagent.graph import Graph

from strands_durable._strands import agents
from strands_durable._strands.graph import GraphAdapter
from strands_durable._strands.orchestrators import Visit, adapter_of
from strands_durable._strands.swarm import SwarmAdapter
from strands_durable.testing import ScriptedModel

warnings.filterwarnings("ignore", message="graph has no max_node_executions")


def agent(name: str) -> Agent:
    return Agent(model=ScriptedModel([name]), name=name, callback_handler=None)


@pytest.fixture
def graph() -> Graph:
    builder = GraphBuilder()
    for name in ("b", "a"):
        builder.add_node(agent(name), name)
    builder.add_edge("b", "a")
    return builder.build()


def result(status: Status = Status.COMPLETED) -> NodeResult:
    return NodeResult(result=RuntimeError("no"), status=status)


def test_a_graph_runs_its_batches_through_the_method_that_is_replaced(graph: Graph) -> None:
    assert list(inspect.signature(graph._execute_nodes_parallel).parameters) == ["nodes", "invocation_state"]
    batches = []
    original = graph._execute_nodes_parallel

    async def run(nodes: Any, invocation_state: Any) -> Any:
        batches.append([node.node_id for node in nodes])
        async for event in original(nodes, invocation_state):
            yield event

    graph._execute_nodes_parallel = run  # type: ignore[method-assign]
    graph("Go")
    assert batches == [["b"], ["a"]]


def test_a_graph_resumes_with_the_nodes_it_is_given(graph: Graph) -> None:
    adapter = adapter_of(graph)
    assert isinstance(adapter, GraphAdapter)
    adapter.restore("Go", [Visit("b", result(), True)], adapter.carried(), ["a"], "executing")
    found = graph("Go")
    assert found.status is Status.COMPLETED
    assert [node.node_id for node in found.execution_order] == ["b", "a"]
    assert graph.nodes["b"].executor.messages == []  # type: ignore[union-attr]


def test_a_graphs_edges_come_in_the_order_of_its_nodes(graph: Graph) -> None:
    GraphAdapter(graph).settle()
    assert [edge.from_node.node_id for edge in graph.edges] == ["b"]
    assert [node.node_id for node in graph.entry_points] == ["b"]
    assert graph.entry_points.copy() == graph.entry_points


def test_open_interrupts_are_recorded_without_conversations(graph: Graph) -> None:
    assert isinstance(graph._interrupt_state, _InterruptState)
    graph._interrupt_state.interrupts["i"] = agents.Interrupt(id="i", name="n")
    graph._interrupt_state.context["a"] = {"messages": [{"role": "user", "content": []}], "interrupt_ids": ["i"]}
    graph._interrupt_state.activate()
    found = GraphAdapter(graph).carried()["interrupts"]
    assert found["activated"]
    assert found["context"]["a"]["messages"] == []
    assert found["context"]["a"]["interrupt_ids"] == ["i"]


def test_a_swarm_resumes_with_the_node_it_is_given() -> None:
    swarm = Swarm([agent("a"), agent("b")])
    assert list(inspect.signature(swarm._execute_swarm).parameters) == ["invocation_state"]
    adapter = adapter_of(swarm)
    assert isinstance(adapter, SwarmAdapter)
    carried = {**adapter.carried(), "shared": {"a": {"k": 1}}, "message": "yours"}
    adapter.restore("Go", [Visit("a", result(), True)], carried, ["b"], "executing")
    found = swarm("Go")
    assert [node.node_id for node in found.node_history] == ["a", "b"]
    assert "Handoff Message: yours" in swarm.nodes["b"].executor.messages[0]["content"][0]["text"]
    assert swarm.shared_context.context == {"a": {"k": 1}}


def test_a_turn_of_a_swarm_can_be_put_back() -> None:
    swarm = Swarm([agent("a"), agent("b")])
    adapter = SwarmAdapter(swarm)
    adapter.take_turn({"handoff": "b", "message": "m", "shared": {}})
    assert adapter.turn() == {"handoff": "b", "message": "m", "shared": {}}


def test_the_agent_behind_a_tool_is_found() -> None:
    found = agent("a")
    behind = found.as_tool()
    assert isinstance(behind, _AgentAsTool)
    assert agents.agent_behind(behind) is found
    assert agents.agent_behind(object()) is None


def test_the_handoff_tool_is_known_by_its_name() -> None:
    swarm = Swarm([agent("a"), agent("b")])
    tools = swarm.nodes["a"].executor.tool_registry.registry
    assert [name for name, found in tools.items() if agents.is_handoff(found)] == ["handoff_to_agent"]


def test_orchestrators_go_through_their_hooks_by_the_method_that_is_replaced(graph: Graph) -> None:
    swarm = Swarm([agent("a"), agent("b")])
    for orchestrator in (graph, swarm):
        fired: list[str] = []
        original = orchestrator.hooks.invoke_callbacks_async

        async def invoke(event: Any, original: Any = original, fired: list[str] = fired) -> Any:
            fired.append(type(event).__name__)
            return await original(event)

        orchestrator.hooks.invoke_callbacks_async = invoke  # type: ignore[method-assign]
        orchestrator("Go")
        assert fired[0] == "BeforeMultiAgentInvocationEvent"
        assert fired[1:3] == ["BeforeNodeCallEvent", "AfterNodeCallEvent"]
        assert fired[-1] == "AfterMultiAgentInvocationEvent"
