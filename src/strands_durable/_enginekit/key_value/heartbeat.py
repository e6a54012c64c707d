"""Heartbeats of workers: one counter in the store for each worker, not for each execution.

Whether an owner is alive decides when another worker takes over, not whether that is safe: the swap of the head decides that. A
worker counts as dead once its counter has not changed for some seconds, by the clock of the process that looks.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from ..._journal.owner import Owner
from .shared_map import SharedMap
from .store import PREFIX, KeyValueStore, Value, WriteError

_SILENT_SECONDS = 5.0
_FORGOTTEN_SECONDS = 60.0
_TTL_SECONDS = 10
_here: set[tuple[int, str]] = set()
"""The workers of this process, with its number: a forked one does not have them."""


class Workers:
    """The workers that share a store."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store, self._map = store, SharedMap(store, "workers", shards=1)
        self._seen: dict[str, tuple[bytes, float]] = {}

    async def beating(self) -> set[str]:
        """Return the workers that have a heartbeat, after a single look."""
        names = list(await self._map.items())
        beats = await self._store.get_many([_key(name) for name in names])
        return {name for name in names if _key(name) in beats}

    async def seems_alive(self, owner: str | None) -> bool:
        """Return whether to show an owner as alive, after a single look."""
        known = self._known(owner)
        return bool((await self._store.get(_key(_name(owner))))[0]) if known is None else known

    async def is_alive(self, owner: str | None) -> bool:
        """Return whether an owner may be alive, so that it is not replaced; a value that is missing is no sign of death."""
        known = self._known(owner)
        if known is not None:
            return known
        name = _name(owner)
        self._note(name, (await self._store.get(_key(name)))[0])
        return self._silent_seconds(name) < _SILENT_SECONDS

    async def watch(self, heartbeat: Heartbeat, also: Sequence[str] = ()) -> dict[str, bytes]:
        """Look at all workers, so that it is known how long they have been silent.

        Return the values of further keys, which are read in the same request.
        """
        names = list(await self._map.items())
        beats = await self._store.get_many([*also, *(_key(name) for name in names)])
        for name in names:
            self._note(name, beats.get(_key(name), b""))
        dead = [name for name in names if self._silent_seconds(name) > _FORGOTTEN_SECONDS]
        await self._map.discard(dict.fromkeys(dead))
        if heartbeat.has_joined and heartbeat.name not in names:
            await heartbeat.join()  # while this process was frozen, another one has forgotten it
        return {key: beats[key] for key in also if key in beats}

    def _known(self, owner: str | None) -> bool | None:
        """Return whether an owner is alive if that is known without its heartbeat."""
        if owner is None or (os.getpid(), _name(owner)) in _here:
            return owner is not None
        found = Owner.parse(owner)
        process = replace(found, started=found.started.rpartition(" ")[0])
        return False if process == Owner.me() or process.is_gone() else None

    def _note(self, name: str, beat: bytes) -> None:
        if name not in self._seen or self._seen[name][0] != beat:
            self._seen[name] = beat, time.monotonic()

    def _silent_seconds(self, name: str) -> float:
        return time.monotonic() - self._seen[name][1]

    async def begin(self) -> Heartbeat:
        """Return the heartbeat of a new worker, which may own executions from now on."""
        found = Heartbeat(self._store, self._map)
        await found.beat()
        return found


class Heartbeat:
    """The heartbeat of one worker."""

    def __init__(self, store: KeyValueStore, others: SharedMap) -> None:
        self.name, self.has_joined = uuid.uuid4().hex[:12], False
        self._store, self._map, self._count = store, others, 0
        _here.add((os.getpid(), self.name))

    async def beat(self) -> None:
        """Show that this worker is alive."""
        self._count += 1
        value = Value(key=_key(self.name), data=str(self._count).encode(), ttl_seconds=_TTL_SECONDS)
        try:
            await self._store.save(value)
        except WriteError:
            pass  # the next one is a second away

    async def join(self) -> None:
        """Add this worker to those that clients may count on."""
        self.has_joined = True
        await self._map.put(self.name, time.time())

    def end(self) -> None:
        """Note that this worker has ended, however it did: what it owns may be claimed."""
        _here.discard((os.getpid(), self.name))

    async def leave(self) -> None:
        """Remove this worker."""
        self.has_joined = False
        self.end()
        await self._store.delete([_key(self.name)])
        await self._map.discard({self.name: None})


def _key(name: str) -> str:
    return f"{PREFIX}/-beats/{name}"


def _name(owner: str | None) -> str:
    return "" if owner is None else Owner.parse(owner).started.rpartition(" ")[2]
