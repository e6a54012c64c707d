"""The journal of one execution: what is recorded of it, written under its lease.

Its parts are in modules of their own: calls, steps, heads, messages and answers. A transaction is the journal's: whatever its
parts write inside one is committed together.
"""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from .._records.calls import CallRecord
from .._records.codec import encode
from .._records.executions import ExecutionStatus
from .._records.keys import is_model_key
from .._records.origins import PART, Origin
from .._records.questions import DEADLINE, default_answer, interrupts_of
from .._records.results import OpenInterrupt
from .._records.steps import StepKind
from ..errors import ExecutionNotFoundError
from . import respondents
from .answers import Answers
from .calls import Calls
from .chunks import ChunkWriter
from .connection import Connection
from .deadlines import deadlines
from .heads import Heads
from .messages import Messages
from .steps import Steps


class Journal(Calls, Steps, Heads, Messages, Answers):
    """What is recorded of one execution."""

    @property
    def max_text(self) -> int | None:
        """How long the recorded form of a result may be; None for any length."""
        return self.store.max_text

    @property
    def store_path(self) -> str:
        """The store, as this process and its errors name it."""
        return str(self.store.path)

    def scrub(self) -> None:
        """Remove overwritten text from the store's files too, as soon as no reader is in the way."""
        self.store.scrub()

    def transaction(self, label: str, *, lasting: bool = True) -> AbstractContextManager[object]:
        """Commit what the block writes, all of it or nothing; it fails if the lease is lost."""
        return self.store.transaction(label, self, lasting=lasting)

    def expire_questions(self, record: CallRecord) -> None:
        """Answer the questions of a waiting call whose time is over with their default answers."""
        if not self._overdue(record):
            return
        with self.transaction("question.expired"):
            now, over = time.time(), self._overdue(record)  # a person may have answered a moment ago
            for found in over:
                answer = encode(default_answer(found.reason), "The default answer")
                place = {"call": record.call_id, "interrupt_id": found.interrupt_id}
                self._connection.insert("replies", **place, answer=answer, at=now)
            respondents.note(self.store, record.call_id, [(found.interrupt_id, found.name) for found in over], DEADLINE)

    def _overdue(self, record: CallRecord) -> list[OpenInterrupt]:
        """Return the questions of a call whose time is over without an answer."""
        now, known = time.time(), self.replies(record.call_id)
        ends = deadlines(self._connection, record.call_id)
        open_ones = [found for found in interrupts_of(record) if found.interrupt_id not in known]
        return [found for found in open_ones if ends.get(found.interrupt_id, now + 1) <= now]

    def check(self, connection: Connection) -> None:
        """Raise if the lease is lost, and report a request to cancel."""
        if self.lease.check(connection) and self._observer is not None:
            self._observer.cancel_requested()

    def is_dispatched(self) -> bool:
        """Return True if the execution was dispatched, and belongs to workers."""
        return bool(self.store.read("SELECT 1 FROM dispatches WHERE execution = ?", self.lease.row_id))

    def is_cancel_due(self) -> bool:
        """Return True if a cancel was requested from an owner that died before it could cancel."""
        rows = self.store.rows("executions", "status, cancel_asked_at", "id = ?", self.lease.row_id)
        return any(at is not None and status in ("PENDING", "RUNNING", "SUSPENDED") for status, at in rows)

    def status(self) -> ExecutionStatus:
        """Return what the execution as a whole is doing."""
        rows = self.store.rows("executions", "status", "id = ?", self.lease.row_id)
        if not rows:  # it was removed
            raise ExecutionNotFoundError(self.execution_id, str(self.store.path))
        return ExecutionStatus(rows[0][0])

    def start_run(self) -> None:
        """Leave the recorded run as it is and begin another under the same id."""
        with self.transaction("run.start"):
            self.run += 1
            self._connection.update("executions", {"run": self.run}, "id = ?", self.lease.row_id)

    def chunk_writer(self, call_id: int, key: str, attempt: int, kind: StepKind, name: str) -> ChunkWriter:
        """Return the writer of the chunks that a running step streams."""
        return ChunkWriter(self, call_id, key, attempt, kind, name)

    def withdraw(self, call_id: int, key: str, attempt: int) -> None:
        """Take back the intent of a step that surely has not begun: it is not in doubt."""
        self._loaded = None
        where = "call = ? AND key = ? AND attempt = ? AND status = 'started'"
        if self._connection.delete("steps", where, call_id, key, attempt) or not is_model_key(key):
            return
        for (data,) in self._connection.rows("heads", "data", "call = ? AND part = 'progress'", call_id):
            progress = json.loads(data)  # a model call has no row before it has an answer, its intent is in the head
            if (progress.get("attempt"), progress.get("resume")) == (attempt, "model"):
                self.write_head(call_id, [("progress", json.dumps({**progress, "waits": True}))])

    def origin(self) -> Origin | None:
        """Return what the execution was forked from; None if it is no fork."""
        found = self._origin_part()
        return None if found is None else Origin.from_text(found[1])

    def _origin_part(self) -> tuple[int, str] | None:
        where = "part = ? AND call IN (SELECT id FROM calls WHERE execution = ? AND run = 0 AND parent = 0)"
        rows = self.store.rows("heads", "call, data", where, PART, self.lease.row_id)
        return rows[0] if rows else None

    def note_drift(self, call_id: int, changes: list[str]) -> bool:
        """Record how an agent that takes up a call of a fork differs from that of the origin."""
        found = self._origin_part()
        if found is None:
            return False
        origin = Origin.from_text(found[1])
        if self.store.read("SELECT 1 FROM steps WHERE call = ? AND number > ? LIMIT 1", call_id, origin.step):
            return False
        drift = (*origin.drift, *(change for change in changes if change not in origin.drift))
        if drift != origin.drift:
            with self.transaction("fork.drift", lasting=False):
                self.write_head(found[0], [(PART, replace(origin, drift=drift).to_text())])
        return True

    def last_config(self, call: CallRecord) -> tuple[str, dict[str, Any]] | None:
        """Return the last model step of a call and what the agent was then; None before the first."""
        if self._loaded is not None and self._loaded.call_id == call.call_id:
            rows = [(row[2], row[8]) for row in self._loaded.models()[-1:]]
        else:
            where = "call = ? AND kind = 'model' AND config IS NOT NULL ORDER BY key DESC, attempt DESC LIMIT 1"
            rows = self.store.rows("steps", "key, config", where, call.call_id)
        if not rows:
            return None
        key, config_id = rows[0]
        return f"step 'model {int(key.split('/')[0])}'", self.config(config_id)
