"""Notices: what is to be reported of executions, in the store until it is delivered.

    strands-durable/X/notices.L     what is to be reported of execution X in its life L
    strands-durable/-notices/...    the executions, with their lives, that have something to report
    strands-durable/-watches/0      the events that workers report, each with the time until which it is recorded

A notice is written before the commit that it is about, so that no kill can separate the two, and names the batch of that
commit: it counts once the head of the execution has this batch, and never if the head has left it behind. So the head, which
only the owner of an execution may change, knows nothing of notices. Each change is a compare-and-swap.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Literal

from ..._dispatch.notifications.hooks import hooks
from ..._records.crash_points import reach
from ..._records.logs import safe_logger
from ..._records.notifications import EVENTS, Event
from ..._records.views import Undelivered
from ...errors import BackendUnavailableError, CipherError
from ..encryption import Contents
from ..notices import Notice, event_of
from .head import Head, Place
from .log import notices_key
from .shared_map import SharedMap
from .store import KeyValueStore, Value, WriteError

logger = safe_logger(__name__)

WATCHED_SECONDS = 7 * 86_400.0
"""For how long events are recorded after the last worker that reports them has said so."""
_KNOWN_SECONDS = 15.0
"""How old the knowledge of what is watched may be; a worker's periodic reads renew it."""
_TRIES, _LOOKS, _AGAIN_SECONDS = 400, 3, 0.05
DAMAGE = (ValueError, TypeError, LookupError, AttributeError)
"""What reading a damaged value raises."""

Standing = Literal["counts", "open", "void"]


@dataclass(frozen=True, kw_only=True)
class StoredNotice(Notice):
    """A notice as it is stored."""

    base: Place
    """The last batch before the one that it is about."""
    place: Place
    """The batch that makes it true."""
    tries: int = 0
    not_before: float = 0.0
    claimed_by: str | None = None
    taken: tuple[str, ...] = ()
    """The names of the hooks that have taken it while others have not."""
    error: Any = None
    """Why it was not delivered at the last try; see `Notices.sealed`."""
    gave_up_at: float | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> StoredNotice:
        """Read a notice; raise one of `DAMAGE` if it is damaged."""
        base, place = ((str(epoch), int(number)) for epoch, number in (found["base"], found["place"]))
        if found["event"] not in EVENTS or isinstance(found["taken"], str):
            raise ValueError("it is damaged")
        times = {name: float(found[name]) for name in ("at", "not_before")}
        given = {**found, **times, "tries": int(found["tries"]), "base": base, "place": place}
        return cls(**{**given, "taken": tuple(found["taken"])})

    def stored(self) -> dict[str, Any]:
        """Return the stored form."""
        return {**asdict(self), "base": list(self.base), "place": list(self.place), "taken": list(self.taken)}

    def standing(self, head: Head) -> Standing:
        """Return whether its batch counts, may still be committed, or never will.

        Of what was compacted twice, the head does not know: that counts, since a report too many is better than none.
        """
        if self.tries or head.had(self.place):
            return "counts"
        if head.last == self.base:
            return "open"
        return "void" if head.knows(self.base) else "counts"


