"""Who owns an execution: leases with fencing, and the heartbeat that keeps them.

A lease is a row with an owner, a fence that grows with every change of owner, and a beat that the owner changes three times per
lease. Every write checks the fence, so an owner that slept through its lease and was replaced can write nothing; one that slept
and was not replaced renews and continues. Which owner may be replaced is for `owner` to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .._records.logs import safe_logger
from .._records.step_gate import StepGate
from ..errors import (
    DurableError,
    ExecutionBusyError,
    ExecutionCancelledError,
    ExecutionNotFoundError,
    LeaseLostError,
)
from .owner import Beat
from .owner import Owner as Owner
from .running_tools import RunningTools, still_running
from .sqlite import ownership
from .sqlite.connection import Connection
from .sqlite.database import Store

logger = safe_logger(__name__)

_POLL_SECONDS = 0.05


class ExecutionReleasedError(DurableError):
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
        self.on_progress: Callable[[], None] | None = None
        """To be called with the first step that ends under this lease."""
        self.is_alone = False
        """True for a worker that runs nothing beside this execution, to see whether it is what kills workers."""
        self.waits = 0
        """How many of its steps wait for other executions, and do nothing themselves."""
        self.gate: StepGate | None = None
        """Who decides when a step may run, where a commit is not enough."""
        self.tools = RunningTools(store.path, execution_id)
        """The sync tools that run under it, each in a thread: it is kept until they have ended."""

    def check(self, connection: Connection) -> None:
        """Raise `LeaseLostError` if the execution has a new owner."""
        found = ownership.holder(connection, self.row_id)
        if found.fence != self.fence:
            raise LeaseLostError(self.execution_id, str(Owner.parse(found.owner)) if found.owner else "another process")
        if found.is_cancel_asked and not isinstance(self.halt, ExecutionCancelledError):
            self.halt = ExecutionCancelledError(self.execution_id)  # one and the same, by which the call knows it again

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stand aside while a step waits for another execution, which may need this very worker; so far nothing was killed."""
        cleared = self.on_progress
        if cleared is not None:
            with suppress(DurableError), self.store.transaction("lease.clear", self, lasting=False):
                cleared()
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    def drop(self) -> None:
        """Give the lease up, as part of a transaction that ends the work."""
        ownership.release(self.store.connection, self.row_id, self.fence, was_alone=self.is_alone)
        self.dropped = True


def look(store: Store, execution_id: str) -> Lease:
    """Return a lease that owns nothing: good for reading, refused by every write."""
    found = ownership.find(store, execution_id)
    if found is None:
        raise ExecutionNotFoundError(execution_id, str(store.path))
    row_id, run = found
    return Lease(store, row_id, execution_id, run, fence=-1, seconds=0)


async def acquire(store: Store, execution_id: str, seconds: float) -> Lease:
    """Become the owner of an execution, creating it if it is new; wait at most one lease for an owner that may be dead.

    And as long for a tool of an earlier call of this process that still runs in a thread: its result is part of what resumes.
    """
    first: Beat | None = None
    deadline = time.monotonic() + seconds + _POLL_SECONDS
    while running := still_running(store.path, execution_id):
        if time.monotonic() > deadline:
            tools = " and ".join(map(repr, running))
            why = f"has a call here that ended, but its tool {tools} still runs in a thread. Wait until it returns."
            raise ExecutionBusyError(execution_id, str(Owner.me()), why)
        await asyncio.sleep(_POLL_SECONDS)
    while True:
        found = ownership.beat_of(store, execution_id)
        if found is None or Owner.parse(found.owner) == Owner.me() or not store.liveness.is_alive(found):
            lease = _taken(store, execution_id, seconds, found)
            if lease is not None:
                return lease
            continue  # another one was quicker
        first = first or found
        if Owner.parse(found.owner).is_at_work() or found != first:
            raise ExecutionBusyError(execution_id, str(Owner.parse(found.owner)))
        await asyncio.sleep(_POLL_SECONDS)


def _taken(store: Store, execution_id: str, seconds: float, before: Beat | None) -> Lease | None:
    """Take the place of an owner, or of none; None if it is not as it was ``before``."""
    me = Owner.me().recorded()
    with store.transaction("lease", lasting=False) as connection:  # a power cut ends every owner, too
        known = ownership.recorded(connection, execution_id)
        if known is None:
            created = ownership.create_inline(connection, execution_id, me, seconds)
            return Lease(store, created, execution_id, 0, 1, seconds)
        run, found = known
        if found.owner is not None and found != before:
            return None
        if found.owner is not None:
            logger.info("execution_id=<%s>, owner=<%s> | owner is gone, taking over", execution_id, found.owner)
        ownership.take(connection, found.row_id, found.fence + 1, me, seconds)
        return Lease(store, found.row_id, execution_id, run, found.fence + 1, seconds)
