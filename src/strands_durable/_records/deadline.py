"""A time limit for a task that waits, kept apart from timeouts and cancels from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class TimedOut(TimeoutError):
    """The time limit was reached."""


async def limited(awaited: Awaitable[T], seconds: float | None) -> T:
    """Return what ``awaited`` returns, or raise `TimedOut` after ``seconds``.

    A cancel from elsewhere is passed on even at the time limit; `asyncio.wait_for` before Python 3.12 may lose it.
    `asyncio.timeout` before Python 3.11.3 raises `CancelledError` in a task that has caught an earlier cancel and continued.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await awaited
    except (TimeoutError, asyncio.CancelledError):
        if limit.expired() and task.cancelling() <= before:
            raise TimedOut from None
        raise
