"""The recorded heads, states, messages, answers and configs of calls: every SQL statement about them; the rest: `_journal`."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from . import _blobs
from ._codec import decode, encode
from ._keys import is_model_key
from ._records import ExecutionStatus, Progress, answers_in
from ._store import Store, damaged
from ._unreadable import reading


class Shelf:
    """What a call carries from step to step, by the ids of calls and logs."""

    store: Store

    def write_head(self, connection: sqlite3.Connection, call_id: int, parts: Iterable[tuple[str, str]]) -> None:
        """Overwrite parts of a call's head."""
        connection.executemany(
            "INSERT INTO heads (call, part, data) VALUES (?, ?, ?) ON CONFLICT (call, part) DO UPDATE SET data = excluded.data",
            [(call_id, part, data) for part, data in parts],
        )

    @reading()
    def head(self, call_id: int) -> tuple[Progress, dict[str, str]]:
        """Return where a call stands, and the other parts of its head."""
        self.store.refuse_incomplete(call_id)
        parts = dict(self.store.read("SELECT part, data FROM verified_heads WHERE call = ?", call_id))
        return Progress(**json.loads(parts.pop("progress"))), parts

    def withdraw(self, connection: sqlite3.Connection, call_id: int, key: str, attempt: int) -> None:
        """Take back the intent of a step that surely has not begun: it is not in doubt."""
        step = (call_id, key, attempt)
        gone = connection.execute(
            "DELETE FROM steps WHERE call = ? AND key = ? AND attempt = ? AND status = 'started'", step
        ).rowcount
        if not gone and is_model_key(key):  # it has no row before it has an answer, its intent is in the head
            connection.execute(
                "UPDATE heads SET data = json_set(data, '$.waits', json('true')) WHERE call = ? AND part = 'progress'"
                " AND json_extract(data, '$.attempt') = ? AND json_extract(data, '$.resume') = 'model'",
                (call_id, attempt),
            )

    @reading()
    def closing(self, call_id: int) -> Progress:
        """Return where a call has come to; a failed one beyond its head."""
        progress, parts = self.head(call_id)
        return Progress(**json.loads(parts["closing"])) if "closing" in parts else progress

    def share_state(self, connection: sqlite3.Connection, call_id: int, lineage: int, found: dict[str, str]) -> bool:
        """Let a new call share the state with which the one before it completed, if it found just that."""
        rows = connection.execute(
            "SELECT coalesce(state_of, id), status FROM calls WHERE lineage = ? AND id < ? ORDER BY id DESC LIMIT 1",
            (lineage, call_id),
        ).fetchall()
        if not rows or rows[0][1] != ExecutionStatus.COMPLETED.value:
            return False
        if dict(connection.execute("SELECT key, value FROM verified_state WHERE call = ?", (rows[0][0],))) != {
            encode(name): _blobs.referring(value) for name, value in found.items()
        }:
            return False
        connection.execute("UPDATE calls SET state_of = ? WHERE id = ?", (rows[0][0], call_id))
        return True

    def write_state(self, connection: sqlite3.Connection, call_id: int, changes: dict[str, str | None]) -> None:
        """Apply changes of the agent's state; None deletes. A call that shared its state gets one of its own first."""
        shared = connection.execute("SELECT state_of FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        if shared is not None:
            connection.execute(
                "INSERT INTO state (call, key, value) SELECT ?, key, value FROM verified_state WHERE call = ?",
                (call_id, shared),
            )
            connection.execute("UPDATE calls SET state_of = NULL WHERE id = ?", (call_id,))
        for name, value in changes.items():
            key = encode(name)  # a name may hold what SQLite's text cannot
            if value is None:
                connection.execute("DELETE FROM state WHERE call = ? AND key = ?", (call_id, key))
            else:
                connection.execute(
                    "INSERT INTO state (call, key, value) VALUES (?, ?, ?)"
                    " ON CONFLICT (call, key) DO UPDATE SET value = excluded.value",
                    (call_id, key, value),
                )

    def clear_state(self, connection: sqlite3.Connection, call_id: int) -> None:
        """Forget the state of a call whose state object was replaced; the new one is written right after."""
        connection.execute("UPDATE calls SET state_of = NULL WHERE id = ?", (call_id,))
        connection.execute("DELETE FROM state WHERE call = ?", (call_id,))

    def state(self, call_id: int) -> dict[str, Any]:
        """Return the agent's state as of a call's head."""
        source = self.store.read_one("SELECT coalesce(state_of, id) FROM verified_calls WHERE id = ?", call_id)[0]
        if source != call_id:
            self.store.refuse_incomplete(source)
        rows = self.store.read("SELECT key, value FROM verified_state WHERE call = ?", source)
        return {decode(key): decode(value) for key, value in rows}

    def write_messages(self, connection: sqlite3.Connection, lineage: int, rows: list[tuple[int, str]]) -> None:
        """Append messages to the log."""
        connection.executemany(
            "INSERT INTO messages (lineage, seq, data) VALUES (?, ?, ?)", [(lineage, seq, data) for seq, data in rows]
        )

    def overwrite_message(self, connection: sqlite3.Connection, lineage: int, seq: int, data: str) -> None:
        """Overwrite a message: only a redaction does this."""
        place = (lineage, seq)
        before = connection.execute("SELECT data FROM messages WHERE lineage = ? AND seq = ?", place).fetchone()[0]
        connection.execute("UPDATE messages SET data = ? WHERE lineage = ? AND seq = ?", (data, *place))
        _blobs.forget(connection, before)

    @reading()
    def last_ranges(self, call_id: int, lineage: int) -> list[list[int]]:
        """Return the messages in sight when the call before ``call_id`` in the same log was written last."""
        rows = self.store.read(
            "SELECT heads.data FROM calls JOIN verified_heads heads ON heads.call = calls.id"
            " WHERE calls.lineage = ? AND calls.id < ? AND heads.part = 'progress' ORDER BY calls.id DESC LIMIT 1",
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
                "SELECT data FROM verified_messages WHERE lineage = ? AND seq BETWEEN ? AND ? ORDER BY seq",
                lineage,
                first,
                last,
            )
            if len(rows) != last - first + 1:
                raise damaged(self.store.path, f"messages {first} to {last} of call {lineage} are not all there")
            found.extend(data for (data,) in rows)
        return found

    def results(self, step_ids: list[int]) -> dict[int, Any]:
        """Return the recorded results of many steps."""
        rows = self.store.read(
            "SELECT id, result FROM verified_steps WHERE id IN (SELECT value FROM json_each(?))", json.dumps(step_ids)
        )
        if len(rows) != len(set(step_ids)):
            raise damaged(self.store.path, "steps that a message refers to are not all there")
        return {step_id: decode(result) for step_id, result in rows}

    def input_of(self, call_id: int) -> Any:
        """Return the input of a call."""
        text = self.store.read_one("SELECT input FROM verified_calls WHERE id = ?", call_id)[0]
        return None if text is None else decode(text)

    def insert_answers(self, connection: sqlite3.Connection, call_id: int, answers: dict[str, Any]) -> None:
        """Record a person's answers."""
        now = time.time()
        rows = [(call_id, interrupt_id, encode(answer, "The answer"), now) for interrupt_id, answer in answers.items()]
        connection.executemany(
            "INSERT OR REPLACE INTO answers (call, interrupt_id, answer, at) VALUES (?, ?, ?, ?)", rows
        )
        connection.executemany(
            "DELETE FROM replies WHERE call = ? AND interrupt_id = ?", [(call_id, name) for name in answers]
        )

    def replies(self, call_id: int) -> dict[str, Any]:
        """Return the answers that were given from outside, and that the call has not taken up yet."""
        rows = self.store.read("SELECT interrupt_id, answer FROM verified_replies WHERE call = ?", call_id)
        return {interrupt_id: decode(answer) for interrupt_id, answer in rows}

    def answers(self, call_id: int, given: Any = None) -> dict[str, Any]:
        """Return the recorded answers of a call; also those that it began with, if ``given`` is its input."""
        rows = self.store.read("SELECT interrupt_id, answer FROM verified_answers WHERE call = ?", call_id)
        return {**(answers_in(given) or {}), **{interrupt_id: decode(answer) for interrupt_id, answer in rows}}

    def config(self, config_id: int) -> dict[str, Any]:
        """Return what an agent or orchestrator was made of."""
        row = self.store.read_one("SELECT data FROM verified_configs WHERE id = ?", config_id)
        found: dict[str, Any] = json.loads(row[0])
        return found

    def config_id(self, connection: sqlite3.Connection, digest: str, data: dict[str, Any]) -> int:
        """Record what an agent is made of, once; return its id."""
        connection.execute("INSERT OR IGNORE INTO configs (digest, data) VALUES (?, ?)", (digest, json.dumps(data)))
        return int(connection.execute("SELECT id FROM configs WHERE digest = ?", (digest,)).fetchone()[0])
