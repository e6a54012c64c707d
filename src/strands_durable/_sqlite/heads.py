"""The heads of calls: the small state that is needed to resume, and the agent's state. What they were is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .._journal.unreadable import reading
from .._records.calls import CallProgress
from .._records.codec import decode, encode
from .._records.executions import ExecutionStatus
from . import blobs
from .encryption.sealing import config_name
from .recorded import Recorded

_SMALL = 4096
"""Heads of this length are remembered by the process that writes them."""


class Heads(Recorded):
    """Head and state of each call of one execution, and what its agents were made of."""

    def write_head(self, call_id: int, parts: Iterable[tuple[str, str]]) -> None:
        """Overwrite parts of a call's head; what they were when earlier steps ended is kept apart."""
        self._loaded = None  # the call runs again, and its results are in its messages
        for part, data in parts:
            known = self._heads.pop((call_id, part), None)
            if known is None:
                self._put("heads", "past_heads", {"call": call_id, "part": part}, {"data": data})
            else:
                self._replace_known(call_id, part, data, known)
            self._remember(call_id, part, data)

    def _remember(self, call_id: int, part: str, data: str, version: int | None = None) -> None:
        if self.store.keeps_past and len(data) < _SMALL and not blobs.has_bytes(data):
            self._heads[call_id, part] = data, self.last_number() if version is None else version

    def _replace_known(self, call_id: int, part: str, data: str, known: tuple[str, int]) -> None:
        """Overwrite a part of a head that this object wrote itself or has read, without reading the row."""
        (before, since), number = known, self.last_number()
        if since < number:
            self._connection.insert("past_heads", call=call_id, part=part, until=number, since=since, data=before)
        self._connection.replace("heads", before, call=call_id, part=part, data=data, version=number)

    def forget_part(self, call_id: int, part: str) -> None:
        """Forget a part of a call's head, and what it was: only a redaction does this."""
        self._heads.pop((call_id, part), None)
        for table in ("heads", "past_heads") if self.store.keeps_past else ("heads",):
            self._connection.delete(table, "call = ? AND part = ?", call_id, part)

    @reading()
    def head(self, call_id: int) -> tuple[CallProgress, dict[str, str]]:
        """Return where a call stands, and the other parts of its head."""
        self.store.refuse_incomplete(call_id)
        columns = "part, data, version" if self.store.keeps_past else "part, data"
        parts = {}
        for part, data, *version in self.store.rows("heads", columns, "call = ?", call_id):
            parts[part] = data
            self._remember(call_id, part, data, *version)
        return CallProgress(**json.loads(parts.pop("progress"))), parts

    @reading()
    def closing(self, call_id: int) -> CallProgress:
        """Return where a call has come to; a failed one beyond its head."""
        progress, parts = self.head(call_id)
        return CallProgress(**json.loads(parts["closing"])) if "closing" in parts else progress

    def share_state(self, call_id: int, lineage: int, found: dict[str, str]) -> bool:
        """Let a new call share the state with which the one before it completed, if it found just that."""
        self._forget_states()
        rows = self._connection.execute(
            "SELECT coalesce(state_of, id), status FROM calls WHERE lineage = ? AND id < ? ORDER BY id DESC LIMIT 1",
            (lineage, call_id),
        ).fetchall()
        if not rows or rows[0][1] != ExecutionStatus.COMPLETED.value:
            return False
        if dict(self._connection.rows("state", "key, value", "call = ?", rows[0][0])) != {
            encode(name): self._connection.referring(value) for name, value in found.items()
        }:
            return False
        self._connection.update("calls", {"state_of": rows[0][0]}, "id = ?", call_id)
        return True

    def write_state(self, call_id: int, changes: dict[str, str | None]) -> None:
        """Apply changes of the agent's state; None deletes. A call that shared its state gets one of its own first."""
        self._forget_states()
        shared = self._connection.execute("SELECT state_of FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        if shared is not None:
            for key, value in self._connection.rows("state", "key, value", "call = ?", shared):
                self._connection.insert("state", call=call_id, key=key, value=value)
            self._connection.update("calls", {"state_of": None}, "id = ?", call_id)
        for name, value in changes.items():
            key = encode(name)  # a name may hold what SQLite's text cannot
            if value is None:
                self._keep_past("state", "past_state", {"call": call_id, "key": key})
                self._connection.delete("state", "call = ? AND key = ?", call_id, key)
            else:
                self._put("state", "past_state", {"call": call_id, "key": key}, {"value": value})

    def clear_state(self, call_id: int) -> None:
        """Forget the state of a call whose state object was replaced; the new one is written right after."""
        self._forget_states()
        self._keep_shared(call_id)
        self._connection.update("calls", {"state_of": None}, "id = ?", call_id)
        for (key,) in self._connection.execute("SELECT key FROM state WHERE call = ?", (call_id,)).fetchall():
            self._keep_past("state", "past_state", {"call": call_id, "key": key})
        self._connection.delete("state", "call = ?", call_id)

    def _keep_shared(self, call_id: int) -> None:
        """Copy the state that a call has shared so far, if a step has ended since: a fork may go back to it."""
        shared = self._connection.execute("SELECT state_of FROM calls WHERE id = ?", (call_id,)).fetchone()[0]
        number = self.last_number()
        if shared is None or not number or not self.store.keeps_past:
            return
        for key, value in self._connection.rows("state", "key, value", "call = ?", shared):
            self._connection.put("past_state", call=call_id, key=key, until=number, since=0, value=value)

    def state(self, call_id: int) -> dict[str, Any]:
        """Return the agent's state as of a call's head."""
        rows = self._states.get(call_id)
        if rows is None:
            source = self._sources.get(call_id)
            if source is None:
                source = self.store.row("calls", "state_of", "id = ?", call_id)[0] or call_id
            if source != call_id:
                self.store.refuse_incomplete(source)
            rows = self.store.rows("state", "key, value", "call = ?", source)
            if self.lease.fence >= 0:  # otherwise another process may be writing it
                self._states = {call_id: rows}
        return {decode(key): decode(value) for key, value in rows}

    def _put(self, table: str, past: str, key: dict[str, Any], cell: dict[str, str]) -> None:
        if not self.store.keeps_past:
            self._connection.put(table, **key, **cell)
            return
        self._keep_past(table, past, key)
        self._connection.put(table, **key, **cell, version=self.last_number())

    def _keep_past(self, table: str, past: str, key: dict[str, Any]) -> None:
        """Copy a row that is about to change, if a step has ended since it was written: a fork may go back to it."""
        if not self.store.keeps_past:
            return
        column = "data" if table == "heads" else "value"
        query = f"SELECT {column}, version FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}"
        found = self._connection.execute(query, [*key.values()]).fetchone()
        number = self.last_number()
        if found is not None and found[1] < number:
            text = self._connection.opened(table, column, tuple(key.values()), found[0])
            self._connection.put(past, **key, until=number, since=found[1], **{column: text})

    def config(self, config_id: int) -> dict[str, Any]:
        """Return what an agent or orchestrator was made of."""
        row = self.store.row("configs", "data", "id = ?", config_id)
        found: dict[str, Any] = json.loads(row[0])
        return found

    def config_id(self, digest: str, data: dict[str, Any]) -> int:
        """Record what an agent is made of, once; return its id."""
        digest = config_name(self._connection, digest)
        found = self._connection.execute("SELECT id FROM configs WHERE digest = ?", (digest,)).fetchone()
        return int(found[0]) if found else self._connection.insert("configs", digest=digest, data=json.dumps(data))
