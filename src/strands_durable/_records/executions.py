"""A recorded execution, as plain frozen data, and the statuses that it can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ACCEPTED = "accepted_drift"
"""A key of a dispatch's input: who accepted another version of the agent, when, and which version has resumed the run."""
NO_AGENT, OTHER_VERSION = "no agent ", " was dispatched as "
"""In a note: the worker that did not claim the execution has no such agent, or another version of it."""


class ExecutionStatus(str, Enum):
    """The public status of an execution or of one of its calls."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class ExecutionRecord:
    """One durable run, as `ls` shows it."""

    execution_id: str
    kind: str
    status: ExecutionStatus
    run: int
    calls: int
    steps: int
    owner: str | None
    created_at: float
    updated_at: float
    agent: str | None = None
    """The name of a dispatched agent, or the id of an inline one."""
    note: str | None = None
    """Why a dispatched execution waits, if a worker did not run it."""
    is_cancelling: bool = False
    """A cancel was requested, and the owner has not stopped yet."""
    unreadable: str | None = None
    """Why it cannot be read, if so: no worker runs it, and `rm` removes it. The other fields hold what could be read."""
