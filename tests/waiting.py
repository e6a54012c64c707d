"""Wait for a condition, not for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Return when ``condition`` holds; fail if it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, "it did not happen in time"
        time.sleep(_pause(now - asked))
        asked = time.monotonic()


async def until_async(condition: Callable[[], Awaitable[object]], seconds: float = 30) -> None:
    """Return when ``condition`` holds, and let the loop turn meanwhile; fail if it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not await condition():
        now = time.monotonic()
        assert now < deadline, "it did not happen in time"
        await asyncio.sleep(_pause(now - asked))
        asked = time.monotonic()


def _pause(seconds: float) -> float:
    """Return how long to wait after a condition that took so long to find out: what asks a server must not load the machine."""
    return min(max(0.005, 5 * seconds), 0.25)
