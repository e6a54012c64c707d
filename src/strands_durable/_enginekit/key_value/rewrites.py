"""What `rekey` has begun to write of an execution, on record before it writes: a kill leaves nothing that no one deletes.

    strands-durable/X/rekey     epochs, each with the last batch that it replaces, and how many pieces its batches may have

A rewrite is over once the head has left the batch that it began from: its swap has succeeded, or never will. Until then nothing
of it is deleted: its process may be alive, and a head that names deleted batches would be a lost execution. So a sweep
reads this record first, and the head after it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import BackendUnavailableError
from .head import Head, Place
from .store import KeyValueStore, Value, WriteError

_TRIES, _LOOKS, _AGAIN_SECONDS = 400, 3, 0.05


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """Batches that are to replace those of a head."""

    epoch: str
    base: Place
    """The last batch that it replaces."""
    pieces: tuple[int, ...]
    """How many pieces each of its batches has at most."""

    def is_over(self, head: Head) -> bool:
        """Return whether its swap has succeeded or never will, by a head that was read after it."""
        return head.last != self.base

    def counts(self, head: Head) -> bool:
        """Return whether its batches count."""
        return any(epoch == self.epoch for epoch, _ in head.log)


class Rewrites:
    """The rewrites that have begun, by the key under which those of an execution are on record."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    async def begin(self, key: str, rewrite: Rewrite) -> None:
        """Record that batches are about to be written."""
        entry = {"base": list(rewrite.base), "pieces": list(rewrite.pieces)}
        await self._change(key, lambda found: {**found, rewrite.epoch: entry})

    async def read(self, key: str) -> list[Rewrite]:
        """Return what is on record, also if the store misses it once."""
        for _ in range(_LOOKS):
            data, _ = await self._store.get(key)
            if data:
                return [
                    Rewrite(epoch=epoch, base=(each["base"][0], each["base"][1]), pieces=tuple(each["pieces"]))
                    for epoch, each in json.loads(data).items()
                ]
        return []

    async def forget(self, key: str, rewrites: list[Rewrite]) -> None:
        """Take rewrites off the record."""
        over = {each.epoch for each in rewrites}
        await self._change(key, lambda found: {epoch: each for epoch, each in found.items() if epoch not in over})

    async def _change(self, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for _ in range(_TRIES):
            data, etag = await self._store.get(key)
            found = json.loads(data) if data else {}
            if data and change(found) == found:
                return
            new = json.dumps(change(found), separators=(",", ":")).encode()
            try:
                await self._store.save(Value(key=key, data=new, etag=etag))
            except WriteError:
                await asyncio.sleep(random.uniform(0, _AGAIN_SECONDS))  # another rekey, or an answer was lost
            else:
                return
        raise BackendUnavailableError(self._store.where, f"the store refuses to change {key!r}")
