"""Notices: what is to be reported of executions, recorded with the change that it is about, until it is delivered.

A notice is a row written in the transaction that changes an execution's status, so that no kill can separate the two. Rows are
written only for events that a worker of this store reports, or did within the last days.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from .._journal.owner import Owner, seems_alive
from .._records.codec import decode
from .._records.exceptions import summary
from .._records.executions import ExecutionStatus
from .._records.notifications import EVENTS, Event, Notification
from .._records.questions import answers_to
from .._records.views import Question
from ..errors import BackendUnavailableError
from .connection import Connection
from .database import Store, is_damage

WATCHED_SECONDS = 7 * 86_400.0
"""For how long events are recorded after the last worker that reports them has said so."""
CLAIMED_SECONDS = 60.0
"""How long a worker that cannot be observed has for a delivery."""
_EVENT_OF = {status.value: event for event, status in EVENTS.items()}
_COLUMNS = "id, execution, notice_id, status, at, tries, not_before, claimed_by"


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice that this process has claimed."""

    row_id: int
    execution: int
    notice_id: str
    event: Event
    at: float
    tries: int
    """How often it was tried, with this time."""


def record(connection: Connection, execution: int, status: ExecutionStatus) -> None:
    """Record that an execution's status has changed, if a worker reports that."""
    now = time.time()
    if status.value not in _EVENT_OF or not _is_watched(connection, status.value, now):
        return
    connection.insert("notices", execution=execution, notice_id=uuid.uuid4().hex, status=status.value, at=now)


def _is_watched(connection: Connection, status: str, now: float) -> bool:
    query = "SELECT 1 FROM watches WHERE status = ? AND typeof(until) = 'real' AND until > ?"  # it may be damaged
    return connection.execute(query, (status, now)).fetchone() is not None


class Notices:
    """The notices of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def watch(self, events: Iterable[Event]) -> None:
        """Have events recorded from now on."""
        with self._store.transaction("notice.watch", lasting=False) as connection:
            for event in events:
                connection.put("watches", status=EVENTS[event].value, until=time.time() + WATCHED_SECONDS)

    def claim(self, events: Collection[Event], limit: int, running: Collection[str]) -> list[Notice]:
        """Return notices that are due, new ones first; those in ``running`` are being delivered here, others elsewhere."""
        if limit < 1 or not self._due(events, running):
            return []
        with self._store.transaction("notice.claim", lasting=False) as connection:
            found = self._due(events, running)[:limit]
            for row_id, _, _, _, _, tries, *_ in found:
                until = time.time() + CLAIMED_SECONDS
                changes = {"tries": tries + 1, "not_before": until, "claimed_by": Owner.me().recorded()}
                connection.update("notices", changes, "id = ?", row_id)
        return [
            Notice(
                row_id=row[0], execution=row[1], notice_id=row[2], event=_EVENT_OF[row[3]], at=row[4], tries=row[5] + 1
            )
            for row in found
        ]

    def _due(self, events: Collection[Event], running: Collection[str]) -> list[tuple[Any, ...]]:
        wanted = json.dumps([EVENTS[event].value for event in events])
        where = (
            "gave_up_at IS NULL AND (not_before <= ? OR claimed_by IS NOT NULL)"
            " AND status IN (SELECT value FROM json_each(?)) AND notice_id NOT IN (SELECT value FROM json_each(?))"
            " ORDER BY tries > 0, at LIMIT 100"
        )
        query = f"SELECT id FROM notices WHERE {where}"
        found = self._store.read(query, time.time(), wanted, json.dumps(list(running)))
        rows = [row for (row_id,) in found for row in self._whole(row_id)]
        return [row for row in rows if _is_free(row[7], row[6])]

    def _whole(self, row_id: int) -> list[tuple[Any, ...]]:
        """Return the row of a notice; nothing if it is damaged, which must not keep others from being delivered."""
        try:
            return self._store.rows("notices", _COLUMNS, "id = ?", row_id)
        except BackendUnavailableError as error:
            if not is_damage(error):
                raise
            return []

    def delivered(self, notice: Notice) -> None:
        """Forget a notice; a power cut may bring it back, and it is then delivered again."""
        with self._store.transaction("notice.delivered", lasting=False) as connection:
            connection.delete("notices", "id = ? AND notice_id = ?", notice.row_id, notice.notice_id)

    def put_off(self, notice: Notice, seconds: float, error: str) -> None:
        """Deliver a notice later."""
        changes = {"not_before": time.time() + seconds, "claimed_by": None, "error": error}
        self._change(notice, changes)

    def give_up(self, notice: Notice, error: str) -> None:
        """Record that a notice is not delivered."""
        self._change(notice, {"gave_up_at": time.time(), "claimed_by": None, "error": error})

    def _change(self, notice: Notice, changes: dict[str, Any]) -> None:
        with self._store.transaction("notice.changed", lasting=False) as connection:
            connection.update("notices", changes, "id = ? AND notice_id = ?", notice.row_id, notice.notice_id)

    def notification(self, notice: Notice) -> Notification | None:
        """Return what a notice reports; None if its execution was removed."""
        rows = self._store.rows("executions", "execution_id, run, status", "id = ?", notice.execution)
        if not rows:
            return None
        execution_id, run, status = rows[0]
        where = "execution = ? AND run = ? AND parent = 0 ORDER BY id DESC LIMIT 1"
        calls = self._store.rows("calls", "id, scope, result", where, notice.execution, run)
        agents = self._store.rows("dispatches", "agent", "execution = ?", notice.execution)
        is_current = bool(calls) and _EVENT_OF.get(status) == notice.event
        return Notification(
            notification_id=notice.notice_id,
            event=notice.event,
            execution_id=execution_id,
            agent=agents[0][0] if agents else calls[0][1] if calls else None,
            at=notice.at,
            tags=dict(self._store.rows("tags", "name, value", "execution = ? ORDER BY name", notice.execution)),
            questions=_questions(calls[0][2]) if is_current and notice.event == "suspended" else (),
            error=self._error(calls[0][0]) if is_current and notice.event == "failed" else None,
        )

    def _error(self, call_id: int) -> str | None:
        rows = self._store.rows("failures", "error", "call = ? ORDER BY rowid DESC LIMIT 1", call_id)
        return summary(decode(rows[0][0])) if rows else None


def _questions(result: str | None) -> tuple[Question, ...]:
    asked = (decode(result) if result else {}).get("interrupts") or ()
    return tuple(
        Question(
            interrupt_id=each["id"], name=each["name"], reason=each.get("reason"), answers=answers_to(each["name"])
        )
        for each in asked
    )


def _is_free(claimed_by: str | None, until: float) -> bool:
    """Return whether a notice may be claimed: no process has it, that process is gone, or it is this one and was cancelled."""
    if claimed_by is None or claimed_by == Owner.me().recorded():
        return True
    return not seems_alive(Owner.parse(claimed_by), until)
