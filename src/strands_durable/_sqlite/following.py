"""Following an execution from any process: committed steps by number, and chunks of running ones. Knows no Strands."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

from .._journal.stream_events import DeliveredChunks, step_event
from .._journal.unreadable import reading
from .._records.executions import ExecutionStatus
from .._records.results import StreamEvent
from .change_feed import change_feed
from .chunks import subscribe
from .journal import Journal

_LISTEN_SECONDS = 15.0
_RENEW_SECONDS = 5.0
_PAGE = 200
_STEPS = """
SELECT s.id FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = ? AND s.number > ? ORDER BY s.number LIMIT ?
"""


async def follow(journal: Journal, after: int) -> AsyncIterator[StreamEvent]:
    """Yield each committed step after number ``after``, then each as it comes, with live chunks between."""
    store, heard = journal.store, DeliveredChunks()
    renewed_at = 0.0
    async with change_feed(store).changes() as change:
        while True:
            status = journal.status()  # before the steps: what is over has committed them all
            is_over = status not in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
            if not is_over and time.monotonic() - renewed_at > _RENEW_SECONDS:
                renewed_at = time.monotonic()
                subscribe(store, journal.lease.row_id, _LISTEN_SECONDS)
            while True:
                rows = _steps(journal, after, _PAGE)
                for row in rows:
                    after = row[0]
                    yield step_event(row)
                if len(rows) < _PAGE:
                    break
            if is_over:
                return
            for event in heard.new(_chunks(journal)):
                yield event
            await change.wait(_RENEW_SECONDS)


@reading()
def steps_after(journal: Journal, after: int) -> list[StreamEvent]:
    """Return the committed steps after number ``after``."""
    return [step_event(row) for row in _steps(journal, after, -1)]


def _steps(journal: Journal, after: int, most: int) -> list[Any]:
    """Return committed steps in order: number, scope, position, key, attempt, kind, name, status, result, error, usage."""
    calls = _calls(journal)
    ids = [step_id for (step_id,) in journal.store.read(_STEPS, journal.lease.row_id, after, most)]
    columns = "call, number, key, attempt, kind, name, status, result, error, usage"
    where = "id IN (SELECT value FROM json_each(?)) ORDER BY number"
    rows = journal.store.rows("steps", columns, where, json.dumps(ids)) if ids else []
    return [(number, *calls[call_id], *rest) for call_id, number, *rest in rows if call_id in calls]


def _chunks(journal: Journal) -> list[Any]:
    """Return the chunks that are written: call id, scope, position, key, attempt, number, data."""
    where = "call IN (SELECT id FROM calls WHERE execution = ?) ORDER BY call, key, attempt, number"
    rows = journal.store.rows("chunks", "call, key, attempt, number, data", where, journal.lease.row_id)
    calls = _calls(journal) if rows else {}
    return [(call_id, *calls[call_id], *rest) for call_id, *rest in rows if call_id in calls]


def _calls(journal: Journal) -> dict[int, tuple[str, int]]:
    """Return scope and position of each call of an execution."""
    rows = journal.store.read("SELECT id, scope, position FROM calls WHERE execution = ?", journal.lease.row_id)
    return {call_id: (scope, position) for call_id, scope, position in rows}
