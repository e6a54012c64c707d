"""Notifications that a store has changed, by whichever process, and of nothing more. Knows no Strands.

SQLite counts the commits of other connections (`PRAGMA data_version`), and reading that number touches shared memory only. One
thread for each store looks at it twenty times a second while a task waits: a change is seen within 100 ms, the cost does not
grow with the number of commits, and it works wherever the file can be shared, without sockets or file events.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from .._records.deadline import TimedOut, limited
from ..errors import BackendUnavailableError
from .connection import Connection
from .database import Store

LOOK_SECONDS = 0.05


class ChangeEvent:
    """Set when there is something to look at."""

    def __init__(self, row_id: int | None) -> None:
        self.row_id = row_id
        self.seen: object = None
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake the waiting task, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # its loop is closed: no task waits any more
            pass

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for a change, or until the time is over."""
        with suppress(TimedOut):
            await limited(self._event.wait(), timeout)
        self._event.clear()


class ChangeFeed:
    """Looks after one store for all who wait in this process."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)  # by which it is kept: it must not keep the store in turn
        self._lock = threading.Lock()
        self._changes: set[ChangeEvent] = set()
        self._thread: threading.Thread | None = None

    @asynccontextmanager
    async def changes(self, row_id: int | None = None) -> AsyncIterator[ChangeEvent]:
        """Follow changes of one execution's status, or of anything in the store."""
        change = ChangeEvent(row_id)
        with self._lock:
            self._changes.add(change)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._look, args=(self._store(),), name="strands-durable-watch", daemon=True
                )
                self._thread.start()
        try:
            yield change
        finally:
            with self._lock:
                self._changes.discard(change)

    def _look(self, store: Store) -> None:
        connection: Connection | None = None
        version: int | None = None
        idle = looks = 0
        try:
            while True:
                with self._lock:
                    idle = 0 if self._changes else idle + 1
                    if idle > 40:  # for two seconds no task has waited
                        self._thread = None
                        return
                try:
                    if looks % 20 == 0:
                        store.refuse_other()
                    looks += 1
                    connection = connection or store.second_connection()
                    with connection.guard:
                        now = connection.execute("PRAGMA data_version").fetchone()[0]
                        if now != version:  # a task that begins to wait now reads what was committed before
                            version = now
                            _notify(connection, self._waiting())
                except (sqlite3.Error, BackendUnavailableError):
                    for change in self._waiting():  # the waiting tasks find out themselves
                        change.notify()
                    time.sleep(1.0)
                time.sleep(LOOK_SECONDS)
        finally:
            if connection is not None:
                with connection.guard:
                    connection.close()

    def _waiting(self) -> list[ChangeEvent]:
        with self._lock:
            return list(self._changes)


def _notify(connection: sqlite3.Connection, waiting: list[ChangeEvent]) -> None:
    """Wake the tasks that wait for any change, and those whose execution has changed."""
    wanted = [change.row_id for change in waiting if change.row_id is not None]
    rows = connection.execute(
        "SELECT id, status, updated_at FROM executions WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(wanted),),
    )
    found = {row[0]: tuple(row) for row in rows}
    for change in waiting:
        seen = found.get(change.row_id) if change.row_id is not None else object()
        if seen != change.seen:
            change.seen = seen
            change.notify()


_feeds: weakref.WeakKeyDictionary[Store, ChangeFeed] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def change_feed(store: Store) -> ChangeFeed:
    """Return what looks after ``store``."""
    with _lock:
        found = _feeds.get(store)
        if found is None:
            found = _feeds[store] = ChangeFeed(store)
        return found
