"""Delivers notifications: functions and webhooks of this process, apart from the runs that they are about.

What is to be delivered is on record before any of this looks at it, and is forgotten once every hook has taken it. A hook that
fails is tried again, each time after a longer wait, and given up after a day; that is on record, too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._records.crash_points import reach
from .._records.deadline import TimedOut, limited
from .._records.logs import safe_logger
from .._records.notifications import EVENTS, Event, Notification
from .._sqlite.notices import WATCHED_SECONDS, Notice, Notices
from .._sqlite.open_files import stores
from ..errors import BackendUnavailableError, DurableError
from .webhooks import Webhook

logger = safe_logger(__name__)

Callback = Callable[[Notification], Awaitable[None] | None]
LOOK_SECONDS = 0.25
GIVE_UP_SECONDS, GIVE_UP_TRIES = 86_400.0, 10
"""What is given up: older than that, and tried so often. After a time without workers, one try would not be enough."""
MAX_DELAY_SECONDS = 600.0
_AT_ONCE = 8
_HOOK_SECONDS = 30.0
_LAST_SECONDS = 2.0
"""How long a worker that stops still delivers."""
_ERROR_LENGTH = 300


@dataclass(frozen=True)
class Hook:
    """A function or a webhook, and what it is called for."""

    name: str
    events: frozenset[Event]
    call: Callback

    @classmethod
    def of(cls, target: Callback | Webhook, *events: Event) -> Hook:
        """Return the hook of a function or a webhook."""
        if isinstance(target, Webhook):
            return cls(str(target), frozenset(target.events), target.send)
        return cls(getattr(target, "__qualname__", type(target).__name__), frozenset(events), target)


class Hooks:
    """The hooks of this process, by store."""

    def __init__(self) -> None:
        self._hooks: dict[Path, list[Hook]] = defaultdict(list)

    def add(self, path: Path, *hooks: Hook) -> None:
        """Have hooks called for executions of a store."""
        self._hooks[path] += [hook for hook in hooks if hook not in self._hooks[path]]

    def of(self, path: Path) -> list[Hook]:
        """Return the hooks for a store."""
        return list(self._hooks.get(path, ()))


hooks = Hooks()
_running: set[str] = set()
"""The notices that this process is delivering, whichever of its workers has claimed them."""


@asynccontextmanager
async def notifying(path: Path) -> AsyncIterator[None]:
    """Deliver what is due as long as the block runs, and what it has left for a moment longer."""
    notifier = Notifier(path)
    task = asyncio.ensure_future(notifier.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await notifier.finish(_LAST_SECONDS)


class Notifier:
    """Delivers the notices of one store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watched: tuple[frozenset[Event], float] = frozenset(), 0.0
        """The events that are recorded since this process has asked for them, and when it did."""
        self._silent_about = ""
        """Why the last look has failed: the same again is not logged again."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken: dict[str, set[Hook]] = defaultdict(set)
        """By notice, the hooks that have taken it while others have not."""

    async def run(self) -> None:
        """Deliver what is due, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Begin to deliver what is due now."""
        events = frozenset(event for hook in hooks.of(self._path) for event in hook.events)
        if not events or not self._path.exists():
            return
        try:
            notices = Notices(stores.open(self._path)[0])
            self._watch(notices, events)
            for notice in notices.claim(events, _AT_ONCE - len(self._tasks), _running):
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
        failures: dict[str, str] = {}
        for hook in hooks.of(self._path) if notification is not None else ():
            if notice.event not in hook.events or hook in self._taken[notice.notice_id]:
                continue
            assert notification is not None
            error = await _called(hook, notification)
            if error is None:
                self._taken[notice.notice_id].add(hook)
            else:
                failures[hook.name] = error
        return failures

    def _settle(self, notices: Notices, notice: Notice, failures: dict[str, str]) -> None:
        error = "; ".join(f"{name}: {why}" for name, why in failures.items())[:_ERROR_LENGTH]
        facts = (notice.notice_id, notice.event, notice.tries, error)
        if notice.tries >= GIVE_UP_TRIES and time.time() - notice.at > GIVE_UP_SECONDS:
            logger.error("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | notification given up", *facts)
            self._taken.pop(notice.notice_id, None)
            notices.give_up(notice, error)
            return
        logger.warning("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | not delivered, retrying", *facts)
        delay = min(MAX_DELAY_SECONDS, 2.0 ** min(notice.tries - 1, 20))
        notices.put_off(notice, delay * random.uniform(0.9, 1.1), error)


async def _called(hook: Hook, notification: Notification) -> str | None:
    """Call a hook; return why it has failed, None if it has not."""
    try:
        await limited(_outcome(hook, notification), _HOOK_SECONDS)
    except TimedOut:
        return f"it has not returned within {_HOOK_SECONDS:g} s"
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return "it was cancelled"
    except (Exception, SystemExit) as error:  # a function that calls sys.exit() must not end the worker
        return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return None


async def _outcome(hook: Hook, notification: Notification) -> None:
    """Call a hook and wait for it: in this loop if it is async, else in a thread; what it returns may have to be awaited."""
    is_async = inspect.iscoroutinefunction(hook.call)
    found = hook.call(notification) if is_async else await _in_thread(lambda: hook.call(notification))
    if inspect.isawaitable(found):
        await found


def _is_cancelled() -> bool:
    """Return whether the delivery itself was cancelled, and not what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread that does not keep the process from exiting; return what it returns."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def end(found: Any, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(found)
        else:
            outcome.set_exception(error)

    def run() -> None:
        found: Any = None
        error: Exception | None = None
        try:
            found = function()
        except BaseException as raised:  # a future takes no StopIteration, and passes SystemExit on to the loop
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
            if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                error = raised
        with suppress(RuntimeError):  # the worker has ended
            loop.call_soon_threadsafe(end, found, error)

    threading.Thread(target=run, name="strands-durable-notify", daemon=True).start()
    return await outcome


def hooks_of(
    on_suspended: Callback | None,
    on_failed: Callback | None,
    on_completed: Callback | None,
    webhooks: tuple[Webhook, ...],
) -> list[Hook]:
    """Return the hooks that `DurableBackend.notify` was given."""
    given = zip(EVENTS, (on_suspended, on_failed, on_completed), strict=True)
    functions = [Hook.of(function, event) for event, function in given if function is not None]
    return [*functions, *(Hook.of(webhook) for webhook in webhooks)]
