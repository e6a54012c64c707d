"""Recorded side effects: what `durable.step` and its kin leave in the journal."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from . import _keys
from ._codec import decode, encode
from ._context import Frame
from ._failure import describe
from ._records import StepRecord
from ._rows import Ending


class Effect:
    """One side effect of a step or hook, recorded or about to happen."""

    def __init__(self, enclosing: Frame, name: str, *, intent: bool) -> None:
        self._call, self._name = enclosing.call, name
        occurrence = enclosing.occurrences[name]
        enclosing.occurrences[name] += 1
        self._key = _keys.effect_key(enclosing.key, enclosing.phase, name, occurrence)
        found = self._call.journal.latest(self._call.record.call_id, self._key).get(self._key)
        self.recorded: StepRecord | None = found if found is not None and found.status == "done" else None
        self._attempt = 1 if found is None else found.attempt + 1
        self._step_id: int | None = None
        if intent and self.recorded is None:
            with self._call.journal.transaction("effect.start") as connection:
                self._step_id = self._insert(connection)

    def close(self, value: Any) -> Any:
        """Commit what came out, and return it as it was recorded."""
        text = encode(value, f"Execution {self._call.execution_id!r}: the result of durable.step {self._name!r}")
        with self._call.journal.transaction("effect.done") as connection:
            if self._step_id is None:
                self._insert(connection, Ending("done", text))
            else:
                self._call.journal.end_step(connection, self._step_id, Ending("done", text))
        return decode(text)

    def fail(self, error: Exception) -> None:
        """Record an attempt that ended in an error."""
        assert self._step_id is not None
        with self._call.journal.transaction("effect.failed") as connection:
            self._call.journal.end_step(connection, self._step_id, Ending("failed", error=describe(error)))

    def _insert(self, connection: sqlite3.Connection, end: Ending | None = None) -> int:
        call_id, now = self._call.record.call_id, time.time()
        return self._call.journal.insert_step(
            connection, call_id, self._key, self._attempt, "effect", self._name, "", now, end=end
        )
