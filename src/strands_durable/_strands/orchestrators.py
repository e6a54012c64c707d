"""Every contact with what Graph and Swarm keep to themselves, for strands-agents 1.62; see `agents` for agents.

Both are put where a recorded call stood by giving them the state they had there, not by running them from the start: hooks,
conditions and finished nodes are not gone through again. Their own `deserialize_state` is not used: it loses a cycle's
frontier, runs a finished graph again, and never forgets a failure.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from strands.multiagent.base import MultiAgentBase, NodeResult, Status
from strands.multiagent.graph import Graph, GraphEdge, GraphNode, GraphState
from strands.multiagent.swarm import Swarm, SwarmState

from .._records.calls import CallKind
from .agents import InterruptState

Events = AsyncGenerator[Any, None]
Carried = dict[str, Any]
"""What an orchestrator carries besides the results of its nodes, JSON-safe."""


@dataclass(frozen=True)
class Visit:
    """One finished visit of a node, with the result it had."""

    node_id: str
    result: NodeResult
    is_ordered: bool
    """False for a node that raised: it is not part of the order of execution."""


class _Adapter:
    """What graphs and swarms have in common."""

    me: Any

    def __init__(self, me: Any) -> None:
        self.me = me

    @property
    def name(self) -> str:
        """Its id; it has none yet when plugins are attached."""
        return str(self.me.id)

    def executors(self) -> dict[str, Any]:
        """Return what runs each node."""
        return {node_id: node.executor for node_id, node in self.me.nodes.items()}

    def forget_session(self) -> None:
        """Leave aside what a session manager of its own has put in place."""
        self.me._resume_from_session = False

    def base(self) -> Carried | None:
        """Return what a session manager of its own has put in place before the call, if it has."""
        return self.me.serialize_state() if self.me._resume_from_session or self.is_interrupted() else None

    def is_interrupted(self) -> bool:
        """Say whether it waits for answers."""
        return bool(self.me._interrupt_state.activated)

    def knows_interrupt(self, interrupt_id: str) -> bool:
        """Say whether it has raised this interrupt."""
        return interrupt_id in self.me._interrupt_state.interrupts

    def result_of(self, node_id: str) -> NodeResult | None:
        """Return the last result of a node in this run."""
        found: NodeResult | None = self.me.state.results.get(node_id)
        return found


class GraphAdapter(_Adapter):
    """A graph."""

    kind: CallKind = "graph"
    me: Graph

    def topology(self) -> dict[str, Any]:
        """Return what a change of would make another graph."""
        return {
            "nodes": {node_id: type(found).__name__ for node_id, found in self.executors().items()},
            "edges": sorted(
                f"{edge.from_node.node_id} -> {edge.to_node.node_id}{' if' if edge.condition else ''}"
                for edge in self.me.edges
            ),
            "entry points": sorted(node.node_id for node in self.me.entry_points),
        }

    def settle(self) -> None:
        """Have edges and entry points come in the order of the nodes, not in that of this process's hash seed."""
        order = {node_id: index for index, node_id in enumerate(self.me.nodes)}
        if not isinstance(self.me.edges, _Ordered):
            self.me.edges = _Ordered(self.me.edges, lambda edge: _edge_order(order, edge))
            self.me.entry_points = _Ordered(self.me.entry_points, lambda node: order.get(node.node_id, 0))

    def has_failed(self, node_id: str) -> bool:
        """Say whether a node failed in this run."""
        return any(node.node_id == node_id for node in self.me.state.failed_nodes)

    def waiting(self) -> set[str]:
        """Return the nodes that wait for a person."""
        return {node.node_id for node in self.me.state.interrupted_nodes}

    def carried(self) -> Carried:
        """Return what to record besides the results of nodes."""
        state = self.me.state
        return {
            "interrupts": _interrupts(self.me),
            "time": state.execution_time,
        }

    def turn(self) -> Carried | None:
        """Return what a node's turn has changed so far: nothing."""
        return None

    def restore(
        self,
        task: Any,
        visits: list[Visit],
        carried: Carried,
        ahead: list[str] | None,
        status: str,
        unfinished: set[str] | None = None,
    ) -> None:
        """Put the graph where it stood; ``ahead`` are the nodes to go on with, None if it has not begun or is over.

        What its session had put in place before the call has been put in place again.
        """
        graph, before = self.me, self.me.state if self.me._resume_from_session else GraphState()
        graph._interrupt_state = InterruptState.from_dict(carried["interrupts"])
        graph._resume_from_session = False
        if ahead is not None and not self.is_asked(carried):
            graph._interrupt_state = InterruptState()  # its batch was cut off before anybody heard the question
        state = graph.state = GraphState(
            status=Status(status),
            task=task,
            completed_nodes=set(before.completed_nodes),
            results=dict(before.results),
            execution_order=list(before.execution_order),
            total_nodes=len(graph.nodes),
            edges=[(edge.from_node, edge.to_node) for edge in graph.edges],
            entry_points=list(graph.entry_points),
            start_time=time.time(),
            accumulated_usage=before.accumulated_usage,
            accumulated_metrics=before.accumulated_metrics,
            execution_count=before.execution_count,
            execution_time=carried["time"],
        )
        for visit in visits:
            self._put_back(state, visit)
        if graph._interrupt_state.activated:
            self._wait_again(state, unfinished)
        elif ahead is not None:
            graph._resume_from_session = True
            graph._resume_next_nodes = [graph.nodes[node_id] for node_id in ahead]

    def is_asked(self, carried: Carried) -> bool:
        """Say whether a question of its nodes was heard, so that it waits for answers."""
        found = carried["interrupts"]
        return bool(found["activated"] and "completed_nodes" in found["context"])

    def _put_back(self, state: GraphState, visit: Visit) -> None:
        node = self.me.nodes.get(visit.node_id) or GraphNode(visit.node_id, None)  # type: ignore[arg-type]
        node.result, node.execution_time = visit.result, visit.result.execution_time
        node.execution_status = visit.result.status
        state.results[visit.node_id] = visit.result
        if visit.is_ordered:
            state.execution_order.append(node)
            self.me._accumulate_metrics(visit.result)
        if visit.result.status is Status.FAILED:
            state.failed_nodes.add(node)
        else:
            state.failed_nodes.discard(node)
            state.completed_nodes.add(node)

    def _wait_again(self, state: GraphState, unfinished: set[str] | None) -> None:
        """Have the nodes of the batch that asked run when there are answers, except for those that have run since."""
        context = self.me._interrupt_state.context
        for node_id, node in self.me.nodes.items():
            if node_id in context:
                state.interrupted_nodes.add(node)
                if unfinished is None or node_id in unfinished:
                    node.execution_status = Status.INTERRUPTED

    def over(self, status: str, interrupts: list[Any]) -> Any:
        """Return the result of a call that is over, or waits."""
        self.me.state.status = Status(status)
        return self.me._build_result(interrupts)

    def intercept(self, call_of: Callable[[], Any]) -> None:
        """Ask the durable call, if there is one, which nodes of a batch have yet to run."""
        graph, original = self.me, self.me._execute_nodes_parallel

        async def run_batch(nodes: list[GraphNode], invocation_state: dict[str, Any]) -> Events:
            call = call_of()
            if call is not None:
                order = list(graph.nodes)
                nodes = sorted(nodes, key=lambda node: order.index(node.node_id))
                ahead = call.batch_begins([node.node_id for node in nodes])
                nodes = [node for node in nodes if node.node_id in ahead]
            async for event in original(nodes, invocation_state):
                yield event
            if call is not None:
                call.check()

        graph._execute_nodes_parallel = run_batch  # type: ignore[method-assign]


