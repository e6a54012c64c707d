"""A time limit on what a task waits for, which is not confused with timeouts and cancels from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class TimedOut(Exception):
    """What was awaited did not happen in time."""


async def limited(awaited: Awaitable[T], seconds: float | None) -> T:
    """Return what ``awaited`` returns, or raise `TimedOut` after so many seconds.

    A cancel from elsewhere is passed on even if it comes together with the end of the time: `asyncio.wait_for` before Python
    3.12 may lose it. Before Python 3.11.3 `asyncio.timeout` is itself a cancel in a task that was cancelled and went on.
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
