"""Every contact with what a Swarm keeps to itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strands.multiagent.base import Status
from strands.multiagent.swarm import Swarm, SwarmState

from .._records.calls import CallKind
from .agents import InterruptState
from .orchestrators import Carried, Events, OrchestratorAdapter, Visit


class SwarmAdapter(OrchestratorAdapter):
    """A swarm."""

    kind: CallKind = "swarm"
    is_sequential = True
    me: Swarm

    def topology(self) -> dict[str, Any]:
        """Return the parts that identify this swarm; a difference is drift."""
        entry = self.me.entry_point
        return {
            "nodes": {node_id: type(found).__name__ for node_id, found in self.executors().items()},
            "entry points": [] if entry is None else [str(entry.name)],
        }

    def settle(self) -> None:
        """A swarm has an order already."""

    def has_failed(self, node_id: str) -> bool:
        """Return True if a node failed in this run."""
        current = self.me.state.current_node
        return self.me.state.completion_status is Status.FAILED and current is not None and current.node_id == node_id

    def waiting(self) -> set[str]:
        """Return the nodes that wait for a person."""
        current = self.me.state.current_node
        is_waiting = self.me.state.completion_status is Status.INTERRUPTED and current is not None
        return {current.node_id} if is_waiting and current is not None else set()

    def current(self) -> str | None:
        """Return the node that it has come to."""
        found = self.me.state.current_node
        return None if found is None else found.node_id

    def carried(self) -> Carried:
        """Return what to record besides the results of nodes."""
        state, handoff = self.me.state, self.me.state.handoff_node
        return {
            "interrupts": self._interrupts(),
            "usage": state.accumulated_usage,
            "metrics": state.accumulated_metrics,
            "current": self.current(),
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

    def ahead(self, batch: list[str], unfinished: set[str], failed: list[str], carried: Carried) -> list[str]:
        """Return the node to resume with: the one that had not ended, or the one that it had handed off to."""
        return batch if unfinished or carried["handoff"] is None else [carried["handoff"]]

    def restore(
        self,
        task: Any,
        visits: list[Visit],
        carried: Carried,
        ahead: list[str] | None,
        status: str,
        unfinished: set[str] | None = None,
    ) -> None:
        """Restore the swarm; ``ahead`` is the node to resume with, None if it has not begun or is over.

        What its session had restored before the call has been restored again.
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
        """Return True if it waits for answers."""
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
