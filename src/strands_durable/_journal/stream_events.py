"""What a reader of an execution gets: an event for each committed step, and for each chunk of a running one."""

from __future__ import annotations

import json
from typing import Any

from .._records.exceptions import summary
from .._records.keys import path
from .._records.results import StreamEvent
from .._records.steps import shown_result, shown_status


def step_event(row: Any) -> StreamEvent:
    """Return the event of a committed step."""
    number, scope, position, key, attempt, kind, name, status, result, error, usage = row
    return StreamEvent(
        number=number,
        recorded=True,
        step=path(scope, position, key),
        attempt=attempt,
        kind=kind,
        name=name,
        status=shown_status(status, has_error=error is not None),
        result=shown_result(kind, None if result is None else json.loads(result)),
        error=None if error is None else summary(json.loads(error)),
        usage=None if usage is None else json.loads(usage),
    )


class DeliveredChunks:
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