class SwarmAdapter(_Adapter):
    """A swarm."""

    kind: CallKind = "swarm"
    me: Swarm

    def topology(self) -> dict[str, Any]:
        """Return what a change of would make another swarm."""
        entry = self.me.entry_point
        return {
            "nodes": {node_id: type(found).__name__ for node_id, found in self.executors().items()},
            "entry points": [] if entry is None else [str(entry.name)],
        }

    def settle(self) -> None:
        """A swarm has an order already."""

    def has_failed(self, node_id: str) -> bool:
        """Say whether a node failed in this run."""
        current = self.me.state.current_node
        return self.me.state.completion_status is Status.FAILED and current is not None and current.node_id == node_id

    def waiting(self) -> set[str]:
        """Return the nodes that wait for a person."""
        current = self.me.state.current_node
        is_waiting = self.me.state.completion_status is Status.INTERRUPTED and current is not None
        return {current.node_id} if is_waiting and current is not None else set()

    def carried(self) -> Carried:
        """Return what to record besides the results of nodes."""
        state, handoff = self.me.state, self.me.state.handoff_node
        return {
            "interrupts": _interrupts(self.me),
            "usage": state.accumulated_usage,
            "metrics": state.accumulated_metrics,
            "current": None if state.current_node is None else state.current_node.node_id,
            "handoff": None if handoff is None else handoff.node_id,
            "message": state.handoff_message,
            "shared": self.me.shared_context.context,
            "time": state.execution_time,
        }

    def turn(self) -> Carried | None:
        """Return what a node's turn has changed so far."""
        found = self.carried()
        return {key: found[key] for key in ("handoff", "message", "shared")}

    def take_turn(self, turn: Carried) -> None:
        """Put back what a node's turn had changed before it was cut off."""
        state = self.me.state
        state.handoff_node = None if turn["handoff"] is None else self.me.nodes[turn["handoff"]]
        state.handoff_message = turn["message"]
        self.me.shared_context.context = turn["shared"]

    def restore(
        self,
        task: Any,
        visits: list[Visit],
        carried: Carried,
        ahead: list[str] | None,
        status: str,
        unfinished: set[str] | None = None,
    ) -> None:
        """Put the swarm where it stood; ``ahead`` is the node to go on with, None if it has not begun or is over.

        What its session had put in place before the call has been put in place again.
        """
        swarm, before = self.me, self.me.state if self.me._resume_from_session else None
        swarm._resume_from_session = False
        swarm._interrupt_state = InterruptState.from_dict(carried["interrupts"])
        swarm.shared_context.context = carried["shared"]
        current = ahead[0] if ahead else carried["current"]
        is_turn = carried["handoff"] is not None and current == carried["current"]
        history = [
            swarm.nodes[visit.node_id]
            for visit in visits
            if visit.result.status is Status.COMPLETED and visit.node_id in swarm.nodes
        ]
        swarm.state = SwarmState(
            current_node=swarm.nodes.get(current),
            task=task,
            completion_status=Status(status),
            shared_context=swarm.shared_context,
            node_history=(before.node_history if before else []) + history,
            results={**(before.results if before else {}), **{visit.node_id: visit.result for visit in visits}},
            accumulated_usage=carried["usage"],
            accumulated_metrics=carried["metrics"],
            execution_time=carried["time"],
            handoff_node=swarm.nodes.get(carried["handoff"]) if is_turn else None,
            handoff_message=carried["message"],
        )
        if ahead is not None and not swarm._interrupt_state.activated:
            swarm._resume_from_session = True

    def is_asked(self, carried: Carried) -> bool:
        """Say whether it waits for answers."""
        return bool(carried["interrupts"]["activated"])

    def over(self, status: str, interrupts: list[Any]) -> Any:
        """Return the result of a call that is over, or waits."""
        self.me.state.completion_status = Status(status)
        return self.me._build_result(interrupts)

    def intercept(self, call_of: Callable[[], Any]) -> None:
        """Have a swarm whose last node had ended without a handoff do nothing but end."""
        swarm, original = self.me, self.me._execute_swarm

        async def execute(invocation_state: dict[str, Any]) -> Events:
            call = call_of()
            if call is not None and call.is_through:
                swarm.state.completion_status = Status.COMPLETED
                return
            async for event in original(invocation_state):
                yield event
            if call is not None:
                call.check()

        swarm._execute_swarm = execute  # type: ignore[method-assign]


