"""The recorded steps of an execution: intents, results, and what they cost."""

from __future__ import annotations

import json
import time
from typing import Any

from ..._records.codec import decode
from ..._records.steps import StepKind, StepRecord
from ..unreadable import reading
from .database import damaged
from .recorded import Recorded, span
from .rows import STEP, StepEnd, step_of


class Steps(Recorded):
    """The steps of one execution."""

    def insert_step(
        self,
        call_id: int,
        key: str,
        attempt: int,
        kind: StepKind,
        name: str,
        title: str,
        started_at: float,
        *,
        config_id: int | None = None,
        end: StepEnd | None = None,
    ) -> int:
        """Record that a step starts: its intent. With ``end``, a step that had none is recorded as a whole."""
        columns = {"status": "started"} if end is None else end.columns()
        number = None if end is None else self._next_number((call_id, key))
        return self._connection.insert(
            "steps", call=call_id, key=key, attempt=attempt, kind=kind, name=name, title=title, config=config_id,
            started_at=started_at, number=number, **columns,
        )  # fmt: skip

    def end_step(self, step_id: int, end: StepEnd) -> None:
        """Record how a step ended."""
        row = (
            self._connection.execute("SELECT call, key FROM steps WHERE id = ?", (step_id,)).fetchone()
            if self.with_chunks
            else None
        )
        number = self._next_number(row)
        self._connection.update("steps", {**end.columns(), "number": number}, "id = ?", step_id)

    def has_subscriber(self) -> bool:
        """Return True if a reader follows the execution."""
        rows = self.store.read("SELECT listened_until FROM executions WHERE id = ?", self.lease.row_id)
        return bool(rows) and rows[0][0] > time.time()

    def _next_number(self, place: tuple[int, str] | None) -> int:
        """Return the number of a step that ends now: its ordinal in the execution. Readers resume by it."""
        if place is not None and place in self.with_chunks:
            self._connection.delete("chunks", "call = ? AND key = ?", *place)
            self.with_chunks.discard(place)
        if self._observer is not None:
            self._observer.step_ended()
        self._number = self.last_number() + 1
        return self._number

    def set_step_result(self, step_id: int, result: str) -> None:
        """Overwrite a recorded result: only a redaction does this."""
        before = self._connection.execute("SELECT result FROM steps WHERE id = ?", (step_id,)).fetchone()[0]
        self._connection.update("steps", {"result": result}, "id = ?", step_id)
        self._connection.forget(before)

    def discard_step(self, step_id: int) -> None:
        """Mark a model answer as given up; it stays on record."""
        self._connection.update("steps", {"status": "discarded"}, "id = ?", step_id)

    def step(self, step_id: int) -> StepRecord:
        """Return one step."""
        return step_of(self.store.row("steps", STEP, "id = ?", step_id))

    def latest(self, call_id: int, prefix: str) -> dict[str, StepRecord]:
        """Return the last attempt of each step whose key starts with ``prefix``."""
        rows = self.store.rows(
            "steps", STEP, "call = ? AND key >= ? AND key < ? ORDER BY key, attempt", call_id, *span(prefix)
        )
        return {step.key: step for step in map(step_of, rows)}

    def nodes(self, call_id: int) -> list[StepRecord]:
        """Return every visit of a node in a call, attempt by attempt, in the order in which they began."""
        rows = self.store.rows("steps", STEP, "call = ? AND kind = 'node' ORDER BY id", call_id)
        return [step_of(row) for row in rows]

    def failed_attempts(self, call_id: int, key: str) -> int:
        """Return how many attempts of a step ended in an error."""
        rows = self.store.read(
            "SELECT count(*) FROM steps WHERE call = ? AND key = ? AND status = 'failed'", call_id, key
        )
        return int(rows[0][0])

    def errors_before(self, call_id: int, key: str) -> list[dict[str, Any]]:
        """Return what the attempts of a step ended in that failed since the call itself has failed last."""
        failures = self.store.rows("failures", "at", "call = ?", call_id)
        since = max((at for (at,) in failures), default=0.0)
        where = "call = ? AND key = ? AND status = 'failed' AND ended_at > ? ORDER BY attempt"
        return [decode(error) for (error,) in self.store.rows("steps", "error", where, call_id, key, since)]

    @reading()
    def usages(self, call_id: int) -> list[tuple[str, dict[str, int]]]:
        """Return, for each model answer of the loop, its key, and its usage with its place in the loop, in order."""
        where = "call = ? AND kind = 'model' AND status = 'done' AND config IS NOT NULL ORDER BY key"  # auxiliary: no config
        rows = self.store.rows("steps", "key, usage, loop", where, call_id)
        return [(key, {**json.loads(usage), **json.loads(loop)}) for key, usage, loop in rows]

    def tool_counts(self, call_id: int) -> list[tuple[str, int, int, float]]:
        """Return runs, successes and seconds of each tool of a call. A run that ended in a question is one, too."""
        counts: dict[str, tuple[int, int, float]] = {}
        where = (
            "call = ? AND kind = 'tool' AND status IN ('done', 'failed', 'interrupted') AND loop IS NULL ORDER BY id"
        )
        for name, status, error, began, ended in self.store.rows(
            "steps", "name, status, error, started_at, ended_at", where, call_id
        ):
            calls, successes, seconds = counts.get(name, (0, 0, 0.0))
            is_success = status == "done" and error is None
            counts[name] = (calls + 1, successes + is_success, seconds + ((ended or began) - began))
        return [(name, *found) for name, found in counts.items()]

    def results(self, step_ids: list[int]) -> dict[int, Any]:
        """Return the recorded results of many steps."""
        where = "id IN (SELECT value FROM json_each(?))"
        rows = self.store.rows("steps", "id, result", where, json.dumps(step_ids))
        if len(rows) != len(set(step_ids)):
            raise damaged(self.store.path, "steps that a message refers to are not all there")
        return {step_id: decode(result) for step_id, result in rows}
