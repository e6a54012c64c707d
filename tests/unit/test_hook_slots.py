"""How many calls of one hook run at a time, whatever kind of function it is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strands_durable._dispatch.notifications import hooks
from strands_durable._dispatch.notifications.hooks import Hook, called
from strands_durable._records.notifications import Notification

NOTIFICATION = Notification(notification_id="n", event="failed", execution_id="e", agent="a", at=0.0)
SLOTS = 8


class AtOnce:
    """Has to be awaited."""

    def __await__(self) -> Iterator[None]:
        return iter(())


class Hanging:
    """Counts calls that do not return."""

    def __init__(self) -> None:
        self.most, self._now, self._lock = 0, 0, threading.Lock()

    def _begin(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    async def wait(self, notification: Notification) -> None:
        self._begin()
        try:
            await asyncio.sleep(60)
        finally:
            self._now -= 1

    async def __call__(self, notification: Notification) -> None:
        await self.wait(notification)

    def later(self, notification: Notification) -> Any:
        return self.wait(notification)

    def fails_later(self, notification: Notification) -> Any:
        raise OSError("no")

    def block(self, notification: Notification) -> None:
        self._begin()
        time.sleep(1)

    def slowly(self, notification: Notification) -> Any:
        time.sleep(1)
        return AtOnce()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_HOOK_SECONDS", 0.3)
    monkeypatch.setattr(hooks, "_SLOT_SECONDS", 0.1)


@pytest.mark.parametrize(
    "kind", [Hanging.wait, Hanging.later, Hanging, Hanging.block], ids=["async", "later", "object", "thread"]
)
def test_a_hook_that_hangs_has_so_many_calls_and_no_more(kind: Callable[..., Any]) -> None:
    hanging = Hanging()
    hook = Hook("page", frozenset(["failed"]), hanging if kind is Hanging else kind.__get__(hanging))

    async def call() -> list[str | None]:
        return await asyncio.gather(*(called(hook, NOTIFICATION, is_new=True) for _ in range(40)))

    errors = asyncio.run(call())
    assert hanging.most == SLOTS
    assert sum("it was not called" in (each or "") for each in errors) == 40 - SLOTS


@pytest.mark.parametrize("kind", [Hanging.later, Hanging.fails_later, Hanging.slowly, lambda it, _: None])
def test_slots_are_free_again_once_all_calls_have_ended(kind: Callable[..., Any]) -> None:
    hook = Hook("page", frozenset(["failed"]), kind.__get__(Hanging()))

    async def call() -> None:
        for _ in range(2):
            await asyncio.gather(*(called(hook, NOTIFICATION, is_new=True) for _ in range(SLOTS)))
            await asyncio.sleep(1.2)

    asyncio.run(call())
    for _ in range(SLOTS):
        assert asyncio.run(hook.slots.taken(is_new=True))
    assert not asyncio.run(hook.slots.taken(is_new=True))
