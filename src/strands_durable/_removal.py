"""Forgetting an execution: every row of it, what nothing else refers to, and the text in the file. Knows no Strands.

What agents were made of (``configs``) is shared between executions, says nothing of any of them, and stays.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from typing import Any

from . import _blobs
from ._lease import Owner
from ._store import Store
from .errors import ExecutionBusyError, ExecutionNotFoundError, UnreadableError

_LONG_SECONDS = 3600.0
"""No lease is that long: what seems to be is damaged."""
_CALLS = "SELECT id FROM calls WHERE execution = ?"
_OF_CALLS = (("failures", "call"), ("answers", "call"), ("replies", "call"), ("chunks", "call"), ("heads", "call"),
             ("state", "call"), ("steps", "call"), ("messages", "lineage"))  # fmt: skip
_OF_EXECUTION = (("calls", "execution"), ("dispatches", "execution"), ("executions", "id"))


class Removal:
    """Deletes executions from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def remove(self, execution_id: str) -> None:
        """Delete an execution that nobody works on; when this returns, its text is gone from the file.

        Raises:
            ExecutionNotFoundError: There is none with this id.
            ExecutionBusyError: Its owner is alive.
        """
        with self._store.transaction("remove") as connection:
            row_id = self._idle(connection, execution_id)
            digests = _delete(connection, row_id)
            _blobs.discard(connection, digests)
        self._store.scrub()

    def _idle(self, connection: sqlite3.Connection, execution_id: str) -> int:
        """Return the row of an execution that has no owner alive."""
        row = connection.execute(
            "SELECT id, owner, lease_until FROM executions WHERE execution_id = ?", (execution_id,)
        ).fetchone()
        if row is None:
            raise ExecutionNotFoundError(execution_id, str(self._store.path))
        row_id, owner, lease_until = row
        if owner is not None and (who := _alive(owner, lease_until)) is not None:
            raise ExecutionBusyError(
                execution_id, who, f"'strands-durable cancel {execution_id}' asks it to stop; then it can be removed."
            )
        return int(row_id)


def _alive(recorded: str, lease_until: Any) -> str | None:
    """Return an owner that is to be taken for alive; one that cannot be read is so while it may be renewing its lease."""
    with suppress(UnreadableError):
        owner = Owner.parse(recorded)
        return str(owner) if owner.is_alive(lease_until) else None
    now = time.time()
    is_leased = isinstance(lease_until, float) and now < lease_until < now + _LONG_SECONDS
    return "a process whose record is damaged" if is_leased else None


def _delete(connection: sqlite3.Connection, row_id: int) -> set[str]:
    """Delete the rows of an execution; return the digests of the bytes that they referred to."""
    digests: set[str] = set()
    places = [(table, f"{column} IN ({_CALLS})") for table, column in _OF_CALLS]
    places += [(table, f"{column} = ?") for table, column in _OF_EXECUTION]
    for table, condition in places:
        for column in _blobs.columns(table):
            digests |= _blobs.digests(connection, table, column, condition, row_id)
        connection.execute(f"DELETE FROM {table} WHERE {condition}", (row_id,))
    return digests
