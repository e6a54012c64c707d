"""The port of an engine: where the change sets of executions are kept, and an execution as its log records it.

The log holds everything that is known about an execution. A writer names the last position it has read; if another writer has
appended since, the append is refused and has no effect. This is the only fence: if two workers both believe that they own an
execution, one of them is refused before its next step starts.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .._dispatch.queue import Queue
from .._records.change_sets import ChangeSet
from .._records.executions import ExecutionStatus
from .._records.views import ExecutionDetail
from .._sqlite.journal import Journal
from .._sqlite.lease import look
from ..errors import ExecutionNotFoundError
from .replica import Replica

Position = Any
"""The end of a log: a JSON value that the engine defines and the kit only compares. None: the log does not exist."""


class StaleError(Exception):
    """Another writer has appended since the position that was named."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A change set, and the position of the log after it."""

    position: Position
    changes: ChangeSet


class ExecutionLog(Protocol):
    """Stores the change sets of executions, one list for each."""

    def read(self, execution_id: str, after: Position = None) -> AsyncIterator[Entry]:
        """Yield the entries of a log in order, with ``after`` only those after that position; nothing if the id is unknown.

        Reads are consistent: they include every `append` that has returned before.
        """

    async def append(self, execution_id: str, base: Position, changes: ChangeSet) -> Position:
        """Append a change set and return the new position once it is durable; a ``base`` of None creates the log.

        Raises:
            StaleError: ``base`` is not the last position. Nothing was added.
        """

    async def compact(self, execution_id: str, upto: Position, whole: ChangeSet) -> None:
        """Replace everything up to a position with one equivalent change set; the position does not change.

        Raises:
            StaleError: ``upto`` is not the last position.
        """


@dataclass(frozen=True, kw_only=True)
class Presence:
    """What an engine knows of an execution besides its log: its owner, or why it has none."""

    owner: str | None = None
    """The worker that runs it, in readable form."""
    is_alive: bool = False
    """Whether the owner that the log records runs, which only the engine can know."""
    note: str | None = None
    """Why workers have not claimed it."""
    is_left: bool = False
    """Whether it waits for a worker, regardless of what the last one recorded."""
    is_cancelling: bool = False
    """Whether its owner was asked to stop."""


class RecordedExecution:
    """An execution as its log records it, up to a position."""

    def __init__(self, execution_id: str, replica: Replica, position: Position) -> None:
        self.execution_id, self.replica, self.position = execution_id, replica, position

    def advance(self, entries: Iterable[Entry]) -> None:
        """Apply entries that were appended since."""
        new = list(entries)
        if new:
            self.replica.apply(*(entry.changes for entry in new))
            self.position = new[-1].position

    @property
    def status(self) -> ExecutionStatus:
        """What the execution is doing."""
        return self.journal().status()

    @property
    def failure(self) -> str:
        """Why the engine has ended it, if the execution itself has not failed."""
        return "its engine has ended it"

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return Queue(self.replica).only().agent

    def entries(self) -> list[ChangeSet]:
        """Return its change sets one by one, if it was not read from an `ExecutionLog`, which has them."""
        raise NotImplementedError

    def journal(self) -> Journal:
        """Return what is recorded."""
        return look(self.replica, self.execution_id).journal()

    def close(self, status: ExecutionStatus, engine: str) -> None:
        """Record in the replica how the engine has ended the execution, if the execution itself has not."""
        journal = self.journal()
        if journal.status() is status:
            return
        with self.replica.transaction("engine.closed"):
            if status is ExecutionStatus.CANCELLED:
                journal.cancel()
            record = journal.call_at(0) if status is ExecutionStatus.FAILED else None
            if record is not None:
                journal.insert_failure(record.call_id, record.attempt, {"type": engine, "text": self.failure})
                journal.end_call(record, ExecutionStatus.FAILED)

    def detail(self, presence: Presence, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        detail = self.replica.detail(run, is_alive=presence.is_alive)
        found = detail.execution
        known = replace(
            found,
            owner=presence.owner or found.owner,
            note=presence.note or found.note,
            is_cancelling=presence.is_cancelling,
        )
        return replace(detail, execution=known)


async def read(
    log: ExecutionLog, execution_id: str, where: str = "this engine", max_text: int | None = None
) -> RecordedExecution:
    """Return an execution as its log records it, or raise `ExecutionNotFoundError`."""
    entries = [entry async for entry in log.read(execution_id)]
    if not entries:
        raise ExecutionNotFoundError(execution_id, where)
    found = RecordedExecution(execution_id, Replica(f"{execution_id}:{uuid.uuid4().hex}", max_text), None)
    found.advance(entries)
    return found
