"""A recorded execution, as plain frozen data, and what an execution may be doing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ACCEPTED = "accepted_drift"
"""Among what a dispatched execution was given: who accepted another version of its agent, when, and which one took it up."""
NO_AGENT, OTHER_VERSION = "no agent ", " was dispatched as "
"""In a note: the worker that left the execution has no such agent, or another version of it."""


class ExecutionStatus(str, Enum):
    """What an execution or one of its calls is doing, as anybody may see it."""

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
    """The name of a dispatched agent; of an inline one the id."""
    note: str | None = None
    """Why a dispatched execution waits, if a worker has left it."""
    is_cancelling: bool = False
    """Somebody has asked to cancel it, and its owner has not stopped yet."""
    unreadable: str | None = None
    """Why it cannot be read, if it cannot: no worker runs it, and `rm` removes it. The other fields tell what could be read."""
