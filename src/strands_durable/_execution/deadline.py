"""A time limit on what a task waits for, told from a cancel by somebody else."""

from __future__ import annotations

import asyncio
import time
from typing import Any


class TimedOut(Exception):
    """A tool did not answer in time."""


class Deadline:
    """Cancels the task it is entered in once a time is over; `asyncio.timeout` is not there before Python 3.11."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._over = False

    def __enter__(self) -> None:
        self._handle = None
        if self._until is not None:
            self._task = asyncio.current_task()
            self._handle = asyncio.get_running_loop().call_later(max(0.0, self._until - time.monotonic()), self._cancel)

    def _cancel(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._over and kind is asyncio.CancelledError:
            uncancel = getattr(self._task, "uncancel", None)
            if uncancel is not None:
                uncancel()
            raise TimedOut from None
