"""Until when questions wait for an answer: kept with the head of the call that asks, and travels with it. No Strands."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from .._records.questions import expires_in
from .connection import Connection

PART = "deadlines"
"""The part of a head that records, by interrupt id, when the time of a question is over."""


def note(connection: Connection, call_id: int, asked: Iterable[dict[str, Any]]) -> None:
    """Record until when the questions of a call wait; one that is still open keeps its first deadline."""
    seconds = {found["id"]: expires_in(found.get("reason")) for found in asked}
    limited = {interrupt_id: limit for interrupt_id, limit in seconds.items() if limit is not None}
    known = deadlines(connection, call_id)
    if not limited and not known:
        return
    now = time.time()
    answered = {row[0] for row in connection.rows("answers", "interrupt_id", "call = ?", call_id)}
    due = {
        interrupt_id: known[interrupt_id] if interrupt_id in known.keys() - answered else now + limit
        for interrupt_id, limit in limited.items()
    }
    connection.put("heads", call=call_id, part=PART, data=json.dumps(due))


def deadlines(connection: Connection, call_id: int) -> dict[str, float]:
    """Return when the time of each question of a call is over, by interrupt id."""
    rows = connection.rows("heads", "data", "call = ? AND part = ?", call_id, PART)
    found: dict[str, float] = json.loads(rows[0][0]) if rows else {}
    return found
