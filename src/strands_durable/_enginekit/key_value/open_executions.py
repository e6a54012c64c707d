"""The executions that are not at rest, as a list in the store: no execution depends on one client or one message.

A client adds an execution before it commits. Workers check what is on the list, each time after a longer wait, and remove what
has come to rest. Ages are measured by the monotonic clock of the process that looks: those of clients may be wrong.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from .head import Head, Place
from .log import KeyValueLog
from .shared_map import SharedMap
from .store import KeyValueStore

_FIRST_SECONDS, _MAX_SECONDS, _MAX_QUIET_SECONDS = 1.0, 15.0, 60.0


@dataclass
class _Sighting:
    """What this process has seen of an entry."""

    at: float
    since: float
    due: float
    last: Place | None = None
    seconds: float = _FIRST_SECONDS

    def check(self, head: Head | None, now: float) -> float:
        """Note what was found, and return for how long it has not changed."""
        last = None if head is None else head.last
        if last != self.last and self.last is not None:
            self.since, self.seconds = now, _FIRST_SECONDS
        quiet = now - self.since
        self.last = last
        self.seconds = min(2 * self.seconds, _MAX_SECONDS if quiet < _MAX_QUIET_SECONDS else _MAX_QUIET_SECONDS)
        self.due = now + self.seconds * random.uniform(0.9, 1.1)
        return quiet


@dataclass(frozen=True, kw_only=True)
class OpenExecution:
    """An entry of the list that is due for a check."""

    execution_id: str
    at: float
    head: Head | None
    quiet_seconds: float
    """For how long it has not changed, as far as this process has seen."""


class OpenExecutions:
    """The list."""

    def __init__(self, store: KeyValueStore, log: KeyValueLog) -> None:
        self._log, self._map = log, SharedMap(store, "open")
        self._seen: dict[str, _Sighting] = {}

    async def announce(self, execution_id: str) -> None:
        """Note that an execution is about to need a worker."""
        await self._map.put(execution_id, time.time())

    async def confirm(self, execution_id: str) -> bool:
        """Announce an execution again if its entry was removed before the commit; return whether it was."""
        if await self._map.get(execution_id) is not None:
            return False
        await self.announce(execution_id)
        return True

    async def due(self) -> list[OpenExecution]:
        """Return what is to be checked now."""
        entries, now = await self._map.items(), time.monotonic()
        self._seen = {each: seen for each, seen in self._seen.items() if entries.get(each) == seen.at}
        for execution_id, at in entries.items():
            self._seen.setdefault(execution_id, _Sighting(at=at, since=now, due=now + _FIRST_SECONDS))
        due = {each: seen for each, seen in self._seen.items() if seen.due <= now}
        heads = await self._log.heads(list(due))
        return [
            OpenExecution(
                execution_id=each, at=seen.at, head=heads.get(each), quiet_seconds=seen.check(heads.get(each), now)
            )
            for each, seen in due.items()
        ]

    async def close(self, entries: list[OpenExecution]) -> None:
        """Remove entries, unless they were announced again."""
        await self._map.discard({entry.execution_id: entry.at for entry in entries})
