"""The recorded messages: append-only, in one log for each agent of an execution."""

from __future__ import annotations

import json

from .._journal.unreadable import reading
from .._records.calls import CallProgress
from .database import damaged
from .recorded import Recorded


class Messages(Recorded):
    """The messages of one execution."""

    def write_messages(self, lineage: int, rows: list[tuple[int, str]]) -> None:
        """Append messages to the log."""
        for seq, data in rows:
            self._connection.insert("messages", lineage=lineage, seq=seq, data=data)

    def overwrite_message(self, lineage: int, seq: int, data: str) -> None:
        """Overwrite a message: only a redaction does this."""
        place = (lineage, seq)
        query = "SELECT data FROM messages WHERE lineage = ? AND seq = ?"
        before = self._connection.execute(query, place).fetchone()[0]
        self._connection.update("messages", {"data": data}, "lineage = ? AND seq = ?", *place)
        self._connection.forget(before)

    @reading()
    def last_ranges(self, call_id: int, lineage: int) -> list[list[int]]:
        """Return the messages in sight when the call before ``call_id`` in the same log was written last."""
        calls = "SELECT id FROM calls WHERE lineage = ? AND id < ?"
        where = f"part = 'progress' AND call IN ({calls}) ORDER BY call DESC LIMIT 1"
        rows = self.store.rows("heads", "data", where, lineage, call_id)
        return CallProgress(**json.loads(rows[0][0])).ranges if rows else []

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
