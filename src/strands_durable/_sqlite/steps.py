"""The recorded steps of an execution: intents, results, and what they cost."""

from __future__ import annotations

import json
import time
from typing import Any

from .._journal.loaded_steps import WHOLE, LoadedSteps
from .._journal.rows import STEP, columns_of, span, step_of
from .._journal.unreadable import reading
from .._records.codec import decode, decode_all
from .._records.steps import FinishedTool, StepEnd, StepKind, StepRecord
from .database import damaged
from .recorded import Recorded

_FINISHED_TOOLS = """
SELECT s.id, s.call, s.key, s.name FROM calls c JOIN steps s ON s.call = c.id
WHERE c.execution = ? AND c.run = ? AND s.kind = 'tool' AND s.status = 'done' AND s.error IS NULL AND s.loop IS NULL
ORDER BY s.number
"""
"""Without an error, and the tool itself has run: neither a middleware nor a person has given the result in its place."""


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
        columns = {"status": "started"} if end is None else columns_of(end)
        number = None if end is None else self._next_number((call_id, key))
        self._loaded = None
        step_id, row = self._connection.insert_known(
            "steps", call=call_id, key=key, attempt=attempt, kind=kind, name=name, title=title, config=config_id,
            started_at=started_at, number=number, **columns,
        )  # fmt: skip
        self._intents.pop(step_id, None)  # of a step that was withdrawn: its number is free again
        if end is None and row:
            self._intents[step_id] = row
        return step_id

    def end_step(self, step_id: int, end: StepEnd) -> None:
        """Record how a step ended."""
        self._loaded = None
        row = (
            self._connection.execute("SELECT call, key FROM steps WHERE id = ?", (step_id,)).fetchone()
            if self.with_chunks
            else None
        )
        changes = {**columns_of(end), "number": self._next_number(row)}
        intent = self._intents.pop(step_id, None)
        if intent is None:
            self._connection.update("steps", changes, "id = ?", step_id)
        else:
            self._connection.update_known("steps", intent, changes, step_id)

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
        self._loaded = None
        before = self._connection.execute("SELECT result FROM steps WHERE id = ?", (step_id,)).fetchone()[0]
        self._connection.update("steps", {"result": result}, "id = ?", step_id)
        self._connection.forget(before)

    def discard_step(self, step_id: int) -> None:
        """Mark a model answer as given up; it stays on record."""
        self._loaded = None
        self._connection.update("steps", {"status": "discarded"}, "id = ?", step_id)

    def step(self, step_id: int) -> StepRecord:
        """Return one step."""
        return step_of(self.store.row("steps", STEP, "id = ?", step_id))

    def load_steps(self, call_id: int) -> None:
        """Read all steps of a call that resumes, at once; they are kept until the execution is written to."""
        self._loaded = None
        self._loaded = self._steps_of(call_id)

    def _steps_of(self, call_id: int) -> LoadedSteps:
        if self._loaded is not None and self._loaded.call_id == call_id:
            return self._loaded
        where = "call = ? ORDER BY key, attempt"
        return LoadedSteps(call_id, self.store.rows("steps", WHOLE, where, call_id))

    def latest(self, call_id: int, prefix: str) -> dict[str, StepRecord]:
        """Return the last attempt of each step whose key starts with ``prefix``."""
        if self._loaded is not None and self._loaded.call_id == call_id:
            rows = self._loaded.latest(prefix)
        else:
            where = "call = ? AND key >= ? AND key < ? ORDER BY key, attempt"
            rows = self.store.rows("steps", STEP, where, call_id, *span(prefix))
        return {step.key: step for step in map(step_of, rows)}

    def nodes(self, call_id: int) -> list[StepRecord]:
        """Return every visit of a node in a call, attempt by attempt, in the order in which they began."""
        rows = self.store.rows("steps", STEP, "call = ? AND kind = 'node' ORDER BY id", call_id)
        return [step_of(row) for row in rows]

    def finished_tools(self) -> list[FinishedTool]:
        """Return the tool calls of the current run that have succeeded, in the order in which they ended."""
        rows = self.store.read(_FINISHED_TOOLS, self.lease.row_id, self.run)
        return [FinishedTool(step_id=row[0], call_id=row[1], key=row[2], name=row[3]) for row in rows]

    def failed_attempts(self, call_id: int, key: str) -> int:
        """Return how many attempts of a step ended in an error."""
        if self._loaded is not None and self._loaded.call_id == call_id:
            return sum(row[2] == key and row[7] == "failed" for row in self._loaded.rows)
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
        done = [row for row in self._steps_of(call_id).models() if row[7] == "done"]
        costs = json.loads(f"[{','.join([f'[{row[11]},{row[15]}]' for row in done])}]")  # all in one go
        return [(row[2], {**usage, **loop}) for row, (usage, loop) in zip(done, costs, strict=True)]

    def tool_counts(self, call_id: int) -> list[tuple[str, int, int, float]]:
        """Return runs, successes and seconds of each tool of a call. A run that ended in a question is one, too."""
        counts: dict[str, tuple[int, int, float]] = {}
        tools = [row for row in self._steps_of(call_id).rows if row[4] == "tool" and row[15] is None]
        for _, _, _, _, _, name, _, status, _, began, ended, _, _, error, *_ in sorted(tools):  # as they began
            if status not in ("done", "failed", "interrupted"):
                continue
            calls, successes, seconds = counts.get(name, (0, 0, 0.0))
            is_success = status == "done" and error is None
            counts[name] = (calls + 1, successes + is_success, seconds + ((ended or began) - began))
        return [(name, *found) for name, found in counts.items()]

    def results(self, step_ids: list[int]) -> dict[int, Any]:
        """Return the recorded results of many steps."""
        texts = {} if self._loaded is None else self._loaded.results(step_ids)
        if len(texts) < len(wanted := set(step_ids)):
            where = "id IN (SELECT value FROM json_each(?))"
            texts.update(self.store.rows("steps", "id, result", where, json.dumps([*wanted - texts.keys()])))
        if len(texts) != len(wanted):
            raise damaged(self.store.path, "steps that a message refers to are not all there")
        return dict(zip(texts, decode_all([*texts.values()]), strict=True))
