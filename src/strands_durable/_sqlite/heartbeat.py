"""The heartbeats of this process: one thread per store renews its leases, on a connection of its own."""

from __future__ import annotations

import sqlite3
import threading
import time

from .._records.logs import safe_logger
from ..errors import BackendUnavailableError
from . import ownership
from .connection import Connection
from .database import Store
from .lease import Lease

logger = safe_logger(__name__)

_IDLE_SECONDS = 5.0


class LeaseRenewer:
    """One thread per store that renews the leases of running calls, on its own connection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[int, Lease] = {}
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due = 0.0
        """When the thread wakes up by itself."""
        self._stopped = False

    def add(self, lease: Lease) -> None:
        """Renew ``lease`` until it is let go."""
        with self._wake:
            self._leases[id(lease)] = lease
            if self._thread is None:
                self._due = time.monotonic() + _IDLE_SECONDS
                self._thread = threading.Thread(target=self._beat, name="strands-durable-heart", daemon=True)
                self._thread.start()
            elif self._due > time.monotonic() + lease.seconds / 3:  # else it wakes up early enough
                self._wake.notify()

    def remove(self, lease: Lease) -> None:
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
        try:
            while True:
                with self._wake:
                    interval = min((lease.seconds / 3 for lease in self._leases.values()), default=_IDLE_SECONDS)
                    self._due = min(self._due, time.monotonic() + interval)
                    self._wake.wait(max(0.0, self._due - time.monotonic()))
                    if time.monotonic() < self._due and not self._stopped:
                        continue
                    leases = list(self._leases.values())
                    if not leases:
                        self._thread = None
                        return
                    self._due += interval
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
        """Renew all leases in one transaction; a failure is logged, and retried with the next heartbeat."""
        try:
            self._store.refuse_other()
            connection = connection or self._connected()
            with connection.guard:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    for lease in leases:
                        ownership.renew(connection, lease.row_id, lease.fence, lease.seconds)
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except (sqlite3.Error, BackendUnavailableError) as error:
            logger.warning("leases=<%d>, error=<%s> | leases not renewed, trying again", len(leases), error)
        return connection
