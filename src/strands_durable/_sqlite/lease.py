"""Who owns an execution: leases with fencing, and the heartbeat that keeps them.

A lease is a row with an owner, a fence that grows with every change of owner, and a beat that the owner changes three times per
lease. Every write checks the fence, so an owner that slept through its lease and was replaced can write nothing; one that slept
and was not replaced renews and continues. Which owner may be replaced is for `owner` to say.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress

from .._journal.owner import Beat, Owner
from .._journal.port import Observer
from .._records.counters import count
from .._records.logs import safe_logger
from ..errors import ExecutionBusyError, ExecutionNotFoundError, LeaseLostError
from . import ownership
from .connection import Connection
from .database import Store
from .journal import Journal

logger = safe_logger(__name__)

_POLL_SECONDS = 0.05


class Lease:
    """The right to write to one execution, until another owner has it."""

    def __init__(self, store: Store, row_id: int, execution_id: str, run: int, fence: int, seconds: float) -> None:
        self.store, self.row_id, self.execution_id, self.run = store, row_id, execution_id, run
        self.fence, self.seconds = fence, seconds
        self.dropped = False

    def check(self, connection: Connection) -> bool:
        """Raise `LeaseLostError` if the execution has a new owner; return whether it is to be cancelled."""
        fence, owner, is_cancel_asked = ownership.holder(connection, self.row_id)
        if fence != self.fence:
            raise LeaseLostError(self.execution_id, str(Owner.parse(owner)) if owner else "another process")
        return bool(is_cancel_asked)

    def follows(self, other: Lease) -> bool:
        """Return True if this lease is the next one after ``other``: the execution had no owner between."""
        mine = (self.store.hash_key, self.row_id, self.fence)
        return mine == (other.store.hash_key, other.row_id, other.fence + 1)

    def journal(self, observer: Observer | None = None) -> Journal:
        """Return the journal of the execution, for writing under this lease."""
        return Journal(self, observer)

    def drop(self) -> None:
        """Give the lease up, as part of a transaction that ends the work."""
        ownership.release(self.store.connection, self.row_id, self.fence)
        self.dropped = True

    def abandon(self) -> None:
        """Give the lease up if this process lacks the key that others write with by now: they would wait for its end."""
        if self.store.connection.seal is None:
            return  # it is in memory, and its engine decides who owns it
        with suppress(sqlite3.Error), closing(self.store.second_connection()) as connection:
            ownership.abandon(connection, self.row_id, self.fence)
            self.dropped = True


def look(store: Store, execution_id: str) -> Lease:
    """Return a lease that owns nothing: good for reading, refused by every write."""
    found = ownership.find(store, execution_id)
    if found is None:
        raise ExecutionNotFoundError(execution_id, str(store.path))
    row_id, run = found
    return Lease(store, row_id, execution_id, run, fence=-1, seconds=0)


async def acquire(store: Store, execution_id: str, seconds: float, tags: Mapping[str, str] | None = None) -> Lease:
    """Become the owner of an execution; wait at most one lease for an owner that may be dead. A new one gets the tags."""
    first: Beat | None = None
    while True:
        found = ownership.beat_of(store, execution_id)
        if found is None or Owner.parse(found.owner) == Owner.me() or not store.liveness.is_alive(found):
            lease = _taken(store, execution_id, seconds, found, tags or {})
            if lease is not None:
                return lease
            continue  # another one was quicker
        first = first or found
        if Owner.parse(found.owner).is_at_work() or found != first:
            raise ExecutionBusyError(execution_id, str(Owner.parse(found.owner)))
        await asyncio.sleep(_POLL_SECONDS)


def _taken(
    store: Store, execution_id: str, seconds: float, before: Beat | None, tags: Mapping[str, str]
) -> Lease | None:
    """Take the place of an owner, or of none; None if it is not as it was ``before``."""
    me = Owner.me().recorded()
    with store.transaction("lease", lasting=False) as connection:  # a power cut ends every owner, too
        known = ownership.recorded(connection, execution_id)
        if known is None:
            created = ownership.create_inline(connection, execution_id, me, seconds)
            ownership.add_tags(connection, created, tags)
            return Lease(store, created, execution_id, 0, 1, seconds)
        run, found = known
        if found.owner is not None and found != before:
            return None
        if found.owner is not None:
            count("takeovers")
            logger.info("execution_id=<%s>, owner=<%s> | owner is gone, taking over", execution_id, found.owner)
        ownership.take(connection, found.row_id, found.fence + 1, me, seconds)
        return Lease(store, found.row_id, execution_id, run, found.fence + 1, seconds)
