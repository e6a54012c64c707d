"""Forgetting an execution: every row of it, what nothing else refers to, and the text in the file. Knows no Strands.

An execution is gone with the first commit, which also notes that the rest is to be deleted. The rest is deleted in batches, so
that no process waits long for the write lock. If the process is killed in between, the next removal deletes the rest.

What agents were made of (``configs``) is shared between executions, says nothing of any of them, and stays.
"""

from __future__ import annotations

import time

from ..._journal.owner import BEAT, Beat, Owner, seems_alive
from ..._records.executions import ExecutionRecord
from ..._records.logs import safe_logger
from ...errors import BackendUnavailableError, ExecutionBusyError, ExecutionNotFoundError
from .. import blobs
from ..connection import Connection
from ..database import Store
from ..tables import tables
from . import holds
from .pieces import Progress, Stopped, delete_in_pieces, never

logger = safe_logger(__name__)

_PIECE_BYTES = 2_000_000
"""How much is deleted at a time."""
_ROW_BYTES = 500
_SCRUB_SECONDS = 1.0
_OF_CALLS = (("failures", "call"), ("answers", "call"), ("replies", "call"), ("chunks", "call"), ("heads", "call"),
             ("state", "call"), ("past_heads", "call"),
             ("past_state", "call"), ("steps", "call"), ("messages", "lineage"))  # fmt: skip
_OF_EXECUTION = (("calls", "execution"), ("dispatches", "execution"), ("tags", "execution"),
                 ("notices", "execution"), ("holds", "execution"), ("emptied", "execution"), ("executions", "id"))  # fmt: skip


class Removal:
    """Deletes executions from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def remove(self, execution_id: str, unchanged: ExecutionRecord | None = None) -> bool:
        """Delete an execution that no process runs; when this returns, its text is gone from the file.

        Args:
            execution_id: Its id.
            unchanged: What was read of it before; if it has changed since, it stays, and False is returned.

        Raises:
            ExecutionNotFoundError: There is none with this id.
            ExecutionBusyError: Its owner is alive.
            ExecutionHeldError: It is held.
        """
        with self._store.transaction("remove") as connection:
            row_id = self._idle(connection, execution_id)
            if row_id is not None:
                if unchanged is not None and not _is_unchanged(connection, row_id, unchanged):
                    return False
                holds.refuse_held(connection, row_id, execution_id)
                mark_removed(connection, row_id, execution_id)
        failed = self.finish()
        if row_id in failed:
            raise failed[row_id]
        self._scrub(execution_id)
        return True

    def _idle(self, connection: Connection, execution_id: str) -> int | None:
        """Return the row of an execution that has no owner alive; None if its removal was begun and not finished."""
        columns = BEAT.replace("owner", "CAST(owner AS BLOB)")  # a damaged one may be no text
        query = f"SELECT {columns}, lease_until FROM executions WHERE execution_id = ?"
        row = connection.execute(query, (execution_id,)).fetchone()
        if row is None:
            if connection.execute("SELECT 1 FROM removals WHERE execution_id = ?", (execution_id,)).fetchone():
                return None
            raise ExecutionNotFoundError(execution_id, str(self._store.path))
        *beat, lease_until = row
        beat[1] = None if beat[1] is None else beat[1].decode("utf-8", "replace")
        found = Beat(*beat)
        if found.owner is not None and self._is_alive(found, lease_until):
            owner = str(Owner.parse(found.owner))
            why = f"Before it can be removed, run 'strands-durable cancel {execution_id}'."
            raise ExecutionBusyError(execution_id, owner, why)
        return found.row_id

    def _is_alive(self, found: Beat, lease_until: object) -> bool:
        """Return whether an owner is alive; one whose record cannot be read counts as alive until its lease ends."""
        owner = Owner.parse(found.owner)
        return self._store.liveness.is_alive(found) if owner.is_known else seems_alive(owner, lease_until)

    def finish(
        self, piece_bytes: int = _PIECE_BYTES, is_stopped: Stopped = never
    ) -> dict[int, BackendUnavailableError]:
        """Delete what is left of every execution whose removal was begun, in pieces; others write in between.

        Returns:
            By number, executions of which not every row can be deleted, because the file is damaged there.
        """
        if not self._store.read("SELECT 1 FROM removals LIMIT 1"):
            return {}
        failed = delete_in_pieces(self._store, "remove.piece", delete_piece, piece_bytes, is_stopped)
        for row_id, error in failed.items():
            logger.warning(
                "execution=<%d>, error=<%s> | removed; some of its rows are still in the file", row_id, error
            )
        return failed

    def _scrub(self, execution_id: str) -> None:
        until = time.monotonic() + _SCRUB_SECONDS
        while not self._store.scrub():
            if time.monotonic() > until:
                text = "execution_id=<%s> | removed; a reader keeps its text in the WAL until it ends its transaction"
                logger.warning(text, execution_id)
                return
            time.sleep(0.05)


def _is_unchanged(connection: Connection, row_id: int, record: ExecutionRecord) -> bool:
    """Return whether an execution is as it was read; of a damaged one, nothing can be compared."""
    if record.unreadable is not None:
        return True
    ((status, updated_at),) = connection.rows("executions", "status, updated_at", "id = ?", row_id)
    if status != record.status.value:
        return False
    return bool(updated_at <= record.updated_at if status == "RUNNING" else updated_at == record.updated_at)


def mark_removed(connection: Connection, row_id: int, execution_id: str) -> None:
    """Delete an execution, and note that its calls and what they recorded are to be deleted."""
    connection.insert("removals", execution=row_id, execution_id=execution_id)
    for table in ("dispatches", "tags", "notices", "holds", "emptied"):
        connection.delete(table, "execution = ?", row_id)
    connection.delete("executions", "id = ?", row_id)


def delete_piece(connection: Connection, most_bytes: int, progress: Progress) -> bool:
    """Delete rows of executions whose removal was begun; True if there are no more."""
    left = most_bytes
    found = progress.marked(connection, "SELECT execution FROM removals ORDER BY execution")
    for row_id in found:
        left = _delete_execution(connection, row_id, left)
        if left <= 0:
            return False
    return len(found) < progress.at_once


def _delete_execution(connection: Connection, row_id: int, left: int) -> int:
    """Delete rows of an execution until they come to ``left`` bytes; return how many bytes are left."""
    while calls := [
        call_id for (call_id,) in connection.execute("SELECT id FROM calls WHERE execution = ? LIMIT 1000", (row_id,))
    ]:
        for call_id in calls:
            for table, column in _OF_CALLS:
                left -= delete_rows(connection, table, column, call_id, left)
                if left <= 0:
                    return 0
            left -= delete_rows(connection, "calls", "id", call_id, left)
    connection.delete("removals", "execution = ?", row_id)
    return left


def delete_rows(connection: Connection, table: str, column: str, value: int, most: int) -> int:
    """Delete rows until they come to ``most`` bytes; return how many bytes they had, with those that they referred to."""
    key, texts = tables()[table].key, blobs.columns(table)
    columns = (*key, *(f"CAST({name} AS BLOB)" for name in texts))  # a damaged one may be no text
    rows = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {column} = ?", (value,))
    found, size = [], 0
    for row in rows:
        found.append(row[: len(key)])
        size += _ROW_BYTES + sum(_size(data) for data in row[len(key) :] if data is not None)
        if size >= most:
            break
    rows.close()
    where = " AND ".join(f"{name} = ?" for name in key)
    for place in found:
        connection.delete(table, where, *place)
    return size


def _size(data: bytes) -> int:
    return len(data) + blobs.bytes_in(data.decode("utf-8", "replace"))
