"""What a reader of an execution follows, as rows: committed steps by number, and the chunks of running ones."""

from __future__ import annotations

import json
from typing import Any

from .journal import Journal

_STEPS = """
SELECT s.id FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = ? AND s.number > ? ORDER BY s.number LIMIT ?
"""


def steps(journal: Journal, after: int, most: int) -> list[Any]:
    """Return committed steps in order: number, scope, position, key, attempt, kind, name, status, result, error, usage."""
    calls = _calls(journal)
    ids = [step_id for (step_id,) in journal.store.read(_STEPS, journal.lease.row_id, after, most)]
    columns = "call, number, key, attempt, kind, name, status, result, error, usage"
    where = "id IN (SELECT value FROM json_each(?)) ORDER BY number"
    rows = journal.store.rows("steps", columns, where, json.dumps(ids)) if ids else []
    return [(number, *calls[call_id], *rest) for call_id, number, *rest in rows if call_id in calls]


def chunks(journal: Journal) -> list[Any]:
    """Return the chunks that are written: call id, scope, position, key, attempt, number, data."""
    where = "call IN (SELECT id FROM calls WHERE execution = ?) ORDER BY call, key, attempt, number"
    rows = journal.store.rows("chunks", "call, key, attempt, number, data", where, journal.lease.row_id)
    calls = _calls(journal) if rows else {}
    return [(call_id, *calls[call_id], *rest) for call_id, *rest in rows if call_id in calls]


def _calls(journal: Journal) -> dict[int, tuple[str, int]]:
    """Return scope and position of each call of an execution."""
    rows = journal.store.read("SELECT id, scope, position FROM calls WHERE execution = ?", journal.lease.row_id)
    return {call_id: (scope, position) for call_id, scope, position in rows}
