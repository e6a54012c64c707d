"""Delivers notices to the hooks of this process, apart from the runs that they are about.

What is to be delivered is in the store before any of this looks at it, and stays there until every hook has taken it. One
worker claims a notice by a compare-and-swap; the claim of a worker that has died is free once its heartbeat is silent. Where
this process has no hooks, nothing is asked of the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from ..._dispatch.notifications.hooks import AT_ONCE, MAX_DELAY_SECONDS, delay_seconds, deliver, hooks, is_given_up
from ..._records.crash_points import reach
from ..._records.deadline import limited
from ..._records.logs import safe_logger
from ..._records.notifications import Event
from ...errors import BackendUnavailableError, CipherError, DurableError, ExecutionNotFoundError
from ..log import Presence, read
from ..notices import notification_of
from .engine import KeyValueEngine
from .head import Head
from .notices import DAMAGE, WATCHED_SECONDS, StoredNotice, parts_of

logger = safe_logger(__name__)

LOOK_SECONDS = 1.0
"""How often the list is read; what this process itself has committed is delivered at once."""
_PAUSE_SECONDS = 0.1
_FIRST_SECONDS, _MAX_SECONDS = 0.25, 30.0
"""How soon, and at last how seldom, an execution is looked at again whose notices this process cannot deliver yet."""
_LOOKED_AT = 100
"""How many executions are looked at, new ones first: thousands may wait for a receiver."""
_ERROR_LENGTH, _STOP_SECONDS = 300, 1.0
_KEY_SECONDS = 5.0
"""How long a notice is left alone that this process cannot decrypt."""


@dataclass
class _Sighting:
    """What this process has seen of an execution on the list."""

    at: float
    due: float = 0.0
    seconds: float = _FIRST_SECONDS

    def put_off(self, *waits: float | None) -> None:
        """Look again after the shortest of some times; None: each time after a longer one."""
        self.due = time.monotonic() + min(self.seconds if each is None else each for each in waits)
        if None in waits:
            self.seconds = min(2 * self.seconds, _MAX_SECONDS)


class Notifier:
    """Delivers the notices of a store.

    Args:
        engine: What is in the store.
        owner: The worker that claims them, as it is recorded; it has a heartbeat.
    """

    def __init__(self, engine: KeyValueEngine, owner: str) -> None:
        self._engine, self._notices, self._owner = engine, engine.notices, owner
        self._key = engine.store.where
        self._watched: tuple[frozenset[Event], float] = frozenset(), 0.0
        """The events that are recorded since this process has asked for them, and when it did."""
        self._seen: dict[str, _Sighting] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The deliveries that are running, by notice."""
        self._news, self._silent_about = asyncio.Event(), ""
        self._notices.on_commit = self._changed
        self._looking: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Deliver what is due until `finish` or `close`."""
        self._looking.add(asyncio.create_task(self._run()))

    async def _run(self) -> None:
        while True:
            await self._try_to_look()
            with suppress(TimeoutError):
                await limited(self._news.wait(), LOOK_SECONDS)
            self._news.clear()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def finish(self, seconds: float) -> None:
        """Deliver what is due, for at most ``seconds``; another worker delivers the rest."""
        await _stopped(self._looking)
        if hooks.events(self._key):
            finishing = asyncio.create_task(self._deliver_all())
            self._looking.add(finishing)
            await asyncio.wait([finishing], timeout=seconds)
        await self.close()

    async def _deliver_all(self) -> None:
        self._seen = {}
        await self._try_to_look()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
            await self._try_to_look()

    async def close(self) -> None:
        """Stop; what was claimed here is free once this worker has no heartbeat."""
        await _stopped({*self._looking, *self._tasks.values()})

    def _changed(self, name: str) -> None:
        """Look at an execution at once."""
        self._seen.pop(name, None)
        self._news.set()

    # What is due

    async def _try_to_look(self) -> None:
        try:
            await self.look()
            self._silent_about = ""
        except Exception as error:  # whatever is wrong with the store, no worker ends because of what it reports
            level = logging.DEBUG if isinstance(error, BackendUnavailableError) else logging.WARNING
            if str(error) != self._silent_about:
                logger.log(level, "store=<%s>, error=<%s> | cannot look for notifications, retrying", self._key, error)
            self._silent_about = str(error)

    async def look(self) -> None:
        """Begin to deliver what is due now."""
        events = hooks.events(self._key)
        if not events:
            return
        await self._watch(events)
        listed, now = await self._notices.listed(), time.monotonic()
        self._seen = {name: seen for name, seen in self._seen.items() if listed.get(name) == seen.at}
        for name, at in listed.items():
            self._seen.setdefault(name, _Sighting(at=at))
        due = sorted((name for name, seen in self._seen.items() if seen.due <= now), key=self._due_at)[:_LOOKED_AT]
        found = await self._notices.read(due)
        heads = await self._heads([parts_of(name)[0] for name in due])  # read last: not older than notices
        for name in due:
            seen = self._seen.setdefault(name, _Sighting(at=listed[name]))  # a delivery may have ended meanwhile
            try:
                await self._check(name, seen, found.get(name, []), heads.get(parts_of(name)[0]))
            except (DurableError, *DAMAGE) as error:
                logger.debug("name=<%s>, error=<%s> | notices are looked at again", name, error)

    async def _heads(self, execution_ids: list[str]) -> dict[str, Head]:
        """Return the heads of executions; one that cannot be read keeps no other from being reported."""
        try:
            return await self._engine.log.heads(execution_ids)
        except DAMAGE:
            found: dict[str, Head] = {}
            for each in execution_ids:
                with suppress(*DAMAGE):
                    found |= await self._engine.log.heads([each])
            return found

    def _due_at(self, name: str) -> float:
        return self._seen[name].due

    async def _watch(self, events: frozenset[Event]) -> None:
        watched, at = self._watched
        if watched != events or time.monotonic() - at > WATCHED_SECONDS / 100:
            try:
                await self._notices.watch(events)
            except DAMAGE as error:  # this process records its events in any case
                logger.warning("store=<%s>, error=<%s> | other workers may not record events", self._key, error)
            self._watched = events, time.monotonic()

    async def _check(self, name: str, seen: _Sighting, notices: list[StoredNotice], head: Head | None) -> None:
        """Deliver, keep or drop the notices of an execution, and take it off the list if none of them waits."""
        waiting = [each for each in notices if each.gave_up_at is None]
        if waiting and head is not None and head.life == parts_of(name)[1]:
            seen.put_off(*[await self._handled(name, each, head) for each in waiting])
            return
        seen.put_off(None)
        if await self._is_done(name):
            await self._notices.unlist(name, seen.at)

    async def _is_done(self, name: str) -> bool:
        """Return whether nothing of an execution waits to be reported, as far as a store can be trusted to show."""
        execution_id, life = parts_of(name)
        waiting = [each for each in await self._notices.careful_read(name) if each.gave_up_at is None]
        head = await self._engine.log.existing_head(execution_id) if waiting else None
        return head is None or head.life != life

    async def _handled(self, name: str, notice: StoredNotice, head: Head) -> float | None:
        """Begin to deliver a notice, or drop it; return in how many seconds to look at it again, None if that is not known."""
        standing = notice.standing(head)
        if standing == "void":
            certain = await self._engine.log.stored_head(parts_of(name)[0])
            if certain is not None and notice.standing(certain) == "void":
                logger.debug("notification_id=<%s> | dropped, its commit was refused", notice.notice_id)
                await self._notices.replace(name, notice, None)
            return 0.0
        if standing == "open" or notice.event not in hooks.events(self._key):
            return None
        seconds = notice.not_before - time.time()
        if notice.claimed_by is None and 0 < seconds < 2 * MAX_DELAY_SECONDS:  # else a clock is wrong
            return seconds
        if notice.notice_id in self._tasks or len(self._tasks) >= AT_ONCE or not await self._is_free(notice):
            return LOOK_SECONDS
        task = self._tasks[notice.notice_id] = asyncio.create_task(self._deliver(name, notice))
        task.add_done_callback(lambda _: self._ended(name, notice.notice_id))
        return LOOK_SECONDS

    async def _is_free(self, notice: StoredNotice) -> bool:
        """Return whether a notice may be claimed; what this worker has claimed and does not deliver was left by an error."""
        is_other = notice.claimed_by is not None and notice.claimed_by != self._owner
        return not is_other or not await self._engine.workers.is_alive(notice.claimed_by)

    def _ended(self, name: str, notice_id: str) -> None:
        del self._tasks[notice_id]
        self._changed(name)

    # Delivering one

    async def _deliver(self, name: str, notice: StoredNotice) -> None:
        claimed = replace(notice, tries=notice.tries + 1, claimed_by=self._owner)
        try:
            reach("notice.claim:before")
            if not await self._notices.replace(name, notice, claimed):
                return
            reach("notice.claim:after")
            await self._call_hooks(name, claimed)
        except CipherError as error:
            logger.warning("notification_id=<%s>, error=<%s> | left to a worker with the key", notice.notice_id, error)
            with suppress(DurableError):
                await self._notices.replace(name, claimed, replace(notice, not_before=time.time() + _KEY_SECONDS))
        except Exception as error:  # the store cannot be reached, or what is recorded of this execution is damaged
            with suppress(DurableError):
                await self._settle(name, claimed, {type(error).__name__: str(error)}, claimed.taken)

    async def _call_hooks(self, name: str, claimed: StoredNotice) -> None:
        execution_id, life = parts_of(name)
        taken, failures = list(claimed.taken), dict[str, str]()
        try:
            known = await read(self._engine.log, execution_id, self._key)
            is_same = known.position.life == life
        except ExecutionNotFoundError:
            is_same = False  # removed, and what was to be reported with it
        if is_same:
            notification = notification_of(known.detail(Presence()), claimed)
            reach("notify:before")
            taken, failures = await deliver(self._key, notification, taken, tries=claimed.tries)
            reach("notify:after")
        if failures:
            await self._settle(name, claimed, failures, taken)
            return
        await self._notices.replace(name, claimed, None)
        reach("notice.delivered:after")

    async def _settle(self, name: str, claimed: StoredNotice, failures: dict[str, str], taken: Collection[str]) -> None:
        error = "; ".join(f"{hook}: {why}" for hook, why in failures.items())[:_ERROR_LENGTH]
        left = replace(claimed, claimed_by=None, taken=tuple(taken), error=self._notices.sealed(claimed, error))
        facts = (claimed.notice_id, claimed.event, claimed.tries, error)
        if is_given_up(claimed.tries, time.time() - claimed.at):
            logger.error("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | notification given up", *facts)
            await self._notices.replace(name, claimed, replace(left, gave_up_at=time.time()))
            return
        logger.warning("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | not delivered, retrying", *facts)
        later = time.time() + delay_seconds(claimed.tries)
        await self._notices.replace(name, claimed, replace(left, not_before=later))


async def _stopped(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait a moment for them: a client may turn the cancellation of a request into an error of its own."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_STOP_SECONDS)
