"""The phases of a call, and every legal move between them, as one table.

A call is one invocation of an agent inside an execution. Its phase is internal; its status (see `executions`) is what users
see. An illegal move is a bug in this package, never the user's fault, and raises at once.
"""

from __future__ import annotations

from typing import Literal

from ..errors import DurableError
from .executions import ExecutionStatus

Phase = Literal["ready", "model", "tools", "nodes", "waiting", "done", "failed", "cancelled"]

MOVES: dict[Phase, frozenset[Phase]] = {
    # Begun, no model call yet. A hook may deny the call (done), and a pre-filled toolUse tail starts with tools.
    "ready": frozenset({"model", "tools", "nodes", "waiting", "done", "failed", "cancelled"}),
    # A model call is running or answered. Retries and the next turn stay in this phase.
    "model": frozenset({"model", "tools", "waiting", "done", "failed", "cancelled"}),
    # The tools of one answer are running.
    "tools": frozenset({"model", "tools", "waiting", "done", "failed", "cancelled"}),
    # Nodes of a Graph or Swarm are running.
    "nodes": frozenset({"nodes", "waiting", "done", "failed", "cancelled"}),
    # A person has to answer. An answer leads back to the phase that asked.
    "waiting": frozenset({"ready", "model", "tools", "nodes", "waiting", "done", "failed", "cancelled"}),
    # A retry leads back to the phase of the head; the failure stays on record.
    "failed": frozenset({"ready", "model", "tools", "nodes", "waiting", "done", "failed", "cancelled"}),
    "done": frozenset(),
    "cancelled": frozenset(),
}

STATUS: dict[Phase, ExecutionStatus] = {
    "ready": ExecutionStatus.RUNNING,
    "model": ExecutionStatus.RUNNING,
    "tools": ExecutionStatus.RUNNING,
    "nodes": ExecutionStatus.RUNNING,
    "waiting": ExecutionStatus.SUSPENDED,
    "done": ExecutionStatus.COMPLETED,
    "failed": ExecutionStatus.FAILED,
    "cancelled": ExecutionStatus.CANCELLED,
}


class PhaseError(DurableError):
    """A call was asked to make a move that the table does not have: a bug in this package."""

    def __init__(self, execution_id: str, phase: str, to: str) -> None:
        super().__init__(execution_id, phase, to)
        self.execution_id, self.phase, self.to = execution_id, phase, to

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r}: a call in phase {self.phase!r} cannot move to {self.to!r}. "
            f"This is a defect of strands-durable; nothing was written. Please report it."
        )


def move(execution_id: str, phase: Phase, to: Phase) -> Phase:
    """Return ``to`` if the table allows it."""
    if to not in MOVES[phase]:
        raise PhaseError(execution_id, phase, to)
    return to
