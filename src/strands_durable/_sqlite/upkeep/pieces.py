"""Deleting much in small transactions: others write in between, and one execution that is damaged does not stop the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import BackendUnavailableError
from ..connection import Connection
from ..database import Store, is_damage

_AT_ONCE = 1_000


@dataclass
class Progress:
    """How far a deletion in pieces has come; lost with the process, which costs one more look at what is done."""

    at_once: int = _AT_ONCE
    """How many executions a piece begins at most; 1 once one of them is known to be damaged, to find out which."""
    failed: dict[int, BackendUnavailableError] = field(default_factory=dict)
    """Executions that are left alone because of damage, by number."""
    ended: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By execution: run and number of the last call that nothing is left to do for."""
    found: list[int] = field(default_factory=list)
    """The executions of the last piece."""

    def marked(self, connection: Connection, query: str) -> list[int]:
        """Return the executions of the next piece, in order."""
        rows = (row_id for (row_id,) in connection.execute(query))
        self.found = []
        for row_id in rows:
            if row_id not in self.failed:
                self.found.append(row_id)
            if len(self.found) == self.at_once:
                break
        return self.found

    def note(self, error: BackendUnavailableError) -> None:
        """Leave out the execution that a piece failed at, or find out which it is; what is no damage is raised."""
        if not is_damage(error) or not self.found:
            raise error
        if len(self.found) == 1:
            self.failed[self.found[0]] = error
        self.at_once = 1
        self.ended.clear()  # the piece was rolled back


Piece = Callable[[Connection, int, Progress], bool]
"""Deletes so many bytes; True if there are no more."""
Stopped = Callable[[], bool]
"""Asked between two pieces: whether the rest is left to another pass."""


def never() -> bool:
    """Continue until all is done."""
    return False


def delete_in_pieces(
    store: Store, label: str, piece: Piece, most_bytes: int, is_stopped: Stopped = never
) -> dict[int, BackendUnavailableError]:
    """Delete until nothing is left but executions that are damaged, or until it is stopped; return the damaged by number."""
    progress = Progress()
    is_over = False
    while not is_over and not is_stopped():
        began = time.monotonic()
        try:
            with store.transaction(label, lasting=False) as connection:
                is_over = piece(connection, most_bytes, progress)
        except BackendUnavailableError as error:
            progress.note(error)
        if not is_over:
            time.sleep(time.monotonic() - began)
    return progress.failed
