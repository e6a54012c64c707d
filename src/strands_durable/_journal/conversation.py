"""The conversation as an append-only log, and which of its messages are in sight.

A message is written once. Dropping, replacing or reordering messages, as conversation managers do, writes nothing but new
ranges; a message that was changed is appended as a new one. Marks tell cheaply, and exactly, whether a message is still the
one that was written: they are hashes of its content, good for one process only.
"""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from .._records.content_hash import content_hash

Message = Any
Describe = Callable[[Message], str]
Row = tuple[int, str]


def _marks(messages: list[Message]) -> list[int]:
    """Mark all messages, in one go where all are plain: it is done three times per turn."""
    dumps = marshal.dumps
    try:
        return [hash(dumps(message, 2)) for message in messages]
    except ValueError:
        return [content_hash(message) for message in messages]


class History:
    """The messages of one agent in one execution, as far as they are written."""

    def __init__(self) -> None:
        self.is_known = False
        """False until it was read from the log, or begun with it."""
        self.next_seq = 0
        self.ranges: list[list[int]] = []
        """The messages in sight, as inclusive ranges of the log."""
        self._seqs: list[int] = []
        self._marks: list[int] = []

    def load(self, messages: list[Message], ranges: list[list[int]], next_seq: int) -> None:
        """Take over messages that were read back."""
        self.is_known = True
        self.ranges = [list(bounds) for bounds in ranges]
        self._seqs = [seq for first, last in ranges for seq in range(first, last + 1)]
        self._marks = _marks(messages)
        self.next_seq = next_seq

    def holds(self, messages: list[Message]) -> bool:
        """Say whether ``messages`` are just what is written."""
        return _marks(messages) == self._marks

    def sync(self, messages: list[Message], describe: Describe) -> list[Row]:
        """Return the rows that make the log hold all of ``messages``."""
        marks = _marks(messages)
        known = len(self._marks)
        if marks[:known] == self._marks:
            new = list(zip(messages[known:], marks[known:], strict=True))
            return [self._write(message, found, describe) for message, found in new]
        return self._rewrite(messages, marks, describe)

    def _rewrite(self, messages: list[Message], marks: list[int], describe: Describe) -> list[Row]:
        written: dict[int, list[int]] = defaultdict(list)
        for seq, found in zip(reversed(self._seqs), reversed(self._marks), strict=True):
            written[found].append(seq)
        self._seqs, self._marks, self.ranges = [], [], []
        rows = []
        for message, found in zip(messages, marks, strict=True):
            if written[found]:
                self._see(written[found].pop(), found)
            else:
                rows.append(self._write(message, found, describe))
        return rows

    def _write(self, message: Message, found: int, describe: Describe) -> Row:
        row = (self.next_seq, describe(message))
        self._see(self.next_seq, found)
        self.next_seq += 1
        return row

    def _see(self, seq: int, found: int) -> None:
        self._seqs.append(seq)
        self._marks.append(found)
        if self.ranges and self.ranges[-1][1] == seq - 1:
            self.ranges[-1][1] = seq
        else:
            self.ranges.append([seq, seq])

    def replaced(self, message: Message) -> int:
        """Take over a change of the last message that was written over its row; return the sequence number."""
        self._marks[-1] = content_hash(message)
        return self._seqs[-1]
