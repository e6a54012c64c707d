"""The conversation as an append-only log, and which of its messages are visible.

A message is written once. Dropping, replacing or reordering messages, as conversation managers do, writes nothing but new
ranges; a message that was changed is appended as a new one. Hashes of the content, valid within one
process only, show exactly whether a message is still the one that was written.

Hashing every message is most of what the length of a conversation costs, so that it is done once per turn, before a model call.
After that the conversation is compared with the copy of it that Strands made for the model, which is several times as fast: the
texts in both are the same objects. A value that only changed its type (1 became True) is noticed before the next model call.
"""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Callable
from operator import is_
from typing import Any

from .._records.content_hash import content_hash

Message = Any
Describe = Callable[[Message], str]
Row = tuple[int, str]


def _is_equal(one: list[Message], other: list[Message]) -> bool:
    try:
        return one == other
    except Exception:  # what is not plain data may refuse to be compared
        return False


def _marks(messages: list[Message]) -> list[int]:
    """Mark all messages, in one go where all are plain."""
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
        self._copies: list[Message] = []
        """What the first of the written messages are compared with, as long as there is such a copy."""

    def load(self, messages: list[Message], ranges: list[list[int]], next_seq: int) -> None:
        """Take over messages that were read back."""
        self.is_known = True
        self.ranges = [list(bounds) for bounds in ranges]
        self._seqs = [seq for first, last in ranges for seq in range(first, last + 1)]
        self._marks, self._copies = _marks(messages), []
        self.next_seq = next_seq

    def holds(self, messages: list[Message]) -> bool:
        """Return True if ``messages`` are exactly what is written."""
        return _marks(messages) == self._marks

    def compare_with(self, copies: list[Message], messages: list[Message]) -> None:
        """From now on, compare ``messages``, which were just written, with ``copies``, if that is what these are.

        A middleware may have given the model other messages, or the conversation itself.
        """
        is_copy = _is_equal(copies, messages) and not any(map(is_, copies, messages))
        self._copies = list(copies) if is_copy else []  # a list of our own: that of the model call may grow

    def forget_copies(self) -> None:
        """Hash all messages the next time; the copies take as much memory as the conversation without its texts."""
        self._copies = []

    def _marked(self, messages: list[Message]) -> list[int]:
        """Return the marks of ``messages``; those that are like their copies are as they were written."""
        same = len(self._copies)
        if not _is_equal(messages[:same], self._copies):
            same = 0
        return self._marks[:same] + _marks(messages[same:])

    def sync(self, messages: list[Message], describe: Describe) -> list[Row]:
        """Return the rows that make the log hold all of ``messages``."""
        marks = self._marked(messages)
        known = len(self._marks)
        if marks[:known] == self._marks:
            new = list(zip(messages[known:], marks[known:], strict=True))
            return [self._write(message, found, describe) for message, found in new]
        return self._rewrite(messages, marks, describe)

    def _rewrite(self, messages: list[Message], marks: list[int], describe: Describe) -> list[Row]:
        written: dict[int, list[int]] = defaultdict(list)
        for seq, found in zip(reversed(self._seqs), reversed(self._marks), strict=True):
            written[found].append(seq)
        self._seqs, self._marks, self.ranges, self._copies = [], [], [], []
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
