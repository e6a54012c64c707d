"""Crash points: see which boundaries a run has, and die at any of them.

Points are named ``tool.done:before`` and ``tool.done:after`` around each commit, ``model 2:chunk 0`` inside a scripted model,
and whatever a test reaches itself inside its tools. The n-th time a point is reached is a boundary of its own.
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
    """Stands for the death of a process inside a test that goes on."""


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
        """Note every point that the block reaches."""
        before = listen(self._reach)
        try:
            yield self
        finally:
            listen(before)

    @contextmanager
    def crashing(self, point: str, how: Literal["kill", "raise"] = "kill") -> Iterator[CrashPoints]:
        """Die at ``point``: by SIGKILL, or by an exception that no ``except Exception`` holds."""
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
    """Forget what this process knows of its executions, as a new process would: the next call is its first."""
    local_executions.forget()
    reruns.forget()
