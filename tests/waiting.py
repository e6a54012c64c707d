"""Wait for a condition, not for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Return when ``condition`` holds; fail if it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


async def until_async(condition: Callable[[], Awaitable[object]], seconds: float = 30) -> None:
    """Return when ``condition`` holds, and let the loop turn meanwhile; fail if it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
