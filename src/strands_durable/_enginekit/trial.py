"""The process in which executions that may have killed their worker are tried, one at a time and alone."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from .._records.cipher import Cipher

_LINGER_SECONDS, _WATCH_SECONDS = 2.0, 1.0


_started = threading.Event()


def end_with_worker() -> None:
    """End this process with its worker from now on, even while it imports files; once it has started, `leaving` does."""
    threading.Thread(target=_watch_worker, daemon=True).start()


def _watch_worker() -> None:
    try:
        link = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    except OSError:  # a person has started it
        return
    with link:
        while not _started.wait(_WATCH_SECONDS):
            try:
                is_over = link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                is_over = False
            except OSError:
                is_over = True
            if is_over:
                os._exit(1)


def report_started() -> None:
    """Report to the worker that this process has imported its files."""
    _started.set()
    with suppress(OSError):  # a person has started it
        os.write(sys.stdin.fileno(), b"\n")


async def run_quarantined(path: Path, stop: asyncio.Event, drain_seconds: float, cipher: Cipher | None = None) -> bool:
    """Run suspected executions until ``stop`` is set, or until our worker is gone and none is left."""
    from .._dispatch.worker import Worker

    report_started()
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
    with suppress(ConnectionResetError):  # of a worker that was killed before it had read what we have written
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
