"""A recorded execution, as plain frozen data, and the statuses that it can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .origins import ImportOrigin, Origin

ACCEPTED = "accepted_drift"
"""A key of a dispatch's input: who accepted another version of the agent, when, and which version has resumed the run."""
TRACE = "trace"
"""A key of a dispatch's input: the W3C trace context of the process that dispatched it. Its runs hang under that trace."""
NO_AGENT, OTHER_VERSION = "no agent ", " was dispatched as "
"""In a note: the worker that did not claim the execution has no such agent, or another version of it."""
NO_TRIAL = "the process that tries suspected executions alone"
"""In a note: the execution may have killed its last worker, and this process, in which it would be tried, cannot start."""


class ExecutionStatus(str, Enum):
    """The public status of an execution or of one of its calls."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class TokenUsage:
    """The tokens that the model calls of an execution used, as their providers count them."""

    input: int
    output: int
    total: int


@dataclass(frozen=True, kw_only=True)
class StatusCount:
    """How many executions have a status."""

    count: int
    oldest_at: float | None
    """When the one changed that has not changed for the longest time, in seconds since the epoch; None if there is none."""


@dataclass(frozen=True, kw_only=True)
class ExecutionRecord:
    """One durable run, as `ls` shows it."""

    execution_id: str
    kind: str
    status: ExecutionStatus
    run: int
    calls: int
    steps: int
    """How many steps of the current run have ended: the ordinal of the last one, unless the id was started over."""
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
    tags: Mapping[str, str] = field(default_factory=dict)
    """What was passed as ``tags`` when it was first dispatched or run."""
    tokens: TokenUsage | None = None
    """Summed over the model calls of the current run, also those inside other agents; None if unknown."""
    is_held: bool = False
    """Neither retention nor `rm` removes it."""
    contents_removed_at: float | None = None
    """When retention removed its input, result, messages and state, in seconds since the epoch; None if it did not."""
    duration_seconds: float | None = None
    """Summed over the root calls of the current run: from the start of each to its end, or to its last change so far, without
    the time that they waited for a person. None before the first has begun."""
    waited_seconds: float = 0.0
    """How long it has waited for the answers that it got in the current run, from each question to its answer."""
    tool_errors: int = 0
    """How many tool calls of the current run ended in an error; one that a retry made good is not counted."""
    origin: Origin | None = None
    """What it was forked from; None if it is no fork, or if the engine's list does not say."""
    imported: ImportOrigin | None = None
    """How it was imported; None if it began where it is, or if the engine's list does not say."""

    def waited_until(self, now: float) -> float:
        """Return how long it has waited for people, with the questions that are open at ``now``, in seconds since the epoch."""
        is_open = self.status is ExecutionStatus.SUSPENDED
        return self.waited_seconds + (max(0.0, now - self.updated_at) if is_open else 0.0)

    @property
    def cursor(self) -> str:
        """Its place in the list: ``list(before=record.cursor)`` returns what follows."""
        return f"{self.updated_at!r}@{self.execution_id}"
