"""SQLite across a fork: a child must not keep what its parent had open. Knows no Strands.

SQLite remembers its locks once for each file and process. A child inherits that memory, but no lock: a file that it opens then
is held to be locked already, and a parent that ends believes itself the last, and deletes the WAL that its child still
writes to. So every connection comes to rest before a fork, and the child closes its copies before it opens the file itself.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from contextlib import suppress

from .connection import Connection

REST_SECONDS = 5.0
"""How long a fork waits for a transaction in another thread; what does not come to rest is not closed, as it might hang."""


class ForkGuard:
    """Every connection that this process has open."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while a connection is made: one that is half open can be neither kept nor closed."""
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._resting: list[Connection] = []

    def add(self, connection: Connection) -> None:
        """Close ``connection`` in a child, if there is one."""
        self._open.add(connection)

    def forget(self, connection: Connection) -> None:
        """Leave a connection alone that must not be closed."""
        self._open.discard(connection)

    def before_fork(self) -> None:
        """Before a fork: wait until no connection is in use."""
        self.lock.acquire()
        until = time.monotonic() + REST_SECONDS
        for connection in list(self._open):
            if connection.guard.acquire(timeout=max(0.0, until - time.monotonic())):
                self._resting.append(connection)

    def after_fork_in_parent(self) -> None:
        """After a fork, in the parent."""
        for connection in self._resting:
            connection.guard.release()
        self._resting = []
        self.lock.release()

    def after_fork_in_child(self) -> None:
        """After a fork, in the child: nothing here belongs to it."""
        for connection in self._resting:
            with suppress(sqlite3.Error):
                if not connection.in_transaction:
                    connection.close()
        self._open = weakref.WeakSet()
        self.after_fork_in_parent()


fork_guard = ForkGuard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=fork_guard.before_fork,
        after_in_parent=fork_guard.after_fork_in_parent,
        after_in_child=fork_guard.after_fork_in_child,
    )
