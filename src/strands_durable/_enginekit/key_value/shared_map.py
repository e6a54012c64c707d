"""A map of names to times that many processes change: executions, those to wake, workers.

It is spread over some values of a key-value store, each changed by compare-and-swap. What a full one holds is moved to a page,
whose name is random: no other writer moves entries to it.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

from ...errors import BackendUnavailableError
from .store import PREFIX, KeyValueStore, Value, WriteError

_PAGE, _TRIES, _LOOKS = 500, 400, 3


class SharedMap:
    """A map in a key-value store.

    Args:
        store: The store.
        name: Its name in the store; no execution id begins with a hyphen.
        shards: Over how many values it is spread.
    """

    def __init__(self, store: KeyValueStore, name: str, shards: int = 16) -> None:
        self._store, self._name, self._shards = store, name, shards

    def _key(self, shard: int) -> str:
        return f"{PREFIX}/-{self._name}/{shard}"

    @property
    def keys(self) -> list[str]:
        """The values that it is spread over."""
        return [self._key(shard) for shard in range(self._shards)]

    def _shard(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._shards

    async def put(self, name: str, at: float) -> None:
        """Add an entry, or change its time."""
        key = self._key(self._shard(name))
        for _ in range(_TRIES):
            found, etag = await self._read(key)
            if found["items"].get(name) == at:
                return
            if len(found["items"]) >= _PAGE:
                found = {"pages": [*found["pages"], await self._moved(key, found["items"])], "items": {}}
            if await self._swap(key, etag, found["pages"], {**found["items"], name: at}):
                return
        raise self._unwritable()

    async def _moved(self, key: str, items: dict[str, float]) -> str:
        """Write entries to a page of their own, and return its name."""
        name = uuid.uuid4().hex[:12]
        page = Value(key=f"{key}.{name}", data=_stored([], items))
        await self._store.patiently(lambda: self._store.save(page))
        return name

    async def get(self, name: str) -> float | None:
        """Return the time of an entry; None if there is none."""
        key = self._key(self._shard(name))
        found, _ = await self._read(key)
        if name in found["items"]:
            return float(found["items"][name])
        pages = [f"{key}.{page}" for page in found["pages"]]
        older = await self._store.get_many(pages)
        times = [json.loads(older[page])["items"].get(name) for page in pages if page in older]
        return next((float(at) for at in reversed(times) if at is not None), None)

    async def discard(self, entries: Mapping[str, float | None]) -> None:
        """Remove entries; those with a time only if they have it."""
        for shard in {self._shard(name) for name in entries}:
            key = self._key(shard)
            pages = await self._discard(key, entries)
            for page in pages:
                await self._discard(f"{key}.{page}", entries)

    async def _discard(self, key: str, entries: Mapping[str, float | None]) -> list[str]:
        for _ in range(_TRIES):
            found, etag = await self._read(key)
            pages: list[str] = found["pages"]
            items = {
                name: at
                for name, at in found["items"].items()
                if name not in entries or entries[name] not in (None, at)
            }
            if len(items) == len(found["items"]) or await self._swap(key, etag, pages, items):
                return pages
        raise self._unwritable()

    def _unwritable(self) -> BackendUnavailableError:
        return BackendUnavailableError(self._store.where, f"the store refuses to change the list {self._name!r}")

    async def items(self) -> dict[str, float]:
        """Return all entries."""
        shards = await self._store.get_many(self.keys)
        pages = [f"{key}.{page}" for key, data in shards.items() for page in json.loads(data)["pages"]]
        older = await self._store.get_many(pages)
        found = [*(older[page] for page in pages if page in older), *shards.values()]
        every = [json.loads(data)["items"] for data in found]
        return {name: at for items in every for name, at in items.items()}

    async def every_item(self) -> dict[str, float]:
        """Return all entries, also those of a value that the store misses once."""
        found: dict[str, float] = {}
        for _ in range(_LOOKS):
            found |= await self.items()
        return found

    async def _read(self, key: str) -> tuple[dict[str, Any], str]:
        data, etag = await self._store.get(key)
        return json.loads(data) if data else {"pages": [], "items": {}}, etag

    async def _swap(self, key: str, etag: str, pages: list[str], items: dict[str, float]) -> bool:
        try:
            await self._store.save(Value(key=key, data=_stored(pages, items), etag=etag))
        except WriteError:
            await asyncio.sleep(random.uniform(0, 0.05))  # others want it, too
            return False
        return True


def _stored(pages: list[str], items: dict[str, float]) -> bytes:
    return json.dumps({"pages": pages, "items": items}, separators=(",", ":")).encode()
