"""Delivers the notifications of a SQLite file to the hooks of this process, apart from the runs that they are about.

What is to be delivered is on record before any of this looks at it, and is forgotten once every hook has taken it. A hook that
fails is tried again, each time after a longer wait, and given up after a day; that is on record, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ..._records.cipher import Cipher
from ..._records.crash_points import reach
from ..._records.logs import safe_logger
from ..._records.notifications import Event
from ..._sqlite.notices import WATCHED_SECONDS, Notice, Notices
from ..._sqlite.open_files import stores
from ...errors import BackendUnavailableError, DurableError
from .hooks import AT_ONCE, delay_seconds, deliver, hooks, is_given_up

logger = safe_logger(__name__)

LOOK_SECONDS = 0.25
_LAST_SECONDS = 2.0
"""How long a worker that stops still delivers."""
_ERROR_LENGTH = 300

_running: set[str] = set()
"""The notices that this process is delivering, whichever of its workers has claimed them."""


@asynccontextmanager
async def notifying(path: Path, cipher: Cipher | None = None) -> AsyncIterator[None]:
    """Deliver what is due as long as the block runs, and what it has left for a moment longer."""
    notifier = Notifier(path, cipher)
    task = asyncio.ensure_future(notifier.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await notifier.finish(_LAST_SECONDS)


class Notifier:
    """Delivers the notices of one store."""

    def __init__(self, path: Path, cipher: Cipher | None = None) -> None:
        self._path, self._cipher = path, cipher
        self._watched: tuple[frozenset[Event], float] = frozenset(), 0.0
        """The events that are recorded since this process has asked for them, and when it did."""
        self._silent_about = ""
        """Why the last look has failed: the same again is not logged again."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken: dict[str, list[str]] = {}
        """By notice, the names of the hooks that have taken it while others have not."""

    async def run(self) -> None:
        """Deliver what is due, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Begin to deliver what is due now."""
        events = hooks.events(self._path)
        if not events or not self._path.exists():
            return
        try:
            notices = Notices(stores.open(self._path, cipher=self._cipher)[0])
            self._watch(notices, events)
            for notice in notices.claim(events, AT_ONCE - len(self._tasks), _running):
                _running.add(notice.notice_id)
                task = asyncio.ensure_future(self._deliver(notices, notice))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            self._silent_about = ""
        except Exception as error:  # whatever is wrong with the store, no worker ends because of what it reports
            level = logging.DEBUG if isinstance(error, BackendUnavailableError) else logging.WARNING
            if str(error) != self._silent_about:
                logger.log(level, "store=<%s>, error=<%s> | cannot look for notifications, retrying", self._path, error)
            self._silent_about = str(error)

    def _watch(self, notices: Notices, events: frozenset[Event]) -> None:
        watched, at = self._watched
        if watched != events or time.monotonic() - at > WATCHED_SECONDS / 100:
            notices.watch(sorted(events))
            self._watched = events, time.monotonic()

    async def finish(self, seconds: float) -> None:
        """Deliver what is due, for at most ``seconds``; the next worker delivers the rest."""
        self.look()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _deliver(self, notices: Notices, notice: Notice) -> None:
        try:
            reach("notify:before")
            failures = await self._call_hooks(notices, notice)
            reach("notify:after")
            if failures:
                self._settle(notices, notice, failures)
            else:
                self._taken.pop(notice.notice_id, None)
                notices.delivered(notice)
        except Exception as error:  # the store cannot be written, or the rows of this execution are damaged
            with suppress(DurableError):
                self._settle(notices, notice, {type(error).__name__: str(error)})
        finally:
            _running.discard(notice.notice_id)

    async def _call_hooks(self, notices: Notices, notice: Notice) -> dict[str, str]:
        """Call the hooks that have not taken a notification yet; return why some of them have not, by name."""
        notification = notices.notification(notice)
        if notification is None:
            return {}
        taken = self._taken.get(notice.notice_id, [])
        self._taken[notice.notice_id], failures = await deliver(self._path, notification, taken, tries=notice.tries)
        return failures

    def _settle(self, notices: Notices, notice: Notice, failures: dict[str, str]) -> None:
        error = "; ".join(f"{name}: {why}" for name, why in failures.items())[:_ERROR_LENGTH]
        facts = (notice.notice_id, notice.event, notice.tries, error)
        if is_given_up(notice.tries, time.time() - notice.at):
            logger.error("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | notification given up", *facts)
            self._taken.pop(notice.notice_id, None)
            notices.give_up(notice, error)
            return
        logger.warning("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | not delivered, retrying", *facts)
        notices.put_off(notice, delay_seconds(notice.tries), error)
