"""Following an execution from any process: committed steps by number, and chunks of running ones. Knows no Strands."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

from .._records.exceptions import summary
from .._records.executions import ExecutionStatus
from .._records.keys import path
from .._records.results import StreamEvent
from .._records.steps import shown_result
from .sqlite import stream_rows
from .sqlite.change_feed import change_feed
from .sqlite.chunks import subscribe
from .sqlite.journal import Journal
from .unreadable import reading

_LISTEN_SECONDS = 15.0
_RENEW_SECONDS = 5.0
_PAGE = 200


async def follow(journal: Journal, after: int) -> AsyncIterator[StreamEvent]:
    """Yield each committed step after number ``after``, then each as it comes, with live chunks between."""
    store, heard = journal.store, _DeliveredChunks()
    renewed_at = 0.0
    async with change_feed(store).changes() as change:
        while True:
            status = journal.status()  # before the steps: what is over has committed them all
            is_over = status not in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
            if not is_over and time.monotonic() - renewed_at > _RENEW_SECONDS:
                renewed_at = time.monotonic()
                subscribe(store, journal.lease.row_id, _LISTEN_SECONDS)
            while True:
                rows = stream_rows.steps(journal, after, _PAGE)
                for row in rows:
                    after = row[0]
                    yield _step(row)
                if len(rows) < _PAGE:
                    break
            if is_over:
                return
            for event in heard.new(stream_rows.chunks(journal)):
                yield event
            await change.wait(_RENEW_SECONDS)


@reading()
def steps_after(journal: Journal, after: int) -> list[StreamEvent]:
    """Return the committed steps after number ``after``."""
    return [_step(row) for row in stream_rows.steps(journal, after, -1)]


def _step(row: Any) -> StreamEvent:
    number, scope, position, key, attempt, kind, name, status, result, error, usage = row
    return StreamEvent(
        number=number,
        recorded=True,
        step=path(scope, position, key),
        attempt=attempt,
        kind=kind,
        name=name,
        status=status,
        result=shown_result(kind, None if result is None else json.loads(result)),
        error=None if error is None else summary(json.loads(error)),
        usage=None if usage is None else json.loads(usage),
    )


class _DeliveredChunks:
    """Which pieces a reader has had."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], tuple[int, int]] = {}

    def new(self, rows: list[Any]) -> list[StreamEvent]:
        """Return the pieces that are new, of the last attempt of each step."""
        latest = {(row[0], row[3]): row[4] for row in rows}
        found = []
        for call_id, scope, position, key, attempt, number, data in rows:
            place = (call_id, key)
            if attempt < latest[place] or (attempt, number) <= self._last.get(place, (0, 0)):
                continue
            self._last[place] = (attempt, number)
            found.append(_chunk(path(scope, position, key), attempt, number, json.loads(data)))
        return found


def _chunk(step: str, attempt: int, number: int, said: dict[str, Any]) -> StreamEvent:
    event = StreamEvent(
        number=number,
        recorded=False,
        step=step,
        attempt=attempt,
        kind=said["kind"],
        name=said["name"],
        event=said["event"],
    )
    text = _text(said["event"])
    if text is not None:
        event["data"] = text
    return event


def _text(event: Any) -> str | None:
    """Return the piece of text that a chunk of a model's answer holds, if it does."""
    delta = (event or {}).get("contentBlockDelta", {}).get("delta", {}) if isinstance(event, dict) else {}
    text = delta.get("text")
    return text if isinstance(text, str) else None
