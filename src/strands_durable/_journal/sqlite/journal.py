"""The recorded calls and steps of one execution: every SQL statement about them, and nothing else."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from contextlib import AbstractContextManager
from typing import Any

from ..._records.calls import CallAddress, CallKind, CallRecord
from ..._records.codec import decode, encode
from ..._records.executions import ExecutionStatus
from ..._records.steps import StepKind, StepRecord
from ...errors import ExecutionNotFoundError
from ..lease import Lease, Observer
from ..unreadable import reading
from .chunks import ChunkWriter
from .connection import Connection
from .heads import Shelf
from .rows import CALL, STEP, StepEnd, call_of, step_of

_CALLS_OF = "execution = ? AND run = ? AND parent = ?"


def _span(prefix: str) -> tuple[str, str]:
    """Return the bounds between which a key that starts with ``prefix`` sorts."""
    return prefix, prefix + "\U0010ffff"


class Journal(Shelf):
    """What is recorded of one execution, written under its lease."""

    def __init__(self, lease: Lease, observer: Observer | None = None) -> None:
        self.lease, self.store, self._observer = lease, lease.store, observer
        self.execution_id, self.run = lease.execution_id, lease.run
        self.with_chunks: set[tuple[int, str]] = set()
        """Call and key of the steps under way of which pieces are written for readers."""
        self._number: int | None = None

    def transaction(self, label: str, *, lasting: bool = True) -> AbstractContextManager[object]:
        """Commit what the block writes, all of it or nothing; it fails if the lease is lost."""
        return self.store.transaction(label, self, lasting=lasting)

    def check(self, connection: Connection) -> None:
        """Raise if the lease is lost, and report a request to cancel."""
        if self.lease.check(connection) and self._observer is not None:
            self._observer.cancel_requested()

    # Calls

    def call_at(self, position: int) -> CallRecord | None:
        """Return the root call recorded at ``position`` of the current run."""
        return self.call_in(0, "", position)

    def call_in(self, parent: int, place: str, position: int = 0) -> CallRecord | None:
        """Return the call recorded at a place of another call, or of none."""
        rows = self.store.rows(
            "calls", CALL, f"{_CALLS_OF} AND place = ? AND position = ?", *self._of(parent), place, position
        )
        if not rows:  # to begin a call again that only cannot be found would be to run its steps again
            self.store.refuse_incomplete_calls(*self._of(parent)[:2])
        return call_of(rows[0]) if rows else None

    def call_after(self, scope: str, position: int) -> CallRecord | None:
        """Return the first root call of ``scope`` that was recorded after ``position``."""
        rows = self.store.rows(
            "calls", CALL, f"{_CALLS_OF} AND place = '' AND position > ? AND scope = ? ORDER BY position LIMIT 1",
            *self._of(0), position, scope,
        )  # fmt: skip
        return call_of(rows[0]) if rows else None

    def last_position(self) -> int:
        """Return the position of the last root call of the current run; -1 before the first."""
        found = self.store.read(
            "SELECT max(position) FROM calls WHERE execution = ? AND run = ? AND parent = ? AND place = ''",
            *self._of(0),
        )[0][0]
        return -1 if found is None else int(found)

    def is_dispatched(self) -> bool:
        """Say whether the execution was dispatched, and is for workers."""
        return bool(self.store.read("SELECT 1 FROM dispatches WHERE execution = ?", self.lease.row_id))

    def calls(self) -> list[CallRecord]:
        """Return all root calls of the current run."""
        self.store.refuse_incomplete_calls(*self._of(0)[:2])
        return [call_of(row) for row in self.store.rows("calls", CALL, f"{_CALLS_OF} ORDER BY position", *self._of(0))]

    def calls_in(self, parent: int, prefix: str) -> list[CallRecord]:
        """Return the calls at places of another call that start with ``prefix``, in order."""
        rows = self.store.rows(
            "calls", CALL, f"{_CALLS_OF} AND place >= ? AND place < ? ORDER BY id", *self._of(parent), *_span(prefix)
        )
        return [call_of(row) for row in rows]

    def calls_of_member(self, lineage: int, member: str) -> list[CallRecord]:
        """Return the calls that ``member`` made inside calls that share a log, in order."""
        rows = self.store.rows(
            "calls",
            CALL,
            "parent IN (SELECT id FROM calls WHERE lineage = ?) AND member = ? ORDER BY id",
            lineage,
            member,
        )
        return [call_of(row) for row in rows]

    def calls_by(self, member: str) -> list[CallRecord]:
        """Return the calls that ``member`` made anywhere inside the current run, in order."""
        rows = self.store.rows(
            "calls",
            CALL,
            "execution = ? AND run = ? AND parent > 0 AND member = ? ORDER BY id",
            self.lease.row_id,
            self.run,
            member,
        )
        return [call_of(row) for row in rows]

    def _of(self, parent: int) -> tuple[int, int, int]:
        return self.lease.row_id, self.run, parent

    def insert_call(
        self,
        address: CallAddress,
        kind: CallKind,
        *,
        given: Any,
        config_id: int,
        lineage: int | None = None,
    ) -> tuple[int, int]:
        """Record that a call begins; return its id and the id of the log its messages go to.

        A root agent has one log in an execution; an agent inside another call begins one unless ``lineage`` names its log.
        """
        now, (execution, run, parent) = time.time(), self._of(address.parent)
        began = {"kind": kind, "status": "RUNNING", "member": address.member, "scope": address.scope, "config": config_id,
                 "started_at": now, "taken_up_at": now}  # fmt: skip
        dispatched = self._connection.execute(
            f"SELECT id FROM calls WHERE {_CALLS_OF} AND place = ? AND position = ? AND status = 'PENDING'",
            (*self._of(address.parent), address.place, address.position),
        ).fetchone()
        call_id = dispatched[0] if dispatched else self._connection.next_id("calls")
        log = lineage or (call_id if address.parent else self._first_of(address.scope, call_id))
        if dispatched:
            self._connection.update("calls", {**began, "lineage": log}, "id = ?", call_id)
        else:
            self._connection.insert(
                "calls", id=call_id, execution=execution, run=run, parent=parent, place=address.place,
                position=address.position, input=encode(given, "The prompt"), input_hash=self.hash(given), lineage=log,
                attempt=1, base="[]", **began,
            )  # fmt: skip
        if address.parent == 0:
            self.set_status(ExecutionStatus.RUNNING)
        return call_id, log

    def _first_of(self, scope: str, call_id: int) -> int:
        """Return the first root call of an agent in the current run; ``call_id`` if this is the one."""
        query = f"SELECT min(id) FROM calls WHERE {_CALLS_OF} AND scope = ?"
        return int(self._connection.execute(query, (*self._of(0), scope)).fetchone()[0] or call_id)

    def set_base(self, call_id: int, ranges: list[list[int]]) -> None:
        """Record the messages that a call found."""
        self._connection.update("calls", {"base": json.dumps(ranges)}, "id = ?", call_id)

    def reopen_call(self, call: CallRecord) -> None:
        """Record that a call goes on after a failure, an answer or the death of its owner."""
        changes = {"status": "RUNNING", "attempt": call.attempt, "taken_up_at": time.time(), "ended_at": None}
        self._connection.update("calls", changes, "id = ?", call.call_id)
        if call.parent == 0:
            self.set_status(ExecutionStatus.RUNNING)
            self.delete_chunks()

    def delete_chunks(self) -> None:
        """Delete the pieces of attempts that died."""
        self._connection.delete(
            "chunks", "call IN (SELECT id FROM calls WHERE execution = ? AND run = ?)", *self._of(0)[:2]
        )

    def end_call(
        self, call: CallRecord, status: ExecutionStatus, result: Any = None, *, keeps_lease: bool = False
    ) -> None:
        """Record how a call ended, or that it waits; with a root call the lease is given up, unless it is kept."""
        recorded = None if result is None else encode(result, "The result")
        changes = {"status": status.value, "result": recorded, "ended_at": time.time()}
        self._connection.update("calls", changes, "id = ?", call.call_id)
        if call.parent != 0:
            return
        if status is ExecutionStatus.SUSPENDED and self._is_answered(call.call_id, result):
            status = ExecutionStatus.PENDING
        self.set_status(status)
        if not keeps_lease:
            self.lease.drop()

    def end_left(self, call: CallRecord, error: dict[str, Any]) -> None:
        """Record that a root call which its caller had left has failed; the lease is kept for the call that follows."""
        self.insert_failure(call.call_id, call.attempt, error)
        inside = (
            "WITH RECURSIVE inside (id) AS (SELECT ? UNION ALL SELECT c.id FROM calls c JOIN inside ON c.parent = inside.id)"
            " SELECT id FROM inside"
        )
        changes = {"status": "FAILED", "ended_at": time.time()}
        self._connection.update("calls", changes, f"id IN ({inside}) AND status = 'RUNNING'", call.call_id)

    def _is_answered(self, call_id: int, result: Any) -> bool:
        """Say whether a dispatched call waits for what was answered while it took up other answers: a worker is to go on."""
        asked = json.dumps([found["id"] for found in (result or {}).get("interrupts") or ()])
        found = self._connection.execute(
            "SELECT 1 FROM replies WHERE call = ? AND interrupt_id IN (SELECT value FROM json_each(?))"
            " AND EXISTS (SELECT 1 FROM dispatches WHERE execution = ?)",
            (call_id, asked, self.lease.row_id),
        ).fetchone()
        return found is not None

    def cancel(self) -> None:
        """Record that the execution was cancelled, with every call of it that has no end."""
        self._connection.update(
            "calls",
            {"status": "CANCELLED", "ended_at": time.time()},
            "execution = ? AND run = ? AND status IN ('PENDING', 'RUNNING', 'SUSPENDED')",
            *self._of(0)[:2],
        )
        self.set_status(ExecutionStatus.CANCELLED)
        self.lease.drop()

    def is_cancel_due(self) -> bool:
        """Say whether somebody asked to cancel the execution while it had an owner who did not live to do so."""
        rows = self.store.read(
            "SELECT 1 FROM executions WHERE id = ? AND cancel_asked_at IS NOT NULL AND status IN"
            " ('PENDING', 'RUNNING', 'SUSPENDED')",
            self.lease.row_id,
        )
        return bool(rows)

    def insert_failure(self, call_id: int, attempt: int, error: dict[str, Any]) -> None:
        """Record what a call failed with. Rows of this table are never changed."""
        self._connection.insert("failures", call=call_id, attempt=attempt, error=encode(error), at=time.time())

    def last_failure(self, call_id: int) -> dict[str, Any]:
        """Return what a call failed with last."""
        row = self.store.row("failures", "error", "call = ? ORDER BY rowid DESC LIMIT 1", call_id)
        found: dict[str, Any] = decode(row[0])
        return found

    def set_status(self, status: ExecutionStatus) -> None:
        """Record what the execution as a whole is doing."""
        changes = {"status": status.value, "updated_at": time.time()}
        self._connection.update("executions", changes, "id = ?", self.lease.row_id)

    def status(self) -> ExecutionStatus:
        """Return what the execution as a whole is doing."""
        rows = self.store.rows("executions", "status", "id = ?", self.lease.row_id)
        if not rows:  # somebody has removed it
            raise ExecutionNotFoundError(self.execution_id, str(self.store.path))
        return ExecutionStatus(rows[0][0])

    def start_run(self) -> None:
        """Leave the recorded run as it is and begin another under the same id."""
        with self.transaction("run.start"):
            self.run += 1
            self._connection.update("executions", {"run": self.run}, "id = ?", self.lease.row_id)

    # Inputs and answers

    def hash(self, given: Any) -> str:
        """Return a keyed hash of an input: it can be compared, but not guessed back after a redaction."""
        return input_hash(self.store.hash_key, given)

    def redact_input(self, call_id: int) -> None:
        """Forget the text of an input; its hash stays."""
        before = self._connection.execute("SELECT input FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        self._connection.update("calls", {"input": None}, "id = ?", call_id)
        self._connection.forget(before)

    # Steps

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

    def chunk_writer(self, call_id: int, key: str, attempt: int, kind: StepKind, name: str) -> ChunkWriter:
        """Return where to say what a step under way streams."""
        return ChunkWriter(self, call_id, key, attempt, kind, name)

    def has_subscriber(self) -> bool:
        """Say whether somebody follows the execution."""
        rows = self.store.read("SELECT listened_until FROM executions WHERE id = ?", self.lease.row_id)
        return bool(rows) and rows[0][0] > time.time()

    def _next_number(self, place: tuple[int, str] | None) -> int:
        """Return the number of a step that ends now: the how many-th of its execution. Readers go by it."""
        if place is not None and place in self.with_chunks:
            self._connection.delete("chunks", "call = ? AND key = ?", *place)
            self.with_chunks.discard(place)
        if self._observer is not None:
            self._observer.step_ended()
        self._number = self.last_number() + 1
        return self._number

    def last_number(self) -> int:
        """Return how many steps of the execution have ended."""
        if self._number is None:
            found = self._connection.execute(
                "SELECT max(steps.number) FROM calls JOIN steps ON steps.call = calls.id WHERE calls.execution = ?",
                (self.lease.row_id,),
            ).fetchone()[0]
            self._number = int(found or 0)
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
            "steps", STEP, "call = ? AND key >= ? AND key < ? ORDER BY key, attempt", call_id, *_span(prefix)
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

    def last_config(self, call: CallRecord) -> tuple[str, dict[str, Any]] | None:
        """Return the last model step of a call and what the agent was then; None before the first."""
        where = "call = ? AND kind = 'model' AND config IS NOT NULL ORDER BY key DESC, attempt DESC LIMIT 1"
        rows = self.store.rows("steps", "key, config", where, call.call_id)
        if not rows:
            return None
        key, config_id = rows[0]
        return f"step 'model {int(key.split('/')[0])}'", self.config(config_id)

    def call(self, call_id: int) -> CallRecord:
        """Return one call."""
        return call_of(self.store.row("calls", CALL, "id = ?", call_id))


def input_hash(key: bytes, given: Any) -> str:
    """Return a keyed hash of an input."""
    text = encode(_without_marks(given), "The prompt")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _without_marks(given: Any) -> Any:
    """Strands writes a tracking id into messages that it is given: they are the same input all the same."""
    if not isinstance(given, list):
        return given
    return [_without_mark(block) if isinstance(block, dict) else block for block in given]


def _without_mark(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("tracking_id", "metadata")}
