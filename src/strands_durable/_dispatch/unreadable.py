"""Executions that this process could not read: each is put aside, so that none keeps a worker from the others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from .._records.logs import safe_logger
from .._records.registered_types import known_names
from .._sqlite.database import Store
from ..errors import TypeNotRegisteredError, UnreadableError

logger = safe_logger(__name__)

_AGAIN_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class _Put:
    until: float
    """When to look at it again, on the monotonic clock: it may have been repaired."""
    names: frozenset[str] | None
    """The types that were registered, if it is one more that is missing: then nothing else will help."""

    def is_due(self, now: float, names: frozenset[str]) -> bool:
        return now >= self.until if self.names is None else names != self.names


class Aside:
    """The executions that this process could not read; a worker looks for others."""

    def __init__(self) -> None:
        self._put: WeakKeyDictionary[Store, dict[int, _Put]] = WeakKeyDictionary()
        """By the open store: a row of the same number in a file that took its place is another execution."""
        self._logged: dict[tuple[Path, str], str] = {}

    def put(self, store: Store, row_id: int, execution_id: str, error: UnreadableError) -> None:
        """Look at an execution no more for a while; say so once for each reason."""
        names = known_names() if isinstance(error, TypeNotRegisteredError) else None
        self._put.setdefault(store, {})[row_id] = _Put(until=time.monotonic() + _AGAIN_SECONDS, names=names)
        place = (store.path, execution_id)
        if self._logged.get(place) != error.reason:
            self._logged[place] = error.reason
            logger.error(
                "execution_id=<%s>, reason=<%s> | cannot be read, put aside. %s", execution_id, error.reason, error.hint
            )

    def ids(self, store: Store) -> list[int]:
        """Return the rows that are not looked at now."""
        now, names = time.monotonic(), known_names()
        return [row_id for row_id, put in list(self._put.get(store, {}).items()) if not put.is_due(now, names)]


aside = Aside()
