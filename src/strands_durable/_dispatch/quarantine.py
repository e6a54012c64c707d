"""A separate process for executions that may have killed their worker: they run there one at a time and alone.

`QuarantineProcess` belongs to the worker that starts the process, `run_quarantined` runs in it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from .._records.cipher import Cipher
from .._records.logs import safe_logger

logger = safe_logger(__name__)

_RESTART_SECONDS = 1.0
_LINGER_SECONDS = 2.0


class QuarantineProcess:
    """Keeps such a process while there are executions to try. It exits after us, however we exit: its standard input ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = float("-inf")
        self._is_over = False

    def begin(self) -> None:
        """Start the process unless it is running; at most once a second, since an execution may kill it."""
        is_running = self._process is not None and self._process.poll() is None
        if self._is_over or is_running or time.monotonic() - self._started_at < _RESTART_SECONDS:
            return
        if self._process is not None:
            logger.warning(
                "exit_code=<%s> | the process that runs suspected executions has died", self._process.returncode
            )
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
        logger.info("pid=<%d> | running alone what may have killed a worker", self._process.pid)

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


async def run_quarantined(path: Path, stop: asyncio.Event, drain_seconds: float, cipher: Cipher | None = None) -> bool:
    """Run suspected executions until ``stop`` is set, or until our worker is gone and none is left."""
    from .worker import Worker

    worker = Worker(path, concurrency=1, suspects="only", cipher=cipher)
    async with leaving(lambda: worker.busy, stop):
        return await worker.run(stop, drain_seconds)


@asynccontextmanager
async def leaving(busy: Callable[[], int], stop: asyncio.Event) -> AsyncIterator[None]:
    """Set ``stop`` when our worker is gone and nothing has run here for a while: what it left is for us to try, too."""
    orphaned = asyncio.Event()
    threading.Thread(target=_wait, args=(asyncio.get_running_loop(), orphaned), daemon=True).start()
    task = asyncio.ensure_future(_leave(busy, orphaned, stop))
    try:
        yield
    finally:
        task.cancel()


def _wait(loop: asyncio.AbstractEventLoop, orphaned: asyncio.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # not through sys.stdin, whose lock Python takes at exit
        pass
    try:
        loop.call_soon_threadsafe(orphaned.set)
    except RuntimeError:  # the loop has ended before its worker
        pass


async def _leave(busy: Callable[[], int], orphaned: asyncio.Event, stop: asyncio.Event) -> None:
    await orphaned.wait()
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < _LINGER_SECONDS:
        await asyncio.sleep(_LINGER_SECONDS / 10)
        if busy():
            idle_since = time.monotonic()
    stop.set()
