"""Hooks: functions and webhooks of this process that are called when an execution waits, fails or completes; of any engine.

Here is how they are called, each in slots of its own so that one that hangs delays no other, and how long a failed call waits
for the next. What is to be delivered, and whether it was, is recorded by each engine in its own way.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from ..._records.deadline import TimedOut, limited
from ..._records.notifications import EVENTS, Event, Notification
from ..._records.printable import masked_beginning
from ..stopping import in_daemon
from .webhooks import Webhook

Callback = Callable[[Notification], Awaitable[None] | None]
GIVE_UP_SECONDS, GIVE_UP_TRIES = 86_400.0, 10
"""What is given up: older than that, and tried so often. After a time without workers, one try would not be enough."""
MAX_DELAY_SECONDS = 600.0
AT_ONCE = 100
"""How many notifications a process delivers at a time: those that wait for a hook that hangs leave room for others."""
_SLOTS, _RETRY_SLOTS = 8, 4
"""How many calls of one hook run at a time, and up to how many a notification that was tried before may add another."""
_SLOT_SECONDS, _SLOT_PAUSE_SECONDS = 2.0, 0.05
"""How long a call waits for a slot, and how often it looks for one."""
_HOOK_SECONDS = 30.0
_ERROR_LENGTH = 1_000
_chance = Random()


class Slots:
    """The calls of one hook that run now, in all threads of this process."""

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0

    async def taken(self, *, is_new: bool) -> bool:
        """Take a slot, or return False if none becomes free soon. Some are kept for new notifications."""
        most, until = _SLOTS if is_new else _RETRY_SLOTS, time.monotonic() + _SLOT_SECONDS
        while not self._take(most):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_SLOT_PAUSE_SECONDS)
        return True

    def _take(self, most: int) -> bool:
        with self._lock:
            has_room = self._count < most
            self._count += has_room
            return has_room

    def free(self) -> None:
        """Give a slot back."""
        with self._lock:
            self._count -= 1


@dataclass(frozen=True)
class Hook:
    """A function or a webhook, and what it is called for."""

    name: str
    events: frozenset[Event]
    call: Callback
    slots: Slots = field(default_factory=Slots, compare=False, repr=False)

    @classmethod
    def of(cls, target: Callback | Webhook, *events: Event) -> Hook:
        """Return the hook of a function or a webhook."""
        if isinstance(target, Webhook):
            return cls(str(target), frozenset(target.events), target.send)
        return cls(getattr(target, "__qualname__", type(target).__name__), frozenset(events), target)


class Hooks:
    """The hooks of this process, by what identifies a backend: the path of a file, or a URL."""

    def __init__(self) -> None:
        self._hooks: dict[Hashable, list[Hook]] = defaultdict(list)

    def add(self, backend: Hashable, *hooks: Hook) -> None:
        """Have hooks called for executions of a backend; two that are called the same get different names."""
        known = self._hooks[backend]
        for hook in hooks:
            if not any((hook.call, hook.events) == (each.call, each.events) for each in known):
                count = sum(each.name.partition(" #")[0] == hook.name for each in known)
                known.append(replace(hook, name=f"{hook.name} #{count + 1}") if count else hook)

    def of(self, backend: Hashable) -> list[Hook]:
        """Return the hooks for a backend."""
        return list(self._hooks.get(backend, ()))

    def events(self, backend: Hashable) -> frozenset[Event]:
        """Return what the hooks for a backend are called for."""
        return frozenset(event for hook in self.of(backend) for event in hook.events)


hooks = Hooks()


def delay_seconds(tries: int, chance: Random | None = None) -> float:
    """Return how long to wait after a number of tries: twice as long each time, and not the same for all."""
    return min(MAX_DELAY_SECONDS, 2.0 ** min(tries - 1, 20)) * (chance or _chance).uniform(0.9, 1.1)


def is_given_up(tries: int, age_seconds: float) -> bool:
    """Return whether a notification of an event of that age is not tried again."""
    return tries >= GIVE_UP_TRIES and age_seconds > GIVE_UP_SECONDS


async def deliver(
    backend: Hashable, notification: Notification, taken: Collection[str], *, tries: int
) -> tuple[list[str], dict[str, str]]:
    """Call the hooks for a backend that have not taken a notification yet, by name, all at the same time.

    ``tries`` is how often it was tried, with this time. Return those that have taken it by now, and why others have not.
    """
    due = [hook for hook in hooks.of(backend) if notification.event in hook.events and hook.name not in taken]
    failures = await call_all(due, notification, tries=tries)
    return [*taken, *(hook.name for hook in due if hook.name not in failures)], failures


async def call_all(given: Sequence[Hook], notification: Notification, *, tries: int) -> dict[str, str]:
    """Call hooks at the same time; return why some have failed, by name."""
    errors = await asyncio.gather(*(called(hook, notification, is_new=tries == 1) for hook in given))
    return {hook.name: error for hook, error in zip(given, errors, strict=True) if error is not None}


async def called(hook: Hook, notification: Notification, *, is_new: bool) -> str | None:
    """Call a hook; return why it has failed, None if it has not."""
    if not await hook.slots.taken(is_new=is_new):
        return "it was not called, since earlier calls of it have not returned"
    try:
        await limited(_outcome(hook, notification), _HOOK_SECONDS)
    except TimedOut:
        return f"it has not returned within {_HOOK_SECONDS:g} s"
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return "it was cancelled"
    except (Exception, SystemExit) as error:  # a function that calls sys.exit() must not end the worker
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        return str(masked_beginning(text, _ERROR_LENGTH)[0])
    return None


async def _outcome(hook: Hook, notification: Notification) -> None:
    """Call a hook and wait for it, in this loop if it is async, else in a thread; what it returns may have to be awaited."""
    if inspect.iscoroutinefunction(hook.call):
        try:
            await hook.call(notification)
        finally:
            hook.slots.free()
        return
    call = _ThreadCall(hook, notification)
    try:
        found = await in_daemon(call.run, call.returned)
        if inspect.isawaitable(found):
            await found
    finally:
        call.leave()


class _ThreadCall:
    """A call in a thread. It has its slot until the function returns, however long that is waited for, and until what it
    returns has been awaited."""

    def __init__(self, hook: Hook, notification: Notification) -> None:
        self._hook, self._notification = hook, notification
        self._slot = [hook.slots]
        self._found: Awaitable[None] | None = None
        self._has_returned = self._is_left = False

    def run(self) -> Awaitable[None] | None:
        self._found = self._hook.call(self._notification)
        return self._found

    def returned(self) -> None:
        """Note, in the thread, that the function has returned."""
        self._has_returned = True
        if self._is_left or not inspect.isawaitable(self._found):
            self._free()

    def leave(self) -> None:
        """Note, in the loop, that nothing waits for it any more."""
        self._is_left = True
        if self._has_returned:
            self._free()

    def _free(self) -> None:
        with suppress(IndexError):  # both threads may come here; only one of them takes it from the list
            self._slot.pop().free()


def _is_cancelled() -> bool:
    """Return whether the delivery itself was cancelled, and not what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
