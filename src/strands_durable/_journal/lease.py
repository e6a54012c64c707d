"""Who owns an execution: leases with fencing, and the heartbeat that keeps them.

A lease is a row with an owner, a fence that grows with every change of owner, and a beat that the owner changes three times per
lease. Every write checks the fence, so an owner that slept through its lease and was replaced can write nothing; one that slept
and was not replaced renews and continues. Which owner may be replaced is for `owner` to say.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.step_gate import Turns
from ..errors import BackendUnavailableError, DurableError, ExecutionBusyError, ExecutionCancelledError, LeaseLostError
from .owner import BEAT, Beat
from .owner import Owner as Owner
from .running_tools import RunningTools, still_running
from .sqlite.connection import Connection
from .sqlite.database import Store

logger = safe_logger(__name__)

_POLL_SECONDS = 0.05
_IDLE_SECONDS = 5.0


class Released(DurableError):
    """This process stops, and leaves the execution to another; never seen by users."""

    def __str__(self) -> str:
        return "The execution was left to another worker."


class Lease:
    """The right to write to one execution, until somebody else has it."""

    def __init__(self, store: Store, row_id: int, execution_id: str, run: int, fence: int, seconds: float) -> None:
        self.store, self.row_id, self.execution_id, self.run = store, row_id, execution_id, run
        self.fence, self.seconds = fence, seconds
        self.dropped = False
        self.halt: DurableError | None = None
        """Why no step may start any more: somebody cancelled the execution, or its worker is to stop."""
        self.on_progress: Callable[[Connection], None] | None = None
        """To be called with the first step that ends under this lease."""
        self.is_alone = False
        """True for a worker that runs nothing beside this execution, to see whether it is what kills workers."""
        self.waits = 0
        """How many of its steps wait for other executions, and do nothing themselves."""
        self.turns: Turns | None = None
        """Who decides when a step may run, where a commit is not enough."""
        self.tools = RunningTools(store.path, execution_id)
        """The sync tools that run under it, each in a thread: it is kept until they have ended."""

    def check(self, connection: Connection) -> None:
        """Raise `LeaseLostError` if the execution has a new owner."""
        row = connection.execute(
            "SELECT fence, owner, cancel_asked_at FROM executions WHERE id = ?", (self.row_id,)
        ).fetchone()
        fence, owner, cancel_asked_at = row or (None, None, None)
        if fence != self.fence:
            raise LeaseLostError(self.execution_id, str(Owner.parse(owner)) if owner else "another process")
        if cancel_asked_at is not None and not isinstance(self.halt, ExecutionCancelledError):
            self.halt = ExecutionCancelledError(self.execution_id)  # one and the same, by which the call knows it again

    def renew(self, connection: Connection) -> None:
        """Show that the owner is alive, if it still is ours; until when it holds is written for people alone."""
        connection.execute(
            "UPDATE executions SET lease_until = ?, beat = beat + 1 WHERE id = ? AND fence = ?",
            (time.time() + self.seconds, self.row_id, self.fence),
        )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stand aside while a step waits for another execution, which may need this very worker; so far nothing was killed."""
        cleared = self.on_progress
        if cleared is not None:
            with suppress(DurableError), self.store.transaction("lease.clear", self, lasting=False) as connection:
                cleared(connection)
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    def drop(self, connection: Connection) -> None:
        """Give the lease up, as part of a transaction that ends the work."""
        connection.execute("UPDATE executions SET owner = NULL WHERE id = ? AND fence = ?", (self.row_id, self.fence))
        if self.is_alone:
            connection.update("dispatches", {"is_alone": 0}, "execution = ?", self.row_id)
        self.dropped = True


def look(store: Store, execution_id: str) -> Lease:
    """Return a lease that owns nothing: good for reading, refused by every write."""
    row_id, run = store.read("SELECT id, run FROM executions WHERE execution_id = ?", execution_id)[0]
    return Lease(store, row_id, execution_id, run, fence=-1, seconds=0)


