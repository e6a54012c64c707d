"""What the parts of the journal share: the store, the execution, and how many of its steps have ended."""

from __future__ import annotations

from ..lease import Lease, Observer
from .connection import Connection


def span(prefix: str) -> tuple[str, str]:
    """Return the bounds between which a key that starts with ``prefix`` sorts."""
    return prefix, prefix + "\U0010ffff"


class Recorded:
    """One execution in a store."""

    def __init__(self, lease: Lease, observer: Observer | None = None) -> None:
        self.lease, self.store, self._observer = lease, lease.store, observer
        self.execution_id, self.run = lease.execution_id, lease.run
        self.with_chunks: set[tuple[int, str]] = set()
        """Call and key of the running steps whose chunks are written for readers."""
        self._number: int | None = None

    @property
    def _connection(self) -> Connection:
        return self.store.connection

    def last_number(self) -> int:
        """Return how many steps of the execution have ended."""
        if self._number is None:
            found = self._connection.execute(
                "SELECT max(steps.number) FROM calls JOIN steps ON steps.call = calls.id WHERE calls.execution = ?",
                (self.lease.row_id,),
            ).fetchone()[0]
            self._number = int(found or 0)
        return self._number
