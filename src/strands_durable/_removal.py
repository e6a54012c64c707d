"""Forgetting an execution: every row of it, what nothing else refers to, and the text in the file. Knows no Strands.

What agents were made of (``configs``) is shared between executions, says nothing of any of them, and stays.
"""

from __future__ import annotations

import sqlite3

from . import _blobs
from ._owner import BEAT, Beat, Owner
from ._store import Store
from .errors import ExecutionBusyError, ExecutionNotFoundError

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
        row = connection.execute(f"SELECT {BEAT} FROM executions WHERE execution_id = ?", (execution_id,)).fetchone()
        if row is None:
            raise ExecutionNotFoundError(execution_id, str(self._store.path))
        found = Beat(*row)
        if found.owner is not None and self._store.liveness.is_alive(found):
            raise ExecutionBusyError(
                execution_id,
                str(Owner.parse(found.owner)),
                f"'strands-durable cancel {execution_id}' asks it to stop; then it can be removed.",
            )
        return found.row_id


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
