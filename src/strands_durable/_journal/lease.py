"""Who owns an execution: leases with fencing, and the heartbeat that keeps them.

A lease is a row with an owner, a fence that grows with every change of owner, and a beat that the owner changes three times per
lease. Every write checks the fence, so an owner that slept through its lease and was replaced can write nothing; one that slept
and was not replaced renews and continues. Which owner may be replaced is for `owner` to say.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from .._records.logs import safe_logger
from ..errors import DurableError, ExecutionBusyError, ExecutionNotFoundError, LeaseLostError
from .owner import Beat
from .owner import Owner as Owner
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
    """The right to write to one execution, until another owner has it."""

    def __init__(self, store: Store, row_id: int, execution_id: str, run: int, fence: int, seconds: float) -> None:
        self.store, self.row_id, self.execution_id, self.run = store, row_id, execution_id, run
        self.fence, self.seconds = fence, seconds
        self.dropped = False

    def check(self, connection: Connection) -> bool:
        """Raise `LeaseLostError` if the execution has a new owner; return whether it is to be cancelled."""
        found = ownership.holder(connection, self.row_id)
        if found.fence != self.fence:
            raise LeaseLostError(self.execution_id, str(Owner.parse(found.owner)) if found.owner else "another process")
        return found.is_cancel_asked

    def drop(self) -> None:
        """Give the lease up, as part of a transaction that ends the work."""
        ownership.release(self.store.connection, self.row_id, self.fence)
        self.dropped = True


class Observer(Protocol):
    """Acts on what a writer meets in the journal."""

    def cancel_requested(self) -> None:
        """The execution is to be cancelled."""

    def step_ended(self) -> None:
        """A step ends in the transaction that is open."""


def look(store: Store, execution_id: str) -> Lease:
    """Return a lease that owns nothing: good for reading, refused by every write."""
    found = ownership.find(store, execution_id)
    if found is None:
        raise ExecutionNotFoundError(execution_id, str(store.path))
    row_id, run = found
    return Lease(store, row_id, execution_id, run, fence=-1, seconds=0)


async def acquire(store: Store, execution_id: str, seconds: float) -> Lease:
    """Become the owner of an execution, creating it if it is new; wait at most one lease for an owner that may be dead."""
    first: Beat | None = None
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
