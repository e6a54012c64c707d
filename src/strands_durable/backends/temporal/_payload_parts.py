"""What is larger than one payload, in several: each is a signal, and they count once a batch refers to all of them.

A piece is named by its digest. A worker that sends one twice, or dies before the last, has changed nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import Client

from ..._enginekit.change_sets import ChangeSet
from ..._enginekit.payloads import PayloadStore
from ..._records.crash_points import reach
from ...errors import PayloadTooLargeError
from ._protocol import PACKED, PIECES, Piece

HISTORY_BYTES = 48_000_000
"""How large a history may become. Temporal ends a workflow at 50 MB, and what it ends so cannot be resumed."""
CARRIED_BYTES = 20_000_000
"""How much of it a run may begin with."""


class Pieces:
    """ChangeSet on their way to one run of a workflow, in pieces where they are too large."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def put(self, packed: str) -> ChangeSet:
        """Take packed rows; return what refers to them."""
        size = PayloadStore.limits.max_bytes
        parts = [packed[begin : begin + size] for begin in range(0, len(packed), size)]
        pieces: list[Piece] = [{"digest": _digest(part), "data": part} for part in parts]
        self._pieces += pieces
        return {PIECES: [piece["digest"] for piece in pieces]}

    @property
    def size(self) -> int:
        """How many bytes there are to send."""
        return sum(len(piece["data"]) for piece in self._pieces)

    async def send(self, signal: Callable[[Piece], Awaitable[None]]) -> None:
        """Send them all; what refers to them may be sent then."""
        for piece in self._pieces:
            await signal(piece)
            reach("piece:after")


class Parcels:
    """The pieces that a history holds."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def add(self, piece: Piece | None) -> None:
        """Take a piece, unless it is not what it says it is."""
        if piece is not None and _digest(piece["data"]) == piece["digest"]:
            self._found[piece["digest"]] = piece["data"]

    def joined(self, rows: ChangeSet) -> ChangeSet:
        """Return rows as they were before they were cut into pieces."""
        if PIECES not in rows:
            return rows
        return {PACKED: "".join(self._found[digest] for digest in rows[PIECES])}

    def has(self, rows: ChangeSet) -> bool:
        """Say whether all pieces of rows are here."""
        return all(digest in self._found for digest in rows.get(PIECES, ()))


async def refuse_overflow(client: Client, workflow_id: str, run_id: str, size: int, what: str) -> None:
    """Raise if so much more would bring a history to where Temporal ends the workflow."""
    found = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    known = found.raw_description.workflow_execution_info.history_size_bytes
    if known + size > HISTORY_BYTES:
        raise PayloadTooLargeError(f"{what}, with the history before it,", known + size, HISTORY_BYTES)


def _digest(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()


def piece_of(given: Any) -> Piece | None:
    """Return a piece; None if it is none."""
    if (
        not isinstance(given, dict)
        or not isinstance(given.get("digest"), str)
        or not isinstance(given.get("data"), str)
    ):
        return None
    return {"digest": given["digest"], "data": given["data"]}
