"""A separate process for executions that may have killed their worker: they run there one at a time and alone.

This is the side of the worker that starts the process; `_enginekit.trial` is what runs in it.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
import weakref
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from .._journal.owner import Owner
from .._records.executions import NO_TRIAL
from .._records.logs import safe_logger

logger = safe_logger(__name__)

START_SECONDS = 60.0
"""How long the process may take to import its files."""
_RESTART_SECONDS, _MAX_RESTART_SECONDS = 1.0, 300.0
_LINGER_SECONDS = 2.0


class QuarantineProcess:
    """Keeps such a process while there are executions to try. It exits after us, however we exit: its standard input ends.

    It reports through its standard input, a socket, that it has started. One that does not start is no reason to leave
    executions: their worker tries them itself, and starts the process again after longer and longer times.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._has_started = self._is_over = False
        self._started_at = self._due_at = float("-inf")
        self._failures = 0
        self.trouble: str | None = None
        """Why the process cannot be started; None if it can, or if that is not known yet."""
        _processes.add(self)

    def begin(self) -> None:
        """Start the process unless it is running; at most once a second, since an execution may kill it."""
        if self._is_over or self._is_running() or time.monotonic() < self._due_at:
            return
        self._started_at, self._has_started = time.monotonic(), False
        self._due_at = self._started_at + _RESTART_SECONDS
        try:
            self._launch()
        except OSError as error:  # the machine has no memory or process left, or its Python is being replaced
            self._failed(str(error))

    def _launch(self) -> None:
        self._link, its_end = socket.socketpair()
        self._link.setblocking(False)
        with its_end:
            self._process = subprocess.Popen(self._command, stdin=its_end.fileno())
        logger.info("pid=<%d> | running alone what may have killed a worker", self._process.pid)

    def _is_running(self) -> bool:
        if self._process is None:
            return False
        self._listen()
        code = self._process.poll()
        is_late = not self._has_started and time.monotonic() - self._started_at > START_SECONDS
        if code is None and not is_late:
            return True
        if self._has_started:
            logger.warning("exit_code=<%s> | the process that runs suspected executions has died", code)
        elif code is None:
            self._process.kill()
            self._process.wait()
            self._failed(f"it has not imported its files within {START_SECONDS:g} s")
        else:
            self._failed(f"it ended with exit code {code}, and why is in the log of the worker")
        self._process = None
        return False

    def _listen(self) -> None:
        """Note that the process has started, if it has said so."""
        with suppress(OSError):  # nothing to read yet
            if not self._has_started and self._link is not None and self._link.recv(1):
                self._has_started, self._failures, self.trouble = True, 0, None

    def _failed(self, why: str) -> None:
        self._failures += 1
        self._due_at = time.monotonic() + min(_MAX_RESTART_SECONDS, 2.0**self._failures)
        self.trouble = f"{NO_TRIAL} cannot start: {why}"
        logger.warning("error=<%s> | this worker tries them itself when nothing else runs here", self.trouble)

    @asynccontextmanager
    async def until(self, stop: asyncio.Event, seconds: float) -> AsyncIterator[None]:
        """Stop the process when ``stop`` is set, in parallel with our worker: a container may not have twice the time."""
        stopping = asyncio.ensure_future(stop.wait())

        async def end() -> None:
            await asyncio.wait([stopping])
            self._is_over = True
            with ThreadPoolExecutor(1) as own:  # a worker counts everything in the threads of its loop as tools
                await asyncio.get_running_loop().run_in_executor(own, self._end, seconds)

        ending = asyncio.ensure_future(end())
        try:
            yield
        finally:
            stopping.cancel()
            await ending

    def _end(self, seconds: float) -> None:
        """Stop the process gracefully, or kill it after the time limit."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(seconds + _LINGER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_processes: weakref.WeakSet[QuarantineProcess] = weakref.WeakSet()


def troubles() -> list[str]:
    """Return why processes of this worker cannot be started."""
    return [each.trouble for each in _processes if each.trouble is not None]


def untried(trouble: str) -> str:
    """Return why an execution waits that would be tried in a process that cannot start."""
    return f"it may have killed its last worker, and waits until {Owner.me()} runs nothing else and tries it: {trouble}"
