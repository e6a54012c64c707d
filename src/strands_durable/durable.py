"""Recorded side effects, timers, clocks and ids for hooks and tools: done once, and the same after a crash.

Each is named by the step or hook that encloses it, by its name, and by how often that name came up there. Outside of a durable
call they do the plain thing, so that the same code runs in an agent without `Durability`.
"""

from __future__ import annotations

import inspect
import time
import uuid as _uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any, TypeVar, cast

from ._calls.context import current_context
from ._calls.effects import Effect, effect_guard, pause

T = TypeVar("T")


async def step(name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
    """Run ``fn`` and record what it returns; after a crash its recorded result is returned instead."""
    found = current_context.get()
    if found is None:
        return cast(T, await _value(fn))
    with effect_guard(found):
        effect = Effect(found, name, intent=True)
    if effect.recorded is not None:
        return cast(T, effect.recorded.result)
    await effect.wait()
    with effect.holding():
        try:
            value = await _value(fn)
        except Exception as error:
            with effect_guard(found):
                effect.fail(error)
            raise
        with effect_guard(found):
            return cast(T, effect.close(value))


async def sleep(seconds: float) -> None:
    """Wait until ``seconds`` from the first time this was reached; after a crash only the rest is waited for."""
    deadline = _recorded("sleep", lambda: time.time() + seconds)
    await pause(max(0.0, deadline - time.time()), "sleep")


def now() -> datetime:
    """Return the current time in UTC, the same one after a crash."""
    return _recorded("now", lambda: datetime.now(timezone.utc))


def uuid() -> _uuid.UUID:
    """Return a random UUID, the same one after a crash."""
    return _recorded("uuid", _uuid.uuid4)


def _recorded(name: str, make: Callable[[], T]) -> T:
    found = current_context.get()
    if found is None:
        return make()
    with effect_guard(found):
        effect = Effect(found, name, intent=False)
        return cast(T, effect.recorded.result if effect.recorded is not None else effect.close(make()))


async def _value(fn: Callable[[], Any]) -> Any:
    value = fn()
    return await value if inspect.isawaitable(value) else value
