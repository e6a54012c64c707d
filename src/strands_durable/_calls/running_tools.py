"""Sync tools that still run under a lease, which is held until they end. `_execution` runs them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from .._journal.owner import Owner
from .._records.logs import safe_logger
from ..errors import ExecutionBusyError

logger = safe_logger(__name__)

_POLL_SECONDS = 0.05


class RunningTool(Protocol):
    """A sync tool in its thread."""

    @property
    def name(self) -> str:
        """The name of the tool."""

    def detach(self) -> None:
        """Record the result without the call, which no longer waits for it."""


class RunningTools:
    """The sync tools that run under one lease."""

    def __init__(self, path: Path, execution_id: str) -> None:
        self.execution_id = execution_id
        self._key = (os.getpid(), path, execution_id)
        self._lock = threading.Lock()
        self._running: set[RunningTool] = set()
        self._then: list[Callable[[], None]] = []
        self._is_left = False

    @property
    def names(self) -> list[str]:
        """The names of the running tools."""
        with self._lock:
            return sorted({thread.name for thread in self._running})

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call ``action`` now, or after the last tool has ended; from now on no tool starts.

        The call that ran the tools is over: what they return is recorded without it.
        """
        with self._lock:
            self._is_left = True
            running = list(self._running)
            if running:
                self._then.append(action)
                _kept[self._key] = self
        if not running:
            action()
        for thread in running:
            thread.detach()

    def add(self, thread: RunningTool) -> bool:
        """Register a tool that is about to run; return False if it may not, because the call has ended."""
        with self._lock:
            if self._is_left:
                return False
            self._running.add(thread)
            return True

    def remove(self, thread: RunningTool) -> None:
        """Unregister a tool whose result is recorded, or taken by its call."""
        with self._lock:
            self._running.discard(thread)
            is_idle = not self._running
        if is_idle:
            self.give_up()

    def give_up(self) -> None:
        """Run now the actions that wait for the last tool."""
        with self._lock:
            actions, self._then = self._then, []
        try:
            for action in actions:
                try:
                    action()
                except Exception:
                    logger.exception("execution_id=<%s> | lease not released", self.execution_id)
        finally:
            if actions and _kept.get(self._key) is self:
                del _kept[self._key]


_kept: dict[tuple[int, Path, str], RunningTools] = {}
"""The leases that are held for a tool although their call has ended; a forked process holds none."""


def leave() -> None:
    """Release every lease that is held for a tool: the process is exiting, and the tools end with it."""
    for tools in list(_kept.values()):
        tools.give_up()


async def wait_for_tools(path: Path, execution_id: str, seconds: float) -> None:
    """Wait for running tools of an earlier call in this process: the resumed call needs their results."""
    deadline = time.monotonic() + seconds + _POLL_SECONDS
    while running := _still_running(path, execution_id):
        if time.monotonic() > deadline:
            names = " and ".join(map(repr, running))
            why = (
                f"A call of this process has ended, but its tool {names} still runs in a thread. Wait for it to return."
            )
            raise ExecutionBusyError(execution_id, str(Owner.me()), why)
        await asyncio.sleep(_POLL_SECONDS)


def _still_running(path: Path, execution_id: str) -> list[str]:
    found = _kept.get((os.getpid(), path, execution_id))
    return [] if found is None else found.names or ["a tool"]