class Notices:
    """The notices of all executions in a store."""

    def __init__(self, store: KeyValueStore, contents: Contents | None = None) -> None:
        self._store, self._contents = store, contents or Contents(None, store.where)
        self._index, self._watches = SharedMap(store, "notices", shards=4), SharedMap(store, "watches", shards=1)
        self._watched, self._known_at = dict[str, float](), -inf
        self.on_commit: Callable[[str], None] | None = None
        """Called with the name of an execution when a commit of this process has made a notice true."""

    # What is recorded

    async def watch(self, events: Iterable[Event]) -> None:
        """Have events recorded from now on, by all workers."""
        for event in sorted(events):
            await self._watches.put(event, time.time() + WATCHED_SECONDS)

    @property
    def watch_keys(self) -> list[str]:
        """The values that say what is watched, to be read together with others and given to `note`."""
        return self._watches.keys

    def note(self, values: Mapping[str, bytes]) -> None:
        """Take over what is watched; a value that a store misses once, or that is damaged, says nothing about that."""
        for key in self.watch_keys:
            try:
                found = {name: float(until) for name, until in json.loads(values[key])["items"].items()}
            except DAMAGE:
                continue
            self._watched |= found
        self._known_at = time.monotonic()

    async def _is_watched(self, event: Event) -> bool:
        if event in hooks.events(self._store.where):
            return True
        if time.monotonic() - self._known_at > _KNOWN_SECONDS:
            self.note(await self._store.get_many(self.watch_keys))
        return self._watched.get(event, 0.0) > time.time()

    async def announce(self, execution_id: str, base: Head, new: Head) -> bool:
        """Record what a commit is about to make true; False if no worker reports it."""
        event = event_of(new.status)
        if event is None or new.status == base.status or not await self._is_watched(event):
            return False
        notice = StoredNotice(notice_id=uuid.uuid4().hex, event=event, at=time.time(), base=base.last, place=new.last)
        try:
            await self._record(execution_id, new.life, notice)
        except DAMAGE as error:  # no run fails because of what is reported of it
            logger.error("execution_id=<%s>, event=<%s>, error=<%s> | not reported", execution_id, event, error)
            return False
        return True

    async def _record(self, execution_id: str, life: str, notice: StoredNotice) -> None:
        def add(found: dict[str, Any]) -> bool:
            found[notice.notice_id] = notice.stored()
            return True

        reach("notice.record:before")
        await self._change(execution_id, life, add, is_new=True)
        reach("notice.record:after")
        await self._index.put(name_of(execution_id, life), time.time())
        reach("notice.list:after")

    def committed(self, execution_id: str, life: str) -> None:
        """Note that what was announced has come true."""
        if self.on_commit is not None:
            self.on_commit(name_of(execution_id, life))

    # What is to be delivered

    async def listed(self) -> dict[str, float]:
        """Return the names of executions that have notices, with the times at which they were listed."""
        return await self._index.items()

    async def unlist(self, name: str, at: float) -> None:
        """Take an execution off the list, unless it has a notice since that time."""
        await self._index.discard({name: at})
        reach("notice.unlist:after")

    async def read(self, names: Iterable[str]) -> dict[str, list[StoredNotice]]:
        """Return the notices that are not damaged, by the names of their executions."""
        keys = {notices_key(*parts_of(name)): name for name in names}
        return {keys[key]: _notices(data) for key, data in (await self._store.get_many(list(keys))).items()}

    async def careful_read(self, name: str) -> list[StoredNotice]:
        """Return the notices of one execution: a store may miss a value that is there, once."""
        for _ in range(_LOOKS):
            data, _ = await self._store.get(notices_key(*parts_of(name)))
            if data:
                return _notices(data)
            await asyncio.sleep(_AGAIN_SECONDS)
        return []

    async def replace(self, name: str, known: StoredNotice, new: StoredNotice | None) -> bool:
        """Change a notice, or delete it; False if another worker has changed it since it was read."""

        def change(found: dict[str, Any]) -> bool:
            if found.get(known.notice_id) != known.stored():
                return False
            del found[known.notice_id]
            found |= {} if new is None else {new.notice_id: new.stored()}
            return True

        return await self._change(*parts_of(name), change)

    async def undelivered(self, execution_id: str, head: Head) -> tuple[Undelivered, ...]:
        """Return what was not delivered yet, or was given up."""
        data, _ = await self._store.get(notices_key(execution_id, head.life))
        found = [each for each in _notices(data) if each.standing(head) == "counts"]
        return tuple(
            Undelivered(
                event=each.event, at=each.at, tries=each.tries, error=self._error(each), gave_up_at=each.gave_up_at
            )
            for each in sorted(found, key=lambda each: each.at)
        )

    def sealed(self, notice: StoredNotice, error: str) -> Any:
        """Return an error of a hook in the form in which it is stored: it may repeat what was reported."""
        return self._contents.seal_value(error, _error_of(notice))

    def resealed(self, notice: StoredNotice, source: Contents, target: Contents) -> StoredNotice:
        """Return a notice with its error as another process is to store it."""
        about = _error_of(notice)
        return replace(notice, error=target.seal_value(source.open_value(notice.error, about), about))

    def _error(self, notice: StoredNotice) -> str | None:
        try:
            return None if notice.error is None else str(self._contents.open_value(notice.error, _error_of(notice)))
        except CipherError as error:
            return error.reason

    async def _change(
        self, execution_id: str, life: str, change: Callable[[dict[str, Any]], bool], *, is_new: bool = False
    ) -> bool:
        """Swap the notices of an execution until it succeeds; False if there was nothing to change."""
        key = notices_key(execution_id, life)
        for tries in range(_TRIES):
            data, etag = await self._store.get(key)
            if not data and not is_new and tries < _LOOKS:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            found = _entries(data)
            if not change(found):
                return False
            try:
                await self._store.save(Value(key=key, data=_stored(found), etag=etag))
            except WriteError:
                await asyncio.sleep(random.uniform(0, _AGAIN_SECONDS))  # others change it, too
                continue
            return True
        raise BackendUnavailableError(self._store.where, f"the store refuses to change the notices of {execution_id!r}")


def name_of(execution_id: str, life: str) -> str:
    """Return the name of an execution on the list: the next one of the same id has another."""
    return f"{life}/{execution_id}"


def parts_of(name: str) -> tuple[str, str]:
    """Return the id and the life of an execution on the list."""
    life, _, execution_id = name.partition("/")
    return execution_id, life


def _error_of(notice: StoredNotice) -> str:
    return f"the error of notice {notice.notice_id}"


def _entries(data: bytes) -> dict[str, Any]:
    """Return stored notices by id; a value that cannot be read has none, so that it stops no other."""
    try:
        found = json.loads(data) if data else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        logger.error("value=<%r> | notices are damaged and are not delivered", data[:100])
        return {}
    return found


def _notices(data: bytes) -> list[StoredNotice]:
    found: list[StoredNotice] = []
    for each in _entries(data).values():
        try:
            found.append(StoredNotice.of(each))
        except DAMAGE:
            logger.error("value=<%s> | a notice is damaged and is not delivered", str(each)[:100])
    return found


def _stored(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()
