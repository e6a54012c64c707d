"""The log of executions in a key-value store. Each commit is one compare-and-swap of the head, which is then read back.

    strands-durable/X/head        names the batches that count
    strands-durable/X/E.N         batch N of epoch E; E.N.K are its pieces if it is large
    strands-durable/X/ask.P, note a cancel request for the owner in a period of work; why no worker takes it
    strands-durable/X/notices.L   what is to be reported of it in its life L
    strands-durable/X/rekey       what `rekey` has begun to write

Stores differ: one reports a refused swap with another error than the next, one writes the other keys of a transaction that it
refuses, one brings a deleted key back when it is written with an old ETag. So only the head that is read back decides, an
epoch's name is used by one writer, nothing is deleted before the swap, and a removed execution leaves its head. No head has a
time to live: one store sets it apart from the value, so that it could reach a later head of the same id.

With a cipher, batches and notes are encrypted, each bound to its key in the store; heads stay readable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..._records.change_sets import ChangeSet
from ..._records.crash_points import reach
from ...errors import BackendUnavailableError, CipherError, ExecutionNotFoundError
from ..encryption import Contents
from ..log import Entry, StaleError
from .head import REMOVED, Head, Place
from .packing import pack, unpack
from .rewrites import Rewrite, Rewrites
from .store import PREFIX, KeyValueStore, Value, WriteError

if TYPE_CHECKING:
    from .notices import Notices

T = TypeVar("T")
_PIECE_BYTES = 1_000_000
_MISSING_SECONDS = 10.0
"""How long a value that must exist may not be visible."""
_FROZEN_SECONDS = 2.0
_AGAIN_SECONDS, _LOOKS = 0.05, 3
_IN_PIECES = b"P"


def key_of(execution_id: str, part: str) -> str:
    """Return the key of a part of an execution."""
    return f"{PREFIX}/{execution_id}/{part}"


def ask_key(execution_id: str, head: Head) -> str:
    """Return the key of a request to cancel what an execution does now; a late one does not reach what it does later."""
    return key_of(execution_id, f"ask.{head.period}")


def notices_key(execution_id: str, life: str) -> str:
    """Return the key of what is to be reported of an execution."""
    return key_of(execution_id, f"notices.{life}")


class KeyValueLog:
    """Keeps change sets in a key-value store. A position is a `Head`.

    Args:
        store: The store.
        on_append: Called after each append.
        notices: Records what is to be reported of executions.
        contents: Encrypts what is recorded of them.
    """

    def __init__(
        self,
        store: KeyValueStore,
        on_append: Callable[[str, ChangeSet], None] | None = None,
        notices: Notices | None = None,
        contents: Contents | None = None,
    ) -> None:
        self._store, self._on_append, self._notices = store, on_append, notices
        self.contents = contents or Contents(None, store.where)
        self._rewrites = Rewrites(store)
        self._deleting: set[asyncio.Task[None]] = set()

    async def head(self, execution_id: str) -> Head | None:
        """Return the head of an execution; None if it does not exist or was removed."""
        found = await self.stored_head(execution_id)
        return None if found is None or found.status == REMOVED else found

    async def existing_head(self, execution_id: str) -> Head | None:
        """Return the head of an execution that should exist: a store may miss a value that is there, once."""
        head = await self._tombstone_or_head(execution_id)
        return None if head is None or head.status == REMOVED else head

    async def _tombstone_or_head(self, execution_id: str) -> Head | None:
        for _ in range(_LOOKS):
            head = await self.stored_head(execution_id)
            if head is not None:
                return head
            await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def stored_head(self, execution_id: str) -> Head | None:
        """Return the head of an execution, also of one that was removed."""
        data, etag = await self._store.get(key_of(execution_id, "head"))
        return Head.of(data, etag) if data else None

    async def heads(self, execution_ids: list[str]) -> dict[str, Head]:
        """Return the heads of executions, without those that do not exist."""
        keys = {key_of(each, "head"): each for each in execution_ids}
        found = {keys[key]: Head.of(data, "") for key, data in (await self._store.get_many(list(keys))).items()}
        return {each: head for each, head in found.items() if head.status != REMOVED}

    # Reading

    async def read(self, execution_id: str, after: Head | None = None) -> AsyncIterator[Entry]:
        """Yield what was appended."""
        found = await self._complete(execution_id, self._batches, after)
        if found is not None:
            for changes in found[1]:
                yield Entry(position=found[0], changes=changes)

    async def key_ids(self, execution_id: str) -> tuple[Head, set[str | None]] | None:
        """Return the head of an execution, and the ids of the keys of its batches, None for plain text; None if it is gone."""
        found = await self._complete(execution_id, self._key_ids)
        return None if found is None else (found[0], set(found[1]))

    async def _complete(
        self, execution_id: str, ask: Callable[[str, list[Place]], Awaitable[list[T]]], after: Head | None = None
    ) -> tuple[Head, list[T]] | None:
        """Return the head, and what is asked of each batch, once all are found; None if the execution does not exist."""
        deadline = time.monotonic() + _MISSING_SECONDS
        while (head := await self.existing_head(execution_id)) is not None:
            if after is not None and after.life != head.life:
                raise ExecutionNotFoundError(execution_id, self._store.where)
            places = head.batches(after)
            found = await ask(execution_id, places)
            if len(found) == len(places):
                return head, found
            if time.monotonic() > deadline:  # else it was compacted meanwhile, or a write is not visible yet
                raise self._damaged(execution_id)
            await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def _key_ids(self, execution_id: str, places: list[Place]) -> list[str | None]:
        """Return the ids of the keys of those batches that can be found."""
        values = await self._store.get_many([_batch_key(execution_id, place) for place in places])
        first = [next(iter(_piece_keys(key, value)), key) for key, value in values.items()]
        return [self.contents.key_id(data) for data in (await self._store.get_many(first)).values()]

    async def _batches(self, execution_id: str, places: list[Place]) -> list[ChangeSet]:
        """Return batches up to the first that cannot be found."""
        keys = [_batch_key(execution_id, place) for place in places]
        values = await self._store.get_many(keys)
        pieces = {key: _piece_keys(key, values[key]) for key in keys if key in values}
        parts = await self._store.get_many([each for found in pieces.values() for each in found])
        found: list[tuple[bytes, str]] = []
        for key, place in zip(keys, places, strict=True):
            if key not in values or not all(each in parts for each in pieces[key]):
                break
            data = b"".join(parts[each] for each in pieces[key]) or values[key]
            found.append((data, _batch_of(execution_id, place)))
        return await self._apart(lambda: [unpack(self.contents.open(data, about)) for data, about in found])

    async def _apart(self, call: Callable[[], T]) -> T:
        """Encrypt or decrypt in a thread: a key service takes its time, and the loop has heartbeats."""
        return await asyncio.to_thread(call) if self.contents.is_sealing else call()

    def _damaged(self, execution_id: str) -> BackendUnavailableError:
        why = f"a batch of execution {execution_id!r} is missing"
        return BackendUnavailableError(self._store.where, why, "Restore the store, or remove the execution.")

    # Writing

    async def append(self, execution_id: str, base: Head | None, changes: ChangeSet) -> Head:
        """Commit a batch, unless another writer was faster."""
        if base is None:
            return await self.create(execution_id, changes)
        new, notices = base.next(changes), self._notices
        batch = await self._prepared(execution_id, new.last, changes)
        is_announced = notices is not None and await notices.announce(execution_id, base, new)
        found = await self._committed(execution_id, base, new, batch)
        if notices is not None and is_announced:
            notices.committed(execution_id, new.life)
        if self._on_append is not None:
            self._on_append(execution_id, changes)
        return found

    async def create(
        self, execution_id: str, changes: ChangeSet, life: str | None = None, *, is_child: bool = False
    ) -> Head:
        """Begin a log, once for each life. Not in a transaction: one store would replace a head that exists."""
        new = Head.first(changes, life, is_child=is_child)
        await self._save_until_confirmed(await self._prepared(execution_id, new.last, changes))
        free = await self.stored_head(execution_id)
        if free is not None and (free.status != REMOVED or free.life == new.life):
            raise StaleError
        found = await self._committed(execution_id, free, new)
        if free is not None:
            self._delete_later(execution_id, free.old_batches())  # what a removal that was cut off has left
        return found

    async def compact(self, execution_id: str, upto: Head, whole: ChangeSet) -> None:
        """Replace all batches by one."""
        await self.compacted(execution_id, upto, whole)

    async def compacted(self, execution_id: str, upto: Head, whole: ChangeSet) -> Head:
        """Replace all batches by one, and return the new head."""
        found = await self.rewritten(execution_id, upto, [whole])
        self._delete_later(execution_id, [*upto.old_batches(), *upto.batches()])
        return found

    async def rewritten(self, execution_id: str, upto: Head, batches: list[ChangeSet], new: Head | None = None) -> Head:
        """Replace all batches by others, and return the new head; `clean` deletes the old ones."""
        new = new or upto.rewritten(len(batches))
        for place, changes in zip(new.batches()[:-1], batches, strict=False):
            await self._save_until_confirmed(await self._prepared(execution_id, place, changes))
            reach("rewrite.batch:after")
        last = await self._prepared(execution_id, new.last, batches[-1])
        reach("rewrite.swap:before")
        found = await self._committed(execution_id, upto, new, last)
        if not found.is_ours:
            raise StaleError  # another writer has continued from it: the caller does not know what that has appended
        return found

    async def rewritten_on_record(self, execution_id: str, upto: Head, batches: list[ChangeSet]) -> Head:
        """Replace all batches as `rewritten` does; what a kill leaves of it is deleted by `sweep`."""
        new, key = upto.rewritten(len(batches)), key_of(execution_id, "rekey")
        pieces = tuple(len(pack(changes)) // _PIECE_BYTES + 2 for changes in batches)
        rewrite = Rewrite(epoch=new.last[0], base=upto.last, pieces=pieces)
        await self._rewrites.begin(key, rewrite)
        reach("rewrite.begin:after")
        try:
            head = await self._tombstone_or_head(execution_id)
            if head is None or head.last != upto.last:
                raise StaleError  # it may have been removed before this was on record
            return await self.rewritten(execution_id, upto, batches, new)
        except StaleError:
            await self.sweep(execution_id, rewrite)
            raise

    async def sweep(self, execution_id: str, *own: Rewrite) -> bool:
        """Delete what each `rekey` has left that was killed or too late; False if one of them may still succeed."""
        key = key_of(execution_id, "rekey")
        rewrites = [*own, *await self._rewrites.read(key)]
        head = await self._tombstone_or_head(execution_id) if rewrites else None  # read last
        if head is None:
            return not rewrites
        over = [each for each in rewrites if each.is_over(head)]
        for each in over:
            if not each.counts(head):
                await self._store.delete(_keys_of(execution_id, each))
        if over:
            await self._rewrites.forget(key, over)
        return len(over) == len(rewrites)

    async def clean(self, execution_id: str, head: Head) -> None:
        """Delete the batches that a head has replaced, also those that the store misses once."""
        for _ in range(_LOOKS if head.replaced else 0):
            await self._delete(execution_id, head.old_batches())

    async def remove(self, execution_id: str, head: Head) -> None:
        """Delete an execution; its head stays as a tombstone, so that no writer of before creates it again."""
        await self._committed(execution_id, head, head.removed())
        await self._clear(execution_id, head.removed())

    async def clear_removed(self, execution_id: str) -> None:
        """Delete what a removal that was cut off has left."""
        head = await self.stored_head(execution_id)
        if head is not None and head.status == REMOVED:
            await self._clear(execution_id, head)

    async def _clear(self, execution_id: str, tombstone: Head) -> None:
        await self._delete(execution_id, tombstone.old_batches())
        await self.sweep(execution_id)
        others = [key_of(execution_id, part) for part in ("note", "rekey")]
        await self._store.delete([ask_key(execution_id, tombstone), notices_key(execution_id, tombstone.life), *others])

    # Notes

    async def save_note(self, execution_id: str, why: str, ttl_seconds: int, *, plainly: bool) -> None:
        """Record why no worker takes an execution, for a while; in plain text if it holds no contents, or without a cipher."""
        data = why.encode() if plainly else self.contents.seal(why.encode(), _note_of(execution_id))
        with suppress(WriteError):
            await self._store.save(Value(key=key_of(execution_id, "note"), data=data, ttl_seconds=ttl_seconds))

    async def delete_note(self, execution_id: str, key_id: str | None) -> None:
        """Delete a note that is not encrypted with a key; None: that is not in plain text. A worker writes it again."""
        key = key_of(execution_id, "note")
        for _ in range(_LOOKS):
            data, _ = await self._store.get(key)
            if data and self.contents.key_id(data) != key_id:
                await self._store.delete([key])

    def note(self, execution_id: str, data: bytes) -> str | None:
        """Return a note as it was, from what is stored."""
        if self.contents.key_id(data) is None:
            return data.decode("utf-8", "replace") or None
        try:
            return self.contents.open(data, _note_of(execution_id)).decode()
        except CipherError as error:
            return error.reason

    async def _prepared(self, execution_id: str, place: Place, changes: ChangeSet) -> Value:
        """Return the value of a batch; what is too large for one value is written now, in pieces."""
        about, key = _batch_of(execution_id, place), _batch_key(execution_id, place)
        packed = await self._apart(lambda: self.contents.seal(pack(changes), about))
        if len(packed) <= _PIECE_BYTES:
            return Value(key=key, data=packed)
        parts = [packed[begin : begin + _PIECE_BYTES] for begin in range(0, len(packed), _PIECE_BYTES)]
        for number, part in enumerate(parts):
            await self._save_until_confirmed(Value(key=f"{key}.{number}", data=part))
        return Value(key=key, data=_IN_PIECES + str(len(parts)).encode())

    async def _save_until_confirmed(self, value: Value) -> None:
        await self._store.patiently(lambda: self._store.save(value))

    async def _committed(self, execution_id: str, base: Head | None, new: Head, batch: Value | None = None) -> Head:
        """Write the head over its base until the head that is read back is ours, or that of another writer."""
        etag = "" if base is None else base.etag
        head = Value(key=key_of(execution_id, "head"), data=new.to_bytes(), etag=etag)

        async def write() -> Head:
            refusal = None
            try:
                await (self._store.save(head) if batch is None else self._store.save_together(batch, head))
            except WriteError as error:
                refusal = error
            found = await self._read_back(execution_id, new)
            if found is None and base is not None:
                raise WriteError("the head is not visible")
            if found is None or (base is not None and found.etag == base.etag):
                raise refusal or WriteError("the head is as it was")
            return found

        found = await self._store.patiently(write)
        if found == new:
            return replace(found, is_ours=True)
        if new.owner is None and found.has(new.last):
            return found  # it counts, and another writer has continued from there
        raise StaleError

    async def _read_back(self, execution_id: str, new: Head) -> Head | None:
        """Return the head; a process that was frozen while it read asks again before it continues."""
        while True:
            asked_at = time.monotonic()
            found = await self.stored_head(execution_id)
            if found != new or time.monotonic() - asked_at < _FROZEN_SECONDS:
                return found

    def _delete_later(self, execution_id: str, places: list[Place]) -> None:
        """Delete batches in the background: no step should wait for it. What remains is deleted with the next ones."""
        task = asyncio.create_task(self._delete(execution_id, places))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)

    async def _delete(self, execution_id: str, places: list[Place]) -> None:
        keys = [_batch_key(execution_id, place) for place in places]
        values = await self._store.get_many(keys)
        pieces = [piece for key, value in values.items() for piece in _piece_keys(key, value)]
        await self._store.delete([*pieces, *values])

    async def close(self) -> None:
        """Stop what is done in the background."""
        for task in self._deleting:
            task.cancel()
        await asyncio.gather(*self._deleting, return_exceptions=True)


def _batch_key(execution_id: str, place: Place) -> str:
    return key_of(execution_id, f"{place[0]}.{place[1]}")


def _batch_of(execution_id: str, place: Place) -> str:
    """Return what a batch is, for errors; an encrypted one can only be read as this."""
    return f"batch {place[0]}.{place[1]} of execution {execution_id!r}"


def _note_of(execution_id: str) -> str:
    return f"the note of execution {execution_id!r}"


def _piece_keys(key: str, value: bytes) -> list[str]:
    is_divided = value[:1] == _IN_PIECES and value[1:].isdigit()
    return [f"{key}.{number}" for number in range(int(value[1:]))] if is_divided else []


def _keys_of(execution_id: str, rewrite: Rewrite) -> list[str]:
    """Return all keys that a rewrite may have written."""
    many = {_batch_key(execution_id, (rewrite.epoch, n)): pieces for n, pieces in enumerate(rewrite.pieces, 1)}
    return [*(f"{key}.{number}" for key, pieces in many.items() for number in range(pieces)), *many]
