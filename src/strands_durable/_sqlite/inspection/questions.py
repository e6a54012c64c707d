"""The questions that executions wait for a person to answer."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from ..._records.questions import answers_to
from ..._records.views import OpenQuestion, Question
from ..blobs import shown
from ..deadlines import PART
from .execution_rows import judging
from .listing import agent_of, is_damage

_WAITING = """
SELECT id FROM executions WHERE status = 'SUSPENDED' AND updated_at >= ? ORDER BY updated_at DESC, execution_id
"""
# The last root call is the one that handles answer.
_ASKING = f"""
SELECT e.execution_id, {agent_of("verified_")}, c.id, c.result, c.ended_at
FROM verified_executions e JOIN verified_calls c ON c.id =
    (SELECT max(l.id) FROM calls l WHERE l.execution = e.id AND l.run = e.run AND +l.parent = 0)
WHERE e.id = ? AND c.status = 'SUSPENDED'
"""


def open_questions(
    connection: sqlite3.Connection, limit: int | None = None, since: float | None = None
) -> list[OpenQuestion]:
    """Return the questions of all executions, the last one asked first; no more is read than ``limit`` needs.

    An execution that cannot be read is left out: a list shows it, and why.
    """
    found: list[OpenQuestion] = []
    for (row_id,) in connection.execute(_WAITING, (since or 0.0,)):
        try:
            found += _asked_by(connection, row_id)
        except sqlite3.OperationalError as error:
            if not is_damage(error):
                raise
        if limit is not None and len(found) >= limit:
            return found[:limit]
    return found


def _asked_by(connection: sqlite3.Connection, row_id: int) -> list[OpenQuestion]:
    row = connection.execute(_ASKING, (row_id,)).fetchone()
    if row is None:
        return []
    execution_id, agent, call_id, result, asked_at = row
    with judging([]):
        return [
            OpenQuestion(execution_id=execution_id, agent=agent, question=question, asked_at=asked_at)
            for question in questions_of(connection, call_id, json.loads(shown(result)))
        ]
    return []


def questions_of(connection: sqlite3.Connection, call_id: int, outcome: dict[str, Any]) -> tuple[Question, ...]:
    """Return what a call waits for; an answer that it has not taken up yet is an answer."""
    answered = {
        row[0] for row in connection.execute("SELECT interrupt_id FROM verified_replies WHERE call = ?", (call_id,))
    }
    query = "SELECT data FROM verified_heads WHERE call = ? AND part = ?"
    row = connection.execute(query, (call_id, PART)).fetchone()
    deadlines: dict[str, float] = {} if row is None else json.loads(row[0])
    return tuple(
        Question(
            interrupt_id=found["id"],
            name=found["name"],
            reason=found.get("reason"),
            answers=answers_to(found["name"]),
            expires_at=deadlines.get(found["id"]),
        )
        for found in outcome.get("interrupts") or ()
        if found["id"] not in answered
    )
