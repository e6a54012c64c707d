"""The recorded calls of an execution: how they began, where they are, how they ended."""

from __future__ import annotations

import json
import time
from typing import Any

from .._journal.rows import CALL, call_of, span
from .._records.calls import CallAddress, CallKind, CallMaker, CallRecord
from .._records.codec import decode, encode
from .._records.executions import ExecutionStatus
from .._records.input_hash import input_hash
from . import deadlines, notices
from .recorded import Recorded
from .upkeep import contents

_CALLS_OF = "execution = ? AND run = ? AND parent = ?"


class Calls(Recorded):
    """The calls of one execution, and its status as far as it follows from them."""

    def set_status(self, status: ExecutionStatus) -> None:
        """Record what the execution as a whole is doing."""
        changes = {"status": status.value, "updated_at": time.time()}
        self._connection.update("executions", changes, "id = ?", self.lease.row_id)
        if self.store.keeps_notices:
            notices.record(self._connection, self.lease.row_id, status)

    def call(self, call_id: int) -> CallRecord:
        """Return one call."""
        return call_of(self.store.row("calls", CALL, "id = ?", call_id))

    def call_at(self, position: int) -> CallRecord | None:
        """Return the root call recorded at ``position`` of the current run."""
        return self.call_in(0, "", position)

    def call_in(self, parent: int, place: str, position: int = 0) -> CallRecord | None:
        """Return the call recorded at a place of another call, or of none."""
        rows = self.store.rows(
            "calls", CALL, f"{_CALLS_OF} AND place = ? AND position = ?", *self._of(parent), place, position
        )
        if parent == 0:
            self.refuse_removed()
        if not rows:  # to begin a call again that only cannot be found would be to run its steps again
            self.store.refuse_incomplete_calls(*self._of(parent)[:2])
        return call_of(rows[0]) if rows else None

    def refuse_removed(self) -> None:
        """Raise if the contents of the execution were removed: it has ended, and what it did must not be done again."""
        contents.refuse_removed(self.store, self.lease.row_id, self.execution_id)

    def call_after(self, scope: str, position: int) -> CallRecord | None:
        """Return the first root call of ``scope`` that was recorded after ``position``."""
        rows = self.store.rows(
            "calls", f"{CALL}, state_of",
            f"{_CALLS_OF} AND place = '' AND position > ? AND scope = ? ORDER BY position LIMIT 1",
            *self._of(0), position, scope,
        )  # fmt: skip
        self.refuse_removed()
        if not rows:
            return None
        if self.lease.fence >= 0:
            self._sources[rows[0][0]] = rows[0][-1] or rows[0][0]
        return call_of(rows[0])

    def last_position(self) -> int:
        """Return the position of the last root call of the current run; -1 before the first."""
        found = self.store.read(
            "SELECT max(position) FROM calls WHERE execution = ? AND run = ? AND parent = ? AND place = ''",
            *self._of(0),
        )[0][0]
        return -1 if found is None else int(found)

    def calls(self) -> list[CallRecord]:
        """Return all root calls of the current run."""
        self.refuse_removed()
        self.store.refuse_incomplete_calls(*self._of(0)[:2])
        return [call_of(row) for row in self.store.rows("calls", CALL, f"{_CALLS_OF} ORDER BY position", *self._of(0))]

    def calls_in(self, parent: int, prefix: str) -> list[CallRecord]:
        """Return the calls at places of another call that start with ``prefix``, in order."""
        rows = self.store.rows(
            "calls", CALL, f"{_CALLS_OF} AND place >= ? AND place < ? ORDER BY id", *self._of(parent), *span(prefix)
        )
        return [call_of(row) for row in rows]

    def calls_of_member(self, lineage: int, member: str) -> list[CallRecord]:
        """Return the calls that ``member`` made inside calls that share a log, in order."""
        where = "parent IN (SELECT id FROM calls WHERE lineage = ?) AND member = ? ORDER BY id"
        return [call_of(row) for row in self.store.rows("calls", CALL, where, lineage, member)]

    def calls_by(self, member: str) -> list[CallRecord]:
        """Return the calls that ``member`` made anywhere inside the current run, in order."""
        where = "execution = ? AND run = ? AND parent > 0 AND member = ? ORDER BY id"
        return [call_of(row) for row in self.store.rows("calls", CALL, where, self.lease.row_id, self.run, member)]

    def makers(self) -> dict[int, CallMaker]:
        """Return who made each call of the current run."""
        rows = self.store.read("SELECT id, parent, member FROM calls WHERE execution = ? AND run = ?", *self._of(0)[:2])
        return {call_id: CallMaker(parent=parent, member=member) for call_id, parent, member in rows}

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
        if address.parent == 0:  # the execution would continue without the messages that it refers to
            self.refuse_removed()
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
        """Record that a call resumes after a failure, an answer or the death of its owner."""
        changes = {"status": "RUNNING", "attempt": call.attempt, "taken_up_at": time.time(), "ended_at": None}
        self._connection.update("calls", changes, "id = ?", call.call_id)
        if call.parent == 0:
            self.set_status(ExecutionStatus.RUNNING)
            self.delete_chunks()

    def delete_chunks(self) -> None:
        """Delete the chunks of attempts that died."""
        where, values = "call IN (SELECT id FROM calls WHERE execution = ? AND run = ?)", self._of(0)[:2]
        if self._connection.execute(f"SELECT 1 FROM chunks WHERE {where} LIMIT 1", values).fetchone():
            self._connection.delete("chunks", where, *values)

    def end_call(
        self, call: CallRecord, status: ExecutionStatus, result: Any = None, *, keeps_lease: bool = False
    ) -> None:
        """Record how a call ended, or that it waits; with a root call the lease is given up, unless it is kept."""
        recorded = None if result is None else encode(result, "The result")
        changes = {"status": status.value, "result": recorded, "ended_at": time.time()}
        self._connection.update("calls", changes, "id = ?", call.call_id)
        if call.parent != 0:
            return
        if status is ExecutionStatus.SUSPENDED:
            deadlines.note(self._connection, call.call_id, (result or {}).get("interrupts") or ())
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
        """Return True if a dispatched call asks what was answered while it used other answers: a worker has to resume it."""
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

    def insert_failure(self, call_id: int, attempt: int, error: dict[str, Any]) -> None:
        """Record what a call failed with. Rows of this table are never changed."""
        self._connection.insert("failures", call=call_id, attempt=attempt, error=encode(error), at=time.time())

    def last_failure(self, call_id: int) -> dict[str, Any]:
        """Return what a call failed with last."""
        row = self.store.row("failures", "error", "call = ? ORDER BY rowid DESC LIMIT 1", call_id)
        found: dict[str, Any] = decode(row[0])
        return found

    def input_of(self, call_id: int) -> Any:
        """Return the input of a call."""
        text = self.store.row("calls", "input", "id = ?", call_id)[0]
        return None if text is None else decode(text)

    def redact_input(self, call_id: int) -> None:
        """Forget the text of an input; its hash stays."""
        before = self._connection.execute("SELECT input FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        self._connection.update("calls", {"input": None}, "id = ?", call_id)
        self._connection.forget(before)

    def hash(self, given: Any) -> str:
        """Return a keyed hash of an input: it can be compared, but not guessed back after a redaction."""
        return input_hash(self.store.hash_key, given)
