"""Running an agent's factory: in a thread of its own and with a time limit, because it is the user's code and may hang.

The threads are daemons: a factory that never returns must not keep a process from exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from .._records.deadline import TimedOut, limited
from .._records.retention import Retention

T = TypeVar("T")


async def in_time(
    function: Callable[[], T], seconds: float, agent: str, late: Callable[[Future[T]], None] | None = None
) -> T:
    """Return what ``function`` returns, or raise `TimeoutError` after ``seconds``.

    The event loop is not blocked. If the function ends after the time limit, ``late`` is called in its thread.
    """
    loop, ended, outcome = asyncio.get_running_loop(), asyncio.Event(), Future[T]()
    lock, is_left = threading.Lock(), False
    context = contextvars.copy_context()

    def run() -> None:
        try:
            value = context.run(function)
        except BaseException as error:
            _end(error=error)
        else:
            _end(value)

    def _end(value: T | None = None, error: BaseException | None = None) -> None:
        with lock:
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(value)  # type: ignore[arg-type]
            on_late = late if is_left else None
        if on_late is not None:
            on_late(outcome)
        with suppress(RuntimeError):  # the loop is closed, and with it the task that waited
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name=f"strands-durable-build-{agent}", daemon=True).start()
    try:
        with suppress(TimedOut):
            await limited(ended.wait(), seconds)
    finally:
        with lock:
            is_left = not outcome.done()
    if is_left:
        raise TimeoutError(
            f"The factory of agent {agent!r} did not return within {seconds:g} s. Check what it waits for (a server, a "
            f"download), or allow more time: @durable_agent(build_timeout=...)."
        )
    return outcome.result()


def checked_version(name: str, version: Any) -> str | None:
    """Return the version of an agent, or raise `TypeError`."""
    if version is not None and (not isinstance(version, str) or not version.strip()):
        raise TypeError(f'The version of agent {name!r} must be a string such as "2" or "2025-01-31", not {version!r}')
    return version


def checked_retention(name: str, retention: Any) -> Retention | None:
    """Return the retention of an agent, or raise `TypeError`."""
    if retention is not None and not isinstance(retention, Retention):
        raise TypeError(f"The retention of agent {name!r} must be a Retention, not {retention!r}")
    return retention
