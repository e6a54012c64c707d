"""Recorded side effects, timers, clocks and ids for hooks and tools: each happens once, and is the same after a crash.

Each is identified by the step or hook that encloses it, its name, and how often that name was used there before. Outside of a
durable call nothing is recorded, so the same code runs in an agent without `Durability`.
"""

from __future__ import annotations

import inspect
import time
import uuid as _uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from ._calls.context import current_context
from ._calls.effects import Effect, effect_guard, pause

T = TypeVar("T")


async def step(name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
    """Run ``fn`` and record its result; after a crash, return the recorded result instead."""
    context = current_context.get()
    if context is None:
        return cast(T, await _value(fn))
    with effect_guard(context):
        effect = Effect(context, name, intent=True)
    if effect.recorded is not None:
        return cast(T, effect.recorded.result)
    await effect.wait()
    with effect.holding():
        inside = current_context.set(context.in_effect(effect.key))
        try:
            value = await _value(fn)
        except Exception as error:
            with effect_guard(context):
                effect.fail(error)
            raise
        finally:
            current_context.reset(inside)
        with effect_guard(context):
            return cast(T, effect.close(value))


async def sleep(seconds: float) -> None:
    """Sleep until ``seconds`` after the first time this was reached; after a crash, sleep only for the rest."""
    deadline = _recorded("sleep", lambda: time.time() + seconds)
    await pause(max(0.0, deadline - time.time()), "sleep")


def now() -> datetime:
    """Return the current time in UTC; after a crash, the recorded one."""
    return _recorded("now", lambda: datetime.now(UTC))


def uuid() -> _uuid.UUID:
    """Return a random UUID; after a crash, the recorded one."""
    return _recorded("uuid", _uuid.uuid4)


def _recorded(name: str, make: Callable[[], T]) -> T:
    context = current_context.get()
    if context is None:
        return make()
    with effect_guard(context):
        effect = Effect(context, name, intent=False)
        return cast(T, effect.recorded.result if effect.recorded is not None else effect.close(make()))


async def _value(fn: Callable[[], Any]) -> Any:
    value = fn()
    return await value if inspect.isawaitable(value) else value
