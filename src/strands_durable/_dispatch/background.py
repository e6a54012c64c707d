"""A worker in a thread of a process that does other things too, and that it must not keep from ending."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import threading
import weakref
from collections.abc import Awaitable, Callable

from .._records.logs import safe_logger
from ..errors import DurableError

logger = safe_logger(__name__)

DRAIN_SECONDS = 1.0
"""How long the current steps of such a worker may take to end when it is stopped."""


class WorkerThread:
    """A worker in a thread, shared by the backends of this process that have started it.

    Args:
        work: Works until the event is set; on the executions in the set alone, if there is one.
        is_own: Whether it carries only what it was told to, in `only`.
    """

    def __init__(self, work: Callable[[asyncio.Event, set[str] | None], Awaitable[object]], *, is_own: bool) -> None:
        self._work = work
        self.only: set[str] | None = set() if is_own else None
        self.backends: weakref.WeakSet[object] = weakref.WeakSet()
        """Those that have started it, and are not closed."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self, backend: object) -> bool:
        """Start, if it does not run; return True if it did not."""
        with self._lock:
            self.backends.add(backend)
            if self._thread is not None and self._thread.is_alive():
                return False
            ready = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(ready,), name="strands-durable-worker", daemon=True)
            contextvars.Context().run(self._thread.start)  # its runs belong to no trace of the request that starts it
            ready.wait()
            _stop_at_exit(self)
            return True

    def is_left_by(self, backend: object) -> bool:
        """Take note that a backend was closed; say whether it was the last one."""
        with self._lock:
            self.backends.discard(backend)
            return not self.backends

    def stop(self) -> None:
        """Stop: what it runs stops before its next step, or is left in doubt."""
        with self._lock:
            thread, loop, stop = self._thread, self._loop, self._stop
            self._thread = None
        if thread is not None and loop is not None and stop is not None and thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
            thread.join(timeout=DRAIN_SECONDS + 5.0)

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._until_stopped(ready))
        except DurableError as error:
            logger.error("error=<%s> | the worker of this process has ended", error)

    async def _until_stopped(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._work(self._stop, self.only)


_threads: weakref.WeakSet[WorkerThread] = weakref.WeakSet()


def _stop_at_exit(thread: WorkerThread) -> None:
    """Stop a worker when the script ends: before Python refuses work for threads, which runs would take for their results.

    Functions registered with `atexit` come after that; those that thread pools use themselves do not.
    """
    if not _threads:
        getattr(threading, "_register_atexit", atexit.register)(_stop_all)
    _threads.add(thread)


def _stop_all() -> None:
    for thread in list(_threads):
        thread.stop()
