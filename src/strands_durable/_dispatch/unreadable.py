"""Executions that this process could not read: each is put aside, so that none keeps a worker from the others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from .._records.findings import by_reason, few
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
        self._unlogged: list[tuple[str, str]] = []

    def put(self, store: Store, row_id: int, execution_id: str, error: UnreadableError) -> None:
        """Look at an execution no more for a while; `log` says so once for each reason."""
        names = known_names() if isinstance(error, TypeNotRegisteredError) else None
        self._put.setdefault(store, {})[row_id] = _Put(until=time.monotonic() + _AGAIN_SECONDS, names=names)
        place = (store.path, execution_id)
        if self._logged.get(place) != error.reason:
            self._logged[place] = error.reason
            self._unlogged.append((execution_id, f"{error.reason}\n{error.hint}"))

    def log(self) -> None:
        """Log what was put aside since this was called last, in a line for each reason."""
        found, self._unlogged = self._unlogged, []
        for why, ids in by_reason(found).items():
            reason, _, hint = why.partition("\n")
            if len(ids) == 1:
                logger.error("execution_id=<%s>, reason=<%s> | cannot be read, put aside. %s", ids[0], reason, hint)
            else:
                facts = (len(ids), few(ids), reason, hint)
                logger.error("executions=<%d>, execution_ids=<%s>, reason=<%s> | cannot be read, put aside. %s", *facts)

    def ids(self, store: Store) -> list[int]:
        """Return the rows that are not looked at now."""
        now, names = time.monotonic(), known_names()
        return [row_id for row_id, put in list(self._put.get(store, {}).items()) if not put.is_due(now, names)]


aside = Aside()
