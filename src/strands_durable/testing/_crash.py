"""Crash points: list the boundaries of a run, and crash at any of them.

Points are named ``tool.done:before`` and ``tool.done:after`` around each commit, ``model 2:chunk 0`` inside a scripted model,
and whatever name a test passes to `reach` inside its tools. Each time a point is reached counts as a separate boundary.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from .._calls.local_execution import local_executions
from .._execution import reruns
from .._records.crash_points import listen, reach

__all__ = ["CrashPoints", "SimulatedCrash", "forget_process", "reach"]


class SimulatedCrash(BaseException):
    """Simulates the death of a process inside a test that keeps running."""


class CrashPoints:
    """The points that a run has reached, in order, as ``name@n``."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._counts: Counter[str] = Counter()
        self._deadly: str | None = None
        self._how: Literal["kill", "raise"] = "kill"
        self._dead = False

    @contextmanager
    def recording(self) -> Iterator[CrashPoints]:
        """Record every point that the block reaches."""
        before = listen(self._reach)
        try:
            yield self
        finally:
            listen(before)

    @contextmanager
    def crashing(self, point: str, how: Literal["kill", "raise"] = "kill") -> Iterator[CrashPoints]:
        """Crash at ``point``: by SIGKILL, or by an exception that ``except Exception`` does not catch."""
        self._deadly, self._how = point, how
        with self.recording():
            yield self

    def _reach(self, name: str) -> None:
        if self._dead:
            raise SimulatedCrash(self._deadly)
        self._counts[name] += 1
        point = f"{name}@{self._counts[name]}"
        self.reached.append(point)
        if point != self._deadly:
            return
        if self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        self._dead = True
        raise SimulatedCrash(point)


def forget_process() -> None:
    """Forget what this process knows about its executions, so that the next call starts like that of a new process."""
    local_executions.forget()
    reruns.forget()
