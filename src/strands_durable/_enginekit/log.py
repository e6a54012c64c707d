"""The port of an engine: where the change sets of executions are kept, and an execution as they tell it.

Everything that is known of an execution is in its log. A writer says which position it has seen; if another one has appended
since, it is refused, and nothing of it counts. That is the only fence there is: of two workers that both believe to own an
execution one is refused, before its next step begins.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .._dispatch.queue import Queue
from .._journal.lease import look
from .._journal.sqlite.journal import Journal
from .._records.executions import ExecutionStatus
from .._records.views import ExecutionDetail
from ..errors import ExecutionNotFoundError
from .change_sets import ChangeSet
from .replica import Replica

Position = Any
"""How far a log goes: a value of the engine's own, JSON, which the kit only compares. None: there is nothing."""


class StaleError(Exception):
    """Another writer has appended since the position that was named."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A change set, and where the log stands with it."""

    position: Position
    changes: ChangeSet


class ExecutionLog(Protocol):
    """Where an engine keeps the change sets of executions, one list for each."""

    def read(self, execution_id: str, after: Position = None) -> AsyncIterator[Entry]:
        """Yield what was appended, in order; with ``after``, what came after that position. Nothing if there is no such id.

        What is yielded is never older than what any `append` has returned before.
        """

    async def append(self, execution_id: str, base: Position, changes: ChangeSet) -> Position:
        """Add a change set and return the new position, once it survives the loss of any process; None begins a log.

        Raises:
            StaleError: ``base`` is not the last position. Nothing was added.
        """

    async def compact(self, execution_id: str, upto: Position, whole: ChangeSet) -> None:
        """Replace everything up to a position by one change set that comes to the same; the position stays.

        Raises:
            StaleError: ``upto`` is not the last position.
        """


@dataclass(frozen=True, kw_only=True)
class Presence:
    """What an engine knows of an execution besides its log: who works on it, or why nobody does."""

    owner: str | None = None
    """Who works on it, for people."""
    note: str | None = None
    """Why workers have left it."""
    is_left: bool = False
    """Whether it waits for a worker, whatever the last one has recorded."""
    is_cancelling: bool = False
    """Whether its owner was asked to stop."""


class RecordedExecution:
    """An execution as its log tells it, up to a position."""

    def __init__(self, execution_id: str, replica: Replica, position: Position) -> None:
        self.execution_id, self.replica, self.position = execution_id, replica, position

    def advance(self, entries: Iterable[Entry]) -> None:
        """Take over what was appended since."""
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
        """Why the engine has ended it, where the execution has not failed itself."""
        return "its engine has ended it"

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return Queue(self.replica).only().agent

    def journal(self) -> Journal:
        """Return what is recorded."""
        return Journal(look(self.replica, self.execution_id))

    def detail(self, presence: Presence, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        detail = self.replica.detail(run)
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
    """Return an execution as its log tells it, or raise `ExecutionNotFoundError`."""
    entries = [entry async for entry in log.read(execution_id)]
    if not entries:
        raise ExecutionNotFoundError(execution_id, where)
    found = RecordedExecution(execution_id, Replica(f"{execution_id}:{uuid.uuid4().hex}", max_text), None)
    found.advance(entries)
    return found
