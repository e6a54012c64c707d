"""What the parts of the journal share: the store, the execution, and how many of its steps have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._journal.loaded_steps import LoadedSteps
from .._journal.port import Observer
from .connection import Connection

if TYPE_CHECKING:
    from .lease import Lease


class Recorded:
    """One execution in a store."""

    def __init__(self, lease: Lease, observer: Observer | None = None) -> None:
        self.lease, self.store, self._observer = lease, lease.store, observer
        self._connection: Connection = lease.store.connection
        self.execution_id, self.run = lease.execution_id, lease.run
        self.with_chunks: set[tuple[int, str]] = set()
        """Call and key of the running steps whose chunks are written for readers."""
        self._number: int | None = None
        self._heads: dict[tuple[int, str], tuple[str, int]] = {}
        """The small heads that were written under this lease, with their versions, by call and part."""
        self._states: dict[int, list[tuple[str, str]]] = {}
        """The recorded state of calls, by call, until one is written."""
        self._sources: dict[int, int] = {}
        """The call whose state a call has, by call, as far as it was read."""
        self._intents: dict[int, Sequence[Any]] = {}
        """The rows of started steps that were written under this lease, by step id."""
        self._loaded: LoadedSteps | None = None

    def rolled_back(self) -> None:
        """Forget what this object knows of the journal: a transaction has failed."""
        self._number = None
        self._heads.clear()
        self._intents.clear()
        self._forget_states()
        self._loaded = None

    def _forget_states(self) -> None:
        """Forget what was read of the state: it is about to change."""
        self._states.clear()
        self._sources.clear()

    def last_number(self) -> int:
        """Return how many steps of the execution have ended."""
        if self._number is None:
            found = self._connection.execute(
                "SELECT max(steps.number) FROM calls JOIN steps ON steps.call = calls.id WHERE calls.execution = ?",
                (self.lease.row_id,),
            ).fetchone()[0]
            self._number = int(found or 0)
        return self._number
