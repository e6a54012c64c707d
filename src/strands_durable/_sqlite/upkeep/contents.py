"""Removing the contents of an execution that has ended, while its record stays.

What goes: inputs, results, errors, messages, state, heads, answers, arguments, and large bytes that nothing else refers to.
What stays: id, status, times, tags, its calls, of each step its name, number, times and tokens, and the times of answers. So a
list, its counts and sums are the same as before (but for failed tools), and nothing that had finished can run again: a caller
that asks for more gets an error.

The first commit notes that the contents are removed; from then on no process reads them. They are deleted in pieces, so that no
process waits long for the write lock. If the process is killed in between, the next pass deletes the rest. A damaged row loses
its contents unread, and stays damaged.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from ..._records.codec import decode, encode
from ...errors import ContentsRemovedError
from ..connection import Connection
from ..database import Store
from ..encryption.sealing import CellError
from .pieces import Progress
from .removal import delete_rows

_ROW_BYTES = 500
_CALL_BYTES = 2_000
"""What a call counts for itself: to find nothing in ten tables takes time, too."""
_NEXT = "SELECT run, id FROM calls WHERE execution = ? AND (run, id) > (?, ?) ORDER BY run, id LIMIT ?"
_DELETED = (("messages", "lineage"), ("state", "call"), ("past_heads", "call"), ("past_state", "call"), ("chunks", "call"),
            ("replies", "call"), ("failures", "call"))  # fmt: skip
_SPEC = ("system_prompt", "arguments", "tool_schemas", "session_id")
"""Parts of a spec that may hold what a user has written."""
_PHASES = {"COMPLETED": "done", "SUSPENDED": "waiting"}
_AT_ONCE = 200
"""How many calls or steps are read at a time."""


def removed_at(store: Store, row_id: int) -> float | None:
    """Return when the contents of an execution were removed; None if they were not."""
    rows = store.rows("emptied", "at", "execution = ?", row_id)
    return rows[0][0] if rows else None


def refuse_removed(store: Store, row_id: int, execution_id: str) -> None:
    """Raise if the contents of an execution were removed."""
    if store.removes_contents and (at := removed_at(store, row_id)) is not None:
        raise ContentsRemovedError(execution_id, at)


def begin(connection: Connection, row_id: int) -> None:
    """Note that the contents of an execution are removed: no process reads them from now on."""
    connection.insert("emptied", execution=row_id, at=time.time(), is_done=0)
    connection.delete("notices", "execution = ?", row_id)


def delete_piece(connection: Connection, most_bytes: int, progress: Progress) -> bool:
    """Delete some of what is to be deleted; True if there is no more."""
    left = most_bytes
    found = progress.marked(connection, "SELECT execution FROM emptied WHERE is_done = 0 ORDER BY execution")
    for row_id in found:
        left = _delete_contents(connection, row_id, left, progress)
        if left <= 0:
            return False
    return len(found) < progress.at_once


def _delete_contents(connection: Connection, row_id: int, left: int, progress: Progress) -> int:
    """Delete contents of an execution until they come to ``left`` bytes; return how many bytes are left.

    It continues after the last call that an earlier piece has ended: to look at all of them each time takes longer and longer.
    """
    while calls := connection.execute(_NEXT, (row_id, *progress.ended.get(row_id, (-1, 0)), _AT_ONCE)).fetchall():
        for run, call_id in calls:
            size = _delete_of_call(connection, call_id, left)
            if size >= left:
                return 0
            progress.ended[row_id] = (run, call_id)
            left -= size + _CALL_BYTES
            if left <= 0:
                return 0
    _empty_dispatch(connection, row_id)
    connection.update("emptied", {"is_done": 1}, "execution = ?", row_id)
    return left - _ROW_BYTES


def _delete_of_call(connection: Connection, call_id: int, most: int) -> int:
    """Delete contents of a call until they come to ``most`` bytes; return how many there were: fewer if none is left."""
    size = 0
    for table, column in _DELETED:
        if size < most:
            size += delete_rows(connection, table, column, call_id, most - size)
    if size < most:
        size += _empty_steps(connection, call_id, most - size)
    if size < most:
        _empty_call(connection, call_id)
    return size


def _empty_steps(connection: Connection, call_id: int, most: int) -> int:
    """Overwrite what steps were given and returned, until that comes to ``most`` bytes; return how many there were."""
    size = 0
    where = "call = ? AND (result IS NOT NULL OR error IS NOT NULL OR title != '')"
    query = f"SELECT id, coalesce(length(result), 0) + coalesce(length(error), 0) FROM steps WHERE {where} LIMIT ?"
    while size < most:
        rows = connection.execute(query, (call_id, _AT_ONCE)).fetchall()
        if not rows:
            break
        for step_id, length in rows:
            connection.erase("steps", {"result": None, "error": None, "title": ""}, "id = ?", step_id)
            size += _ROW_BYTES + length
            if size >= most:
                break
    return size


def _empty_call(connection: Connection, call_id: int) -> None:
    connection.erase("answers", {"answer": encode(None)}, "call = ?", call_id)
    connection.erase("calls", {"input": None, "result": None, "base": "[]", "state_of": None}, "id = ?", call_id)
    progress = _kept_progress(connection, call_id)
    connection.delete("heads", "call = ?", call_id)
    if progress is not None:
        connection.insert("heads", call=call_id, part="progress", data=json.dumps(progress), version=0)


def _kept_progress(connection: Connection, call_id: int) -> dict[str, Any] | None:
    """Return what is kept of the head of a call; of one that is damaged, what follows from the status of the call."""
    where = "call = ? AND part = 'progress'"
    try:
        rows = connection.rows("heads", "data", where, call_id)
    except (sqlite3.DatabaseError, CellError):
        (status,) = connection.execute("SELECT status FROM calls WHERE id = ?", (call_id,)).fetchone()
        return {"phase": _PHASES.get(status, "ready")}
    found = json.loads(rows[0][0]) if rows else None
    return None if found is None else {name: found[name] for name in ("phase", "resume", "ordinal") if name in found}


def _empty_dispatch(connection: Connection, row_id: int) -> None:
    changes = {"spec": _kept_spec(connection, row_id), "given": encode({"invocation_state": {}, "limits": None})}
    connection.erase("dispatches", {**changes, "note": None}, "execution = ?", row_id)


def _kept_spec(connection: Connection, row_id: int) -> str:
    """Return what is kept of how an execution was dispatched; nothing of what is damaged."""
    try:
        rows = connection.rows("dispatches", "spec", "execution = ?", row_id)
    except (sqlite3.DatabaseError, CellError):
        rows = []
    kept = {name: value for name, value in decode(rows[0][0]).items() if name not in _SPEC} if rows else {}
    return encode({**kept, "system_prompt": None, "arguments": {}, "tool_schemas": {}, "session_id": None})
