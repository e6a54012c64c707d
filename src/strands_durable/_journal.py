"""The recorded calls, steps, heads and messages of one execution: every SQL statement about them, and nothing else."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from . import _blobs
from ._codec import decode, encode
from ._lease import Lease
from ._records import CallRecord, ExecutionStatus, Progress, StepKind, StepRecord
from ._rows import CALL, STEP, Ending, call_of, step_of


class Journal:
    """What is recorded of one execution, written under its lease."""

    def __init__(self, lease: Lease) -> None:
        self.lease, self.store = lease, lease.store
        self.execution_id, self.run = lease.execution_id, lease.run

    def transaction(self, label: str, *, lasting: bool = True) -> AbstractContextManager[sqlite3.Connection]:
        """Open a transaction that fails if the lease is lost."""
        return self.store.transaction(label, self.lease, lasting=lasting)

    # Calls

    def call_at(self, position: int) -> CallRecord | None:
        """Return the call recorded at ``position`` of the current run."""
        rows = self.store.read(
            f"{CALL} WHERE execution = ? AND run = ? AND position = ?", self.lease.row_id, self.run, position
        )
        return call_of(rows[0]) if rows else None

    def calls(self) -> list[CallRecord]:
        """Return all calls of the current run."""
        rows = self.store.read(f"{CALL} WHERE execution = ? AND run = ? ORDER BY position", self.lease.row_id, self.run)
        return [call_of(row) for row in rows]

    def insert_call(
        self, connection: sqlite3.Connection, *, position: int, scope: str, given: Any, config_id: int
    ) -> tuple[int, int]:
        """Record that a call begins; return its id and the id of the log its messages go to."""
        now = time.time()
        text = encode(given, "The prompt")
        call_id: Any = connection.execute(
            "INSERT INTO calls (execution, run, position, scope, lineage, status, attempt, input, input_hash, base, config,"
            " started_at, taken_up_at) VALUES (?, ?, ?, ?, 0, ?, 1, ?, ?, '[]', ?, ?, ?)",
            (self.lease.row_id, self.run, position, scope, "RUNNING", text, self.hash(given), config_id, now, now),
        ).lastrowid
        first = connection.execute(
            "SELECT min(id) FROM calls WHERE execution = ? AND run = ? AND scope = ?",
            (self.lease.row_id, self.run, scope),
        ).fetchone()[0]
        connection.execute("UPDATE calls SET lineage = ? WHERE id = ?", (first, call_id))
        self.set_status(connection, ExecutionStatus.RUNNING)
        return call_id, first

    def set_base(self, connection: sqlite3.Connection, call_id: int, ranges: list[list[int]]) -> None:
        """Record the messages that a call found."""
        connection.execute("UPDATE calls SET base = ? WHERE id = ?", (json.dumps(ranges), call_id))

    def reopen_call(self, connection: sqlite3.Connection, call_id: int, attempt: int) -> None:
        """Record that a call goes on after a failure, an answer or the death of its owner."""
        connection.execute(
            "UPDATE calls SET status = 'RUNNING', attempt = ?, taken_up_at = ?, ended_at = NULL WHERE id = ?",
            (attempt, time.time(), call_id),
        )
        self.set_status(connection, ExecutionStatus.RUNNING)

    def end_call(
        self, connection: sqlite3.Connection, call_id: int, status: ExecutionStatus, result: Any = None
    ) -> None:
        """Record how a call ended, or that it waits."""
        connection.execute(
            "UPDATE calls SET status = ?, result = ?, ended_at = ? WHERE id = ?",
            (status.value, None if result is None else encode(result, "The result"), time.time(), call_id),
        )
        self.set_status(connection, status)

    def insert_failure(self, connection: sqlite3.Connection, call_id: int, attempt: int, error: dict[str, Any]) -> None:
        """Record what a call failed with. Rows of this table are never changed."""
        connection.execute("INSERT INTO failures VALUES (?, ?, ?, ?)", (call_id, attempt, encode(error), time.time()))

    def last_failure(self, call_id: int) -> dict[str, Any]:
        """Return what a call failed with last."""
        rows = self.store.read("SELECT error FROM failures WHERE call = ? ORDER BY rowid DESC LIMIT 1", call_id)
        found: dict[str, Any] = decode(rows[0][0])
        return found

    def set_status(self, connection: sqlite3.Connection, status: ExecutionStatus) -> None:
        """Record what the execution as a whole is doing."""
        connection.execute(
            "UPDATE executions SET status = ?, updated_at = ? WHERE id = ?",
            (status.value, time.time(), self.lease.row_id),
        )

    def status(self) -> ExecutionStatus:
        """Return what the execution as a whole is doing."""
        return ExecutionStatus(self.store.read("SELECT status FROM executions WHERE id = ?", self.lease.row_id)[0][0])

    def start_run(self) -> None:
        """Leave the recorded run as it is and begin another under the same id."""
        with self.transaction("run.start") as connection:
            self.run += 1
            connection.execute("UPDATE executions SET run = ? WHERE id = ?", (self.run, self.lease.row_id))
        self.lease.run = self.run

    # Inputs and answers

    def hash(self, given: Any) -> str:
        """Return a keyed hash of an input: it can be compared, but not guessed back after a redaction."""
        text = encode(_without_marks(given), "The prompt")
        return hmac.new(self.store.hash_key, text.encode(), hashlib.sha256).hexdigest()

    def insert_answers(self, connection: sqlite3.Connection, call_id: int, answers: dict[str, Any]) -> None:
        """Record a person's answers."""
        now = time.time()
        rows = [(call_id, interrupt_id, encode(answer, "The answer"), now) for interrupt_id, answer in answers.items()]
        connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows)

    def answers(self, call_id: int) -> dict[str, Any]:
        """Return the recorded answers of a call."""
        rows = self.store.read("SELECT interrupt_id, answer FROM answers WHERE call = ?", call_id)
        return {interrupt_id: decode(answer) for interrupt_id, answer in rows}

    def redact_input(self, connection: sqlite3.Connection, call_id: int) -> None:
        """Forget the text of an input; its hash stays."""
        before = connection.execute("SELECT input FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        connection.execute("UPDATE calls SET input = NULL WHERE id = ?", (call_id,))
        _blobs.forget(connection, before)

    # Steps

    def insert_step(
        self,
        connection: sqlite3.Connection,
        call_id: int,
        key: str,
        attempt: int,
        kind: StepKind,
        name: str,
        title: str,
        started_at: float,
        *,
        config_id: int | None = None,
        end: Ending | None = None,
    ) -> int:
        """Record that a step starts: its intent. With ``end``, a step that had none is recorded as a whole."""
        columns = ("started", None, None, None, None) if end is None else end.columns()
        step_id: Any = connection.execute(
            "INSERT INTO steps (call, key, attempt, kind, name, title, config, started_at, status, ended_at, usage, result,"
            " error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (call_id, key, attempt, kind, name, title, config_id, started_at, *columns),
        ).lastrowid
        return int(step_id)

    def end_step(self, connection: sqlite3.Connection, step_id: int, end: Ending) -> None:
        """Record how a step ended."""
        connection.execute(
            "UPDATE steps SET status = ?, ended_at = ?, usage = ?, result = ?, error = ? WHERE id = ?",
            (*end.columns(), step_id),
        )

    def set_step_result(self, connection: sqlite3.Connection, step_id: int, result: str) -> None:
        """Overwrite a recorded result: only a redaction does this."""
        before = connection.execute("SELECT result FROM steps WHERE id = ?", (step_id,)).fetchone()[0]
        connection.execute("UPDATE steps SET result = ? WHERE id = ?", (result, step_id))
        _blobs.forget(connection, before)

    def discard_step(self, connection: sqlite3.Connection, step_id: int) -> None:
        """Mark a model answer as given up; it stays on record."""
        connection.execute("UPDATE steps SET status = 'discarded' WHERE id = ?", (step_id,))

    def step(self, step_id: int) -> StepRecord:
        """Return one step."""
        return step_of(self.store.read(f"{STEP} WHERE id = ?", step_id)[0])

    def latest(self, call_id: int, prefix: str) -> dict[str, StepRecord]:
        """Return the last attempt of each step whose key starts with ``prefix``."""
        rows = self.store.read(
            f"{STEP} WHERE call = ? AND key >= ? AND key < ? ORDER BY key, attempt",
            call_id,
            prefix,
            prefix + "\U0010ffff",
        )
        return {step.key: step for step in map(step_of, rows)}

    def failed_attempts(self, call_id: int, key: str) -> int:
        """Return how many attempts of a step ended in an error."""
        rows = self.store.read(
            "SELECT count(*) FROM steps WHERE call = ? AND key = ? AND status = 'failed'", call_id, key
        )
        return int(rows[0][0])

    def usages(self, call_id: int) -> list[tuple[str, dict[str, int]]]:
        """Return key and usage of each model answer of the loop, in order; auxiliary ones have no config."""
        rows = self.store.read(
            "SELECT key, usage FROM steps WHERE call = ? AND kind = 'model' AND status = 'done' AND config IS NOT NULL"
            " ORDER BY key",
            call_id,
        )
        return [(key, json.loads(usage)) for key, usage in rows]

    def tool_counts(self, call_id: int) -> list[tuple[str, int, int, float]]:
        """Return runs, successes and seconds of each tool of a call. A run that ended in a question is one, too."""
        return [
            (name, int(calls), int(successes), float(seconds))
            for name, calls, successes, seconds in self.store.read(
                "SELECT name, count(*), sum(status = 'done' AND error IS NULL), sum(ended_at - started_at) FROM steps"
                " WHERE call = ? AND kind = 'tool' AND status IN ('done', 'failed', 'interrupted') AND usage IS NULL"
                " GROUP BY name ORDER BY min(id)",
                call_id,
            )
        ]

    def last_config(self, call: CallRecord) -> tuple[str, dict[str, Any]] | None:
        """Return the last model step of a call and what the agent was then; None before the first."""
        rows = self.store.read(
            "SELECT key, config FROM steps WHERE call = ? AND kind = 'model' AND config IS NOT NULL"
            " ORDER BY key DESC, attempt DESC LIMIT 1",
            call.call_id,
        )
        if not rows:
            return None
        key, config_id = rows[0]
        data = self.store.read("SELECT data FROM configs WHERE id = ?", config_id)[0][0]
        return f"step 'model {int(key.split('/')[0])}'", json.loads(data)

    def config_id(self, connection: sqlite3.Connection, digest: str, data: dict[str, Any]) -> int:
        """Record what an agent is made of, once; return its id."""
        connection.execute("INSERT OR IGNORE INTO configs (digest, data) VALUES (?, ?)", (digest, json.dumps(data)))
        return int(connection.execute("SELECT id FROM configs WHERE digest = ?", (digest,)).fetchone()[0])

    # Heads, state and messages

    def write_head(self, connection: sqlite3.Connection, call_id: int, parts: Iterable[tuple[str, str]]) -> None:
        """Overwrite parts of a call's head."""
        connection.executemany(
            "INSERT INTO heads VALUES (?, ?, ?) ON CONFLICT (call, part) DO UPDATE SET data = excluded.data",
            [(call_id, part, data) for part, data in parts],
        )

    def head(self, call_id: int) -> tuple[Progress, dict[str, str]]:
        """Return where a call stands, and the other parts of its head."""
        parts = dict(self.store.read("SELECT part, data FROM heads WHERE call = ?", call_id))
        return Progress(**json.loads(parts.pop("progress"))), parts

    def share_state(self, connection: sqlite3.Connection, call_id: int, lineage: int, found: dict[str, str]) -> bool:
        """Let a new call share the state with which the one before it completed, if it found just that."""
        rows = connection.execute(
            "SELECT coalesce(state_of, id), status FROM calls WHERE lineage = ? AND id < ? ORDER BY id DESC LIMIT 1",
            (lineage, call_id),
        ).fetchall()
        if not rows or rows[0][1] != ExecutionStatus.COMPLETED.value:
            return False
        if dict(connection.execute("SELECT key, value FROM state WHERE call = ?", (rows[0][0],))) != {
            encode(name): _blobs.referring(value) for name, value in found.items()
        }:
            return False
        connection.execute("UPDATE calls SET state_of = ? WHERE id = ?", (rows[0][0], call_id))
        return True

    def write_state(self, connection: sqlite3.Connection, call_id: int, changes: dict[str, str | None]) -> None:
        """Apply changes of the agent's state; None deletes. A call that shared its state gets one of its own first."""
        shared = connection.execute("SELECT state_of FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        if shared is not None:
            connection.execute("INSERT INTO state SELECT ?, key, value FROM state WHERE call = ?", (call_id, shared))
            connection.execute("UPDATE calls SET state_of = NULL WHERE id = ?", (call_id,))
        for name, value in changes.items():
            key = encode(name)  # a name may hold what SQLite's text cannot
            if value is None:
                connection.execute("DELETE FROM state WHERE call = ? AND key = ?", (call_id, key))
            else:
                connection.execute(
                    "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT (call, key) DO UPDATE SET value = excluded.value",
                    (call_id, key, value),
                )

    def clear_state(self, connection: sqlite3.Connection, call_id: int) -> None:
        """Forget the state of a call whose state object was replaced; the new one is written right after."""
        connection.execute("UPDATE calls SET state_of = NULL WHERE id = ?", (call_id,))
        connection.execute("DELETE FROM state WHERE call = ?", (call_id,))

    def state(self, call_id: int) -> dict[str, Any]:
        """Return the agent's state as of a call's head."""
        rows = self.store.read(
            "SELECT key, value FROM state WHERE call = (SELECT coalesce(state_of, id) FROM calls WHERE id = ?)", call_id
        )
        return {decode(key): decode(value) for key, value in rows}

    def write_messages(self, connection: sqlite3.Connection, lineage: int, rows: list[tuple[int, str]]) -> None:
        """Append messages to the log."""
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", [(lineage, seq, data) for seq, data in rows])

    def overwrite_message(self, connection: sqlite3.Connection, lineage: int, seq: int, data: str) -> None:
        """Overwrite a message: only a redaction does this."""
        place = (lineage, seq)
        before = connection.execute("SELECT data FROM messages WHERE lineage = ? AND seq = ?", place).fetchone()[0]
        connection.execute("UPDATE messages SET data = ? WHERE lineage = ? AND seq = ?", (data, *place))
        _blobs.forget(connection, before)

    def last_ranges(self, call_id: int, lineage: int) -> list[list[int]]:
        """Return the messages in sight when the call before ``call_id`` in the same log was written last."""
        rows = self.store.read(
            "SELECT heads.data FROM calls JOIN heads ON heads.call = calls.id WHERE calls.lineage = ? AND calls.id < ?"
            " AND heads.part = 'progress' ORDER BY calls.id DESC LIMIT 1",
            lineage,
            call_id,
        )
        ranges: list[list[int]] = json.loads(rows[0][0])["ranges"] if rows else []
        return ranges

    def next_seq(self, lineage: int) -> int:
        """Return the first free number of a log."""
        return int(self.store.read("SELECT coalesce(max(seq), -1) + 1 FROM messages WHERE lineage = ?", lineage)[0][0])

    def message_rows(self, lineage: int, ranges: list[list[int]]) -> list[str]:
        """Return the recorded forms of the messages in ``ranges``, in order."""
        found: list[str] = []
        for first, last in ranges:
            rows = self.store.read(
                "SELECT data FROM messages WHERE lineage = ? AND seq BETWEEN ? AND ? ORDER BY seq", lineage, first, last
            )
            found.extend(data for (data,) in rows)
        return found

    def results(self, step_ids: list[int]) -> dict[int, Any]:
        """Return the recorded results of many steps."""
        rows = self.store.read(
            "SELECT id, result FROM steps WHERE id IN (SELECT value FROM json_each(?))", json.dumps(step_ids)
        )
        return {step_id: decode(result) for step_id, result in rows}

    def input_of(self, call_id: int) -> Any:
        """Return the input of a call."""
        text = self.store.read("SELECT input FROM calls WHERE id = ?", call_id)[0][0]
        return None if text is None else decode(text)


def _without_marks(given: Any) -> Any:
    """Strands writes a tracking id into messages that it is given: they are the same input all the same."""
    if not isinstance(given, list):
        return given
    return [_without_mark(block) if isinstance(block, dict) else block for block in given]


def _without_mark(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("tracking_id", "metadata")}
