"""Every contact with what a Graph keeps to itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from strands.multiagent.base import Status
from strands.multiagent.graph import Graph, GraphEdge, GraphNode, GraphState

from .._records.calls import CallKind
from .agents import InterruptState
from .orchestrators import Carried, Events, OrchestratorAdapter, Visit


class GraphAdapter(OrchestratorAdapter):
    """A graph."""

    kind: CallKind = "graph"
    is_sequential = False
    me: Graph

    def topology(self) -> dict[str, Any]:
        """Return the parts that identify this graph; a difference is drift."""
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
        """Return True if a node failed in this run."""
        return any(node.node_id == node_id for node in self.me.state.failed_nodes)

    def waiting(self) -> set[str]:
        """Return the nodes that wait for a person."""
        return {node.node_id for node in self.me.state.interrupted_nodes}

    def carried(self) -> Carried:
        """Return what to record besides the results of nodes."""
        state = self.me.state
        return {
            "interrupts": self._interrupts(),
            "time": state.execution_time,
        }

    def current(self) -> str | None:
        """Nodes run together: it comes to none."""
        return None

    def turn(self) -> Carried | None:
        """A node changes nothing before it ends."""
        return None

    def take_turn(self, turn: Carried) -> None:
        """A node changes nothing before it ends."""

    def ahead(self, batch: list[str], unfinished: set[str], failed: list[str], carried: Carried) -> list[str]:
        """Return the nodes to resume with; what failed is retried alone, unless its batch is not over."""
        kept = batch if unfinished or not failed else []
        return kept + [name for name in failed if name not in kept]

    def restore(
        self,
        task: Any,
        visits: list[Visit],
        carried: Carried,
        ahead: list[str] | None,
        status: str,
        unfinished: set[str] | None = None,
    ) -> None:
        """Restore the graph; ``ahead`` are the nodes to resume with, None if it has not begun or is over.

        What its session had restored before the call has been restored again.
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
        """Return True if it has taken up a question of its nodes, and waits for answers."""
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
                call.batch_ends()

        graph._execute_nodes_parallel = run_batch  # type: ignore[method-assign]


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
