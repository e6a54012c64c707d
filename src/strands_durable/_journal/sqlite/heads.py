"""The recorded heads, states, messages, answers and configs of calls: every SQL statement about them; the rest: `journal`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from ..._records.calls import CallProgress
from ..._records.codec import decode, encode
from ..._records.executions import ExecutionStatus
from ..._records.keys import is_model_key
from ..._records.questions import answers_in
from ..unreadable import reading
from . import blobs
from .connection import Connection
from .database import Store, damaged


class Shelf:
    """What a call carries from step to step, by the ids of calls and logs."""

    store: Store

    @property
    def _connection(self) -> Connection:
        return self.store.connection

    def write_head(self, call_id: int, parts: Iterable[tuple[str, str]]) -> None:
        """Overwrite parts of a call's head."""
        for part, data in parts:
            self._connection.put("heads", call=call_id, part=part, data=data)

    @reading()
    def head(self, call_id: int) -> tuple[CallProgress, dict[str, str]]:
        """Return where a call stands, and the other parts of its head."""
        self.store.refuse_incomplete(call_id)
        parts = dict(self.store.rows("heads", "part, data", "call = ?", call_id))
        return CallProgress(**json.loads(parts.pop("progress"))), parts

    def withdraw(self, call_id: int, key: str, attempt: int) -> None:
        """Take back the intent of a step that surely has not begun: it is not in doubt."""
        where = "call = ? AND key = ? AND attempt = ? AND status = 'started'"
        if self._connection.delete("steps", where, call_id, key, attempt) or not is_model_key(key):
            return
        for (data,) in self._connection.rows("heads", "data", "call = ? AND part = 'progress'", call_id):
            progress = json.loads(data)  # a model call has no row before it has an answer, its intent is in the head
            if (progress["attempt"], progress["resume"]) == (attempt, "model"):
                self._connection.put(
                    "heads", call=call_id, part="progress", data=json.dumps({**progress, "waits": True})
                )

    @reading()
    def closing(self, call_id: int) -> CallProgress:
        """Return where a call has come to; a failed one beyond its head."""
        progress, parts = self.head(call_id)
        return CallProgress(**json.loads(parts["closing"])) if "closing" in parts else progress

    def share_state(self, call_id: int, lineage: int, found: dict[str, str]) -> bool:
        """Let a new call share the state with which the one before it completed, if it found just that."""
        rows = self._connection.execute(
            "SELECT coalesce(state_of, id), status FROM calls WHERE lineage = ? AND id < ? ORDER BY id DESC LIMIT 1",
            (lineage, call_id),
        ).fetchall()
        if not rows or rows[0][1] != ExecutionStatus.COMPLETED.value:
            return False
        if dict(self._connection.rows("state", "key, value", "call = ?", rows[0][0])) != {
            encode(name): blobs.referring(value) for name, value in found.items()
        }:
            return False
        self._connection.update("calls", {"state_of": rows[0][0]}, "id = ?", call_id)
        return True

    def write_state(self, call_id: int, changes: dict[str, str | None]) -> None:
        """Apply changes of the agent's state; None deletes. A call that shared its state gets one of its own first."""
        shared = self._connection.execute("SELECT state_of FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        if shared is not None:
            for key, value in self._connection.rows("state", "key, value", "call = ?", shared):
                self._connection.insert("state", call=call_id, key=key, value=value)
            self._connection.update("calls", {"state_of": None}, "id = ?", call_id)
        for name, value in changes.items():
            key = encode(name)  # a name may hold what SQLite's text cannot
            if value is None:
                self._connection.delete("state", "call = ? AND key = ?", call_id, key)
            else:
                self._connection.put("state", call=call_id, key=key, value=value)

    def clear_state(self, call_id: int) -> None:
        """Forget the state of a call whose state object was replaced; the new one is written right after."""
        self._connection.update("calls", {"state_of": None}, "id = ?", call_id)
        self._connection.delete("state", "call = ?", call_id)

    def state(self, call_id: int) -> dict[str, Any]:
        """Return the agent's state as of a call's head."""
        source = self.store.row("calls", "state_of", "id = ?", call_id)[0] or call_id
        if source != call_id:
            self.store.refuse_incomplete(source)
        rows = self.store.rows("state", "key, value", "call = ?", source)
        return {decode(key): decode(value) for key, value in rows}

    def write_messages(self, lineage: int, rows: list[tuple[int, str]]) -> None:
        """Append messages to the log."""
        for seq, data in rows:
            self._connection.insert("messages", lineage=lineage, seq=seq, data=data)

    def overwrite_message(self, lineage: int, seq: int, data: str) -> None:
        """Overwrite a message: only a redaction does this."""
        place = (lineage, seq)
        before = self._connection.execute("SELECT data FROM messages WHERE lineage = ? AND seq = ?", place).fetchone()[
            0
        ]
        self._connection.update("messages", {"data": data}, "lineage = ? AND seq = ?", *place)
        self._connection.forget(before)

    @reading()
    def last_ranges(self, call_id: int, lineage: int) -> list[list[int]]:
        """Return the messages in sight when the call before ``call_id`` in the same log was written last."""
        rows = self.store.rows(
            "heads",
            "data",
            "part = 'progress' AND call IN (SELECT id FROM calls WHERE lineage = ? AND id < ?) ORDER BY call DESC LIMIT 1",
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
            rows = self.store.rows(
                "messages", "data", "lineage = ? AND seq BETWEEN ? AND ? ORDER BY seq", lineage, first, last
            )
            if len(rows) != last - first + 1:
                raise damaged(self.store.path, f"messages {first} to {last} of call {lineage} are not all there")
            found.extend(data for (data,) in rows)
        return found

    def results(self, step_ids: list[int]) -> dict[int, Any]:
        """Return the recorded results of many steps."""
        where = "id IN (SELECT value FROM json_each(?))"
        rows = self.store.rows("steps", "id, result", where, json.dumps(step_ids))
        if len(rows) != len(set(step_ids)):
            raise damaged(self.store.path, "steps that a message refers to are not all there")
        return {step_id: decode(result) for step_id, result in rows}

    def input_of(self, call_id: int) -> Any:
        """Return the input of a call."""
        text = self.store.row("calls", "input", "id = ?", call_id)[0]
        return None if text is None else decode(text)

    def insert_answers(self, call_id: int, answers: dict[str, Any]) -> None:
        """Record a person's answers."""
        now = time.time()
        for name, answer in answers.items():
            self._connection.put(
                "answers", call=call_id, interrupt_id=name, answer=encode(answer, "The answer"), at=now
            )
            self._connection.delete("replies", "call = ? AND interrupt_id = ?", call_id, name)

    def replies(self, call_id: int) -> dict[str, Any]:
        """Return the answers that were given from outside, and that the call has not taken up yet."""
        rows = self.store.rows("replies", "interrupt_id, answer", "call = ?", call_id)
        return {interrupt_id: decode(answer) for interrupt_id, answer in rows}

    def answers(self, call_id: int, given: Any = None) -> dict[str, Any]:
        """Return the recorded answers of a call; also those that it began with, if ``given`` is its input."""
        rows = self.store.rows("answers", "interrupt_id, answer", "call = ?", call_id)
        return {**(answers_in(given) or {}), **{interrupt_id: decode(answer) for interrupt_id, answer in rows}}

    def config(self, config_id: int) -> dict[str, Any]:
        """Return what an agent or orchestrator was made of."""
        row = self.store.row("configs", "data", "id = ?", config_id)
        found: dict[str, Any] = json.loads(row[0])
        return found

    def config_id(self, digest: str, data: dict[str, Any]) -> int:
        """Record what an agent is made of, once; return its id."""
        found = self._connection.execute("SELECT id FROM configs WHERE digest = ?", (digest,)).fetchone()
        return int(found[0]) if found else self._connection.insert("configs", digest=digest, data=json.dumps(data))