OrchestratorAdapter = GraphAdapter | SwarmAdapter


def adapter_of(orchestrator: MultiAgentBase) -> OrchestratorAdapter | None:
    """Return the adapter of an orchestrator; None for one of a kind that we do not know."""
    if isinstance(orchestrator, Graph):
        return GraphAdapter(orchestrator)
    return SwarmAdapter(orchestrator) if isinstance(orchestrator, Swarm) else None


def _interrupts(orchestrator: Graph | Swarm) -> dict[str, Any]:
    """Return the open interrupts, without the conversations that Strands puts beside them: those are recorded already."""
    found = orchestrator._interrupt_state.to_dict()
    context = {
        key: {**value, "messages": [], "state": {}, "model_state": {}}
        if isinstance(value, dict) and "messages" in value
        else value
        for key, value in found["context"].items()
    }
    return {**found, "context": context}


class _Ordered(set[Any]):
    """A set that is gone through in an order of its own."""

    def __init__(self, items: Any, order: Callable[[Any], Any]) -> None:
        super().__init__(items)
        self._order = order

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=self._order))

    def copy(self) -> _Ordered:
        """Return a copy with the same order."""
        return _Ordered(super().__iter__(), self._order)


def _edge_order(order: dict[str, int], edge: GraphEdge) -> tuple[int, int]:
    return order.get(edge.from_node.node_id, 0), order.get(edge.to_node.node_id, 0)
