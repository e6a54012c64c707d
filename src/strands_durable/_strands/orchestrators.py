"""Every contact with what orchestrators keep to themselves, for strands-agents 1.62: what `graph` and `swarm` have in common.

Both are put where a recorded call stood by giving them the state they had there, not by running them from the start: hooks,
conditions and finished nodes are not gone through again. Their own `deserialize_state` is not used: it loses a cycle's
frontier, runs a finished graph again, and never forgets a failure. See `agents` for agents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from strands.multiagent.base import MultiAgentBase, NodeResult
from strands.multiagent.graph import Graph
from strands.multiagent.swarm import Swarm

from .._records.calls import CallKind

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


class OrchestratorAdapter(ABC):
    """One orchestrator, as far as durable calls of it are concerned."""

    kind: CallKind
    is_sequential: bool
    """Whether its nodes run one by one; else `intercept` reports to the call which nodes run together."""
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
        """Return True if it waits for answers."""
        return bool(self.me._interrupt_state.activated)

    def knows_interrupt(self, interrupt_id: str) -> bool:
        """Return True if it has raised this interrupt."""
        return interrupt_id in self.me._interrupt_state.interrupts

    def result_of(self, node_id: str) -> NodeResult | None:
        """Return the last result of a node in this run."""
        found: NodeResult | None = self.me.state.results.get(node_id)
        return found

    @abstractmethod
    def settle(self) -> None:
        """Have its parts come in an order that does not depend on this process."""

    @abstractmethod
    def topology(self) -> dict[str, Any]:
        """Return the parts that identify the orchestrator; a difference is drift."""

    @abstractmethod
    def has_failed(self, node_id: str) -> bool:
        """Return True if a node failed in this run."""

    @abstractmethod
    def waiting(self) -> set[str]:
        """Return the nodes that wait for a person."""

    @abstractmethod
    def current(self) -> str | None:
        """Return the node that it has come to, if it comes to one at a time."""

    @abstractmethod
    def carried(self) -> Carried:
        """Return what to record besides the results of nodes."""

    @abstractmethod
    def turn(self) -> Carried | None:
        """Return what the node that runs has changed of it so far; None if a node changes nothing before it ends."""

    @abstractmethod
    def take_turn(self, turn: Carried) -> None:
        """Put back what a node had changed before it was cut off."""

    @abstractmethod
    def ahead(self, batch: list[str], unfinished: set[str], failed: list[str], carried: Carried) -> list[str]:
        """Return the nodes to resume with: of the running batch, what follows it, and what failed if that is retried."""

    @abstractmethod
    def restore(
        self,
        task: Any,
        visits: list[Visit],
        carried: Carried,
        ahead: list[str] | None,
        status: str,
        unfinished: set[str] | None = None,
    ) -> None:
        """Put it where it stood; ``ahead`` are the nodes to resume with, None if it has not begun or is over.

        What its session had put in place before the call has been put in place again.
        """

    @abstractmethod
    def is_asked(self, carried: Carried) -> bool:
        """Return True if it has taken up a question of its nodes, and waits for answers."""

    @abstractmethod
    def over(self, status: str, interrupts: list[Any]) -> Any:
        """Return the result of a call that is over, or waits."""

    @abstractmethod
    def intercept(self, call_of: Callable[[], Any]) -> None:
        """Have it ask the durable call, if there is one, what is left to run."""

    def _interrupts(self) -> dict[str, Any]:
        """Return the open interrupts, without the conversations that Strands puts beside them: those are recorded already."""
        found: dict[str, Any] = self.me._interrupt_state.to_dict()
        context = {
            key: {**value, "messages": [], "state": {}, "model_state": {}}
            if isinstance(value, dict) and "messages" in value
            else value
            for key, value in found["context"].items()
        }
        return {**found, "context": context}


def adapter_of(orchestrator: MultiAgentBase) -> OrchestratorAdapter | None:
    """Return the adapter of an orchestrator; None for one of a kind that we do not know."""
    if isinstance(orchestrator, Graph):
        from .graph import GraphAdapter  # both are made of what is defined here

        return GraphAdapter(orchestrator)
    if isinstance(orchestrator, Swarm):
        from .swarm import SwarmAdapter

        return SwarmAdapter(orchestrator)
    return None
