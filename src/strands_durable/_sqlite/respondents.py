"""Who answered what, and when. Kept beside the head of the call that asked; the answers themselves are rows of their own.

Knows no Strands.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from .._records.views import Answered
from .blobs import shown
from .database import Store

PART = "answered"
"""The part of a head that records, by interrupt id, the name of the question, who answered and when."""

_GIVEN = """
SELECT interrupt_id, answer, at, 1 FROM verified_answers WHERE call = :call
UNION ALL SELECT interrupt_id, answer, at, 0 FROM verified_replies WHERE call = :call ORDER BY 3, 1
"""


def note(store: Store, call_id: int, names: Iterable[tuple[str, str]], by: str) -> None:
    """Note who answers, with the ids and names of the questions."""
    connection, now = store.connection, time.time()
    rows = connection.rows("heads", "data", "call = ? AND part = ?", call_id, PART)
    found: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
    found.update({interrupt_id: {"name": name, "by": by, "at": now} for interrupt_id, name in names})
    connection.put("heads", call=call_id, part=PART, data=json.dumps(found))


def answers_of(connection: sqlite3.Connection, call_id: int) -> tuple[Answered, ...]:
    """Return what was answered to the questions of a call, the first answer first."""
    noted = _noted(connection, call_id)
    return tuple(
        Answered(
            interrupt_id=interrupt_id,
            name=noted.get(interrupt_id, {}).get("name"),
            answer=json.loads(shown(answer)),
            by=noted.get(interrupt_id, {}).get("by"),
            at=noted.get(interrupt_id, {}).get("at", at),
            is_taken=bool(is_taken),
        )
        for interrupt_id, answer, at, is_taken in connection.execute(_GIVEN, {"call": call_id}).fetchall()
    )


def _noted(connection: sqlite3.Connection, call_id: int) -> dict[str, Any]:
    row = connection.execute("SELECT data FROM verified_heads WHERE call = ? AND part = ?", (call_id, PART)).fetchone()
    found: dict[str, Any] = {} if row is None else json.loads(row[0])
    return found