async def acquire(store: Store, execution_id: str, seconds: float) -> Lease:
    """Become the owner of an execution, creating it if it is new; wait at most one lease for an owner that may be dead.

    And as long for a tool of an earlier call of this process that still runs in a thread: its result is part of what resumes.
    """
    first: Beat | None = None
    deadline = time.monotonic() + seconds + _POLL_SECONDS
    while running := still_running(store.path, execution_id):
        if time.monotonic() > deadline:
            why = f"A call of this process has ended, but its tool {' and '.join(map(repr, running))} still runs in a thread."
            raise ExecutionBusyError(execution_id, str(Owner.me()), why)
        await asyncio.sleep(_POLL_SECONDS)
    while True:
        found = _owner_of(store, execution_id)
        if found is None or Owner.parse(found.owner) == Owner.me() or not store.liveness.is_alive(found):
            lease = _taken(store, execution_id, seconds, found)
            if lease is not None:
                return lease
            continue  # another one was quicker
        first = first or found
        if Owner.parse(found.owner).is_at_work() or found != first:
            raise ExecutionBusyError(execution_id, str(Owner.parse(found.owner)))
        await asyncio.sleep(_POLL_SECONDS)


def _owner_of(store: Store, execution_id: str) -> Beat | None:
    rows = store.read(
        f"SELECT {BEAT} FROM executions WHERE execution_id = ? AND owner IS NOT NULL",
        execution_id,
    )
    return Beat(*rows[0]) if rows else None


def _taken(store: Store, execution_id: str, seconds: float, before: Beat | None) -> Lease | None:
    """Take the place of an owner, or of none; None if it is not as it was ``before``."""
    me, now = Owner.me(), time.time()
    with store.transaction("lease", lasting=False) as connection:  # a power cut ends every owner, too
        rows = connection.rows("executions", f"run, {BEAT}", "execution_id = ?", execution_id)
        if not rows:
            created = connection.insert(
                "executions", execution_id=execution_id, kind="inline", status=ExecutionStatus.PENDING.value, run=0,
                created_at=now, updated_at=now, fence=1, beat=0, owner=me.recorded(), lease_until=now + seconds,
                lease_seconds=seconds,
            )  # fmt: skip
            return Lease(store, created, execution_id, 0, 1, seconds)
        run, found = rows[0][0], Beat(*rows[0][1:])
        if found.owner is not None and found != before:
            return None
        if found.owner is not None:
            logger.info("execution_id=<%s>, owner=<%s> | owner is gone, taking over", execution_id, found.owner)
        connection.execute(
            "UPDATE executions SET fence = ?, owner = ?, lease_until = ?, lease_seconds = ?, beat = beat + 1 WHERE id = ?",
            (found.fence + 1, me.recorded(), now + seconds, seconds, found.row_id),
        )
        return Lease(store, found.row_id, execution_id, run, found.fence + 1, seconds)


class Heart:
    """One thread per store that renews the leases of the calls under way, on a connection of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[int, Lease] = {}
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def keep(self, lease: Lease) -> None:
        """Renew ``lease`` until it is let go."""
        with self._wake:
            self._leases[id(lease)] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="strands-durable-heart", daemon=True)
                self._thread.start()
            self._wake.notify()

    def let_go(self, lease: Lease) -> None:
        """Stop renewing ``lease``."""
        with self._wake:
            self._leases.pop(id(lease), None)

    def stop(self) -> None:
        """Stop renewing anything, and close the connection."""
        with self._wake:
            self._leases.clear()
            self._stopped = True
            self._wake.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=1.0)

    def _beat(self) -> None:
        connection: Connection | None = None
        due = time.monotonic() + _IDLE_SECONDS
        try:
            while True:
                with self._wake:
                    interval = min((lease.seconds / 3 for lease in self._leases.values()), default=_IDLE_SECONDS)
                    due = min(due, time.monotonic() + interval)
                    self._wake.wait(max(0.0, due - time.monotonic()))
                    if time.monotonic() < due and not self._stopped:
                        continue
                    leases = list(self._leases.values())
                    if not leases:
                        self._thread = None
                        return
                    due += interval
                connection = self._renewed(connection, leases)
        finally:
            if connection is not None:
                with connection.guard:
                    connection.close()

    def _connected(self) -> Connection:
        """A power cut ends every owner, too: a heartbeat needs no fsync, which would keep others from the write lock."""
        connection = self._store.second_connection()
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _renewed(self, connection: Connection | None, leases: list[Lease]) -> Connection | None:
        """Renew all leases in one transaction; a failure is told, and tried again at the next beat."""
        try:
            self._store.refuse_other()
            connection = connection or self._connected()
            with connection.guard:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    for lease in leases:
                        lease.renew(connection)
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except (sqlite3.Error, BackendUnavailableError) as error:
            logger.warning("leases=<%d>, error=<%s> | leases not renewed, trying again", len(leases), error)
        return connection
