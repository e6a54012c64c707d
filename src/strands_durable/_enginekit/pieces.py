"""Splits data that is larger than one payload into pieces, each sent on its own; a batch that refers to them makes them count.

A piece is identified by its digest. If a worker sends one twice, or dies before the last, nothing has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from .._records.change_sets import ChangeSet
from .._records.crash_points import reach
from .payloads import PACKED

PIECES = "pieces"
"""Used as a table's name, for the digests of the pieces that packed rows were split into."""


class Piece(TypedDict):
    """A part of data that is too large for one payload."""

    digest: str
    data: str


class Pieces:
    """Change sets to send to one execution, in pieces of at most ``size`` bytes if they are too large."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pieces: list[Piece] = []

    def put(self, packed: str) -> ChangeSet:
        """Split packed rows into pieces; return a reference to them."""
        parts = [packed[begin : begin + self._size] for begin in range(0, len(packed), self._size)]
        pieces: list[Piece] = [{"digest": _digest(part), "data": part} for part in parts]
        self._pieces += pieces
        return {PIECES: [piece["digest"] for piece in pieces]}

    def take(self) -> list[Piece]:
        """Return the pieces to send before the reference to them."""
        pieces, self._pieces = self._pieces, []
        return pieces

    @property
    def size(self) -> int:
        """How many bytes there are to send."""
        return sum(len(piece["data"]) for piece in self._pieces)

    async def send(self, signal: Callable[[Piece], Awaitable[None]]) -> None:
        """Send all pieces; the reference to them may be sent after that."""
        for piece in self._pieces:
            await signal(piece)
            reach("piece:after")


class Parcels:
    """The pieces that a history holds."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def add(self, piece: Piece | None) -> None:
        """Add a piece, unless its digest does not match."""
        if piece is not None and _digest(piece["data"]) == piece["digest"]:
            self._found[piece["digest"]] = piece["data"]

    def joined(self, rows: ChangeSet) -> ChangeSet:
        """Return rows as they were before they were split into pieces."""
        if PIECES not in rows:
            return rows
        return {PACKED: "".join(self._found[digest] for digest in rows[PIECES])}

    def has(self, rows: ChangeSet) -> bool:
        """Return True if all pieces of these rows have arrived."""
        return all(digest in self._found for digest in rows.get(PIECES, ()))


def _digest(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()


def piece_of(given: Any) -> Piece | None:
    """Return a piece; None if the value is malformed."""
    if (
        not isinstance(given, dict)
        or not isinstance(given.get("digest"), str)
        or not isinstance(given.get("data"), str)
    ):
        return None
    return {"digest": given["digest"], "data": given["data"]}
