"""Who owns an execution: leases with fencing, and the heartbeat that keeps them.

A lease is a row with an owner, a fence that grows with every change of owner, and a time until which it holds. Every write
checks the fence, so an owner that slept through its lease and was replaced can write nothing; one that slept and was not
replaced renews and goes on. An owner on this machine whose process is gone is replaced at once.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._blobs import Connection
from ._records import ExecutionStatus
from ._store import Store
from ._turns import Turns
from .errors import (
    BackendUnavailableError,
    DurableError,
    ExecutionBusyError,
    ExecutionCancelledError,
    LeaseLostError,
    UnreadableError,
)

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_IDLE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process, named so that it cannot be confused with a later one of the same number."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: str

    @classmethod
    def me(cls) -> Owner:
        """Return this process."""
        return _owner(os.getpid())

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Return the owner whose recorded form is ``text``."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise UnreadableError(f"its owner is recorded as {text[:80]!r}, which names no process") from error

    def recorded(self) -> str:
        """Return the recorded form."""
        return json.dumps(vars(self), separators=(",", ":"))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_gone(self) -> bool:
        """Say whether this process surely no longer runs; False where nobody here can know."""
        return self._is_here() and _start_of(self.pid) != self.started

    def is_at_work(self) -> bool:
        """Say whether this process surely runs, so that a lease it did not renew does not make it dead."""
        return self._is_here() and _start_of(self.pid) == self.started and not _is_stopped(self.pid)

    def is_alive(self, lease_until: float) -> bool:
        """Say whether this process is to be taken for the owner of what it has leased until then."""
        return self.is_at_work() or (time.time() < lease_until and not self.is_gone())

    def _is_here(self) -> bool:
        me = Owner.me()
        return (self.host, self.boot_id, self.pid_namespace) == (me.host, me.boot_id, me.pid_namespace)


@functools.lru_cache(maxsize=4)
def _owner(pid: int) -> Owner:
    return Owner(
        host=socket.gethostname(),
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_link("/proc/self/ns/pid"),
        pid=pid,
        started=_start_of(pid) or "",
    )


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """Return when process ``pid`` started, in the kernel's own count; None if it is gone (a zombie is gone)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _answers(pid) else ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _is_stopped(pid: int) -> bool:
    """Say whether a process was stopped by a signal; where nobody here can know, say it was not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _answers(pid: int) -> bool:
    """Where there is no /proc (macOS), ask with signal 0."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
        self.on_progress: Callable[[sqlite3.Connection], None] | None = None
        """To be called with the first step that ends under this lease."""
        self.is_alone = False
        """True for a worker that runs nothing beside this execution, to see whether it is what kills workers."""
        self.waits = 0
        """How many of its steps wait for other executions, and do nothing themselves."""
        self.turns: Turns | None = None
        """Who decides when a step may run, where a commit is not enough."""

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise `LeaseLostError` if the execution has a new owner."""
        row = connection.execute(
            "SELECT fence, owner, cancel_asked_at FROM executions WHERE id = ?", (self.row_id,)
        ).fetchone()
        fence, owner, cancel_asked_at = row or (None, None, None)
        if fence != self.fence:
            raise LeaseLostError(self.execution_id, str(Owner.parse(owner)) if owner else "another process")
        if cancel_asked_at is not None and not isinstance(self.halt, ExecutionCancelledError):
            self.halt = ExecutionCancelledError(self.execution_id)  # one and the same, by which the call knows it again

    def renew(self, connection: sqlite3.Connection) -> None:
        """Push the end of the lease out, if it is still ours."""
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

    def drop(self, connection: sqlite3.Connection) -> None:
        """Give the lease up, as part of a transaction that ends the work."""
        connection.execute("UPDATE executions SET owner = NULL WHERE id = ? AND fence = ?", (self.row_id, self.fence))
        if self.is_alone:
            connection.execute("UPDATE dispatches SET is_alone = 0 WHERE execution = ?", (self.row_id,))
        self.dropped = True


def look(store: Store, execution_id: str) -> Lease:
    """Return a lease that owns nothing: good for reading, refused by every write."""
    row_id, run = store.read("SELECT id, run FROM executions WHERE execution_id = ?", execution_id)[0]
    return Lease(store, row_id, execution_id, run, fence=-1, seconds=0)


async def acquire(store: Store, execution_id: str, seconds: float) -> Lease:
    """Become the owner of an execution, creating it if it is new; wait at most one lease for an owner that may be dead."""
    deadline = time.monotonic() + seconds + _POLL_SECONDS
    first_beat: int | None = None
    while True:
        found = _try_acquire(store, execution_id, seconds)
        if isinstance(found, Lease):
            return found
        owner, beat = found
        first_beat = beat if first_beat is None else first_beat
        if owner.is_at_work() or beat != first_beat or time.monotonic() > deadline:
            raise ExecutionBusyError(execution_id, str(owner))
        await asyncio.sleep(_POLL_SECONDS)


def _try_acquire(store: Store, execution_id: str, seconds: float) -> Lease | tuple[Owner, int]:
    me, now = Owner.me(), time.time()
    with store.transaction("lease", lasting=False) as connection:  # a power cut ends every owner, too
        row = connection.execute(
            "SELECT id, run, fence, beat, owner, lease_until FROM executions WHERE execution_id = ?", (execution_id,)
        ).fetchone()
        if row is None:
            created: Any = connection.execute(
                "INSERT INTO executions (execution_id, kind, status, run, created_at, updated_at, fence, beat, owner,"
                " lease_until) VALUES (?, 'inline', ?, 0, ?, ?, 1, 0, ?, ?)",
                (execution_id, ExecutionStatus.PENDING.value, now, now, me.recorded(), now + seconds),
            ).lastrowid
            return Lease(store, created, execution_id, 0, 1, seconds)
        row_id, run, fence, beat, owner_text, lease_until = row
        if owner_text is not None:
            owner = Owner.parse(owner_text)
            if (
                owner.is_alive(lease_until) and owner != me
            ):  # a call of this very process has ended, or it could not be here
                return owner, beat
            logger.info("execution_id=<%s>, owner=<%s> | owner is gone, taking over", execution_id, owner)
        connection.execute(
            "UPDATE executions SET fence = ?, owner = ?, lease_until = ?, beat = beat + 1 WHERE id = ?",
            (fence + 1, me.recorded(), now + seconds, row_id),
        )
        return Lease(store, row_id, execution_id, run, fence + 1, seconds)


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

    def _renewed(self, connection: Connection | None, leases: list[Lease]) -> Connection | None:
        """Renew all leases in one transaction; a failure is told, and tried again at the next beat."""
        try:
            connection = connection or self._store.second_connection()
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
