"""A worker in a thread of a process that does other work too, and whose exit it must not block."""

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
"""How long the current steps of such a worker may take to finish when it is stopped."""


class WorkerThread:
    """A worker in a thread, shared by the backends of this process that have started it.

    Args:
        work: Runs executions until the event is set: only those in the set, if there is one.
        is_own: Whether it runs only the executions in `only`.
    """

    def __init__(self, work: Callable[[asyncio.Event, set[str] | None], Awaitable[object]], *, is_own: bool) -> None:
        self._work = work
        self.only: set[str] | None = set() if is_own else None
        self.backends: weakref.WeakSet[object] = weakref.WeakSet()
        """The backends that have started it and are not closed."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self, backend: object) -> bool:
        """Start the worker unless it is running; return True if it was started."""
        with self._lock:
            self.backends.add(backend)
            if self._thread is not None and self._thread.is_alive():
                return False
            ready = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(ready,), name="strands-durable-worker", daemon=True)
            contextvars.Context().run(
                self._thread.start
            )  # its runs are not part of the trace of the request that starts it
            ready.wait()
            _stop_at_exit(self)
            return True

    def is_left_by(self, backend: object) -> bool:
        """Note that a backend was closed; return True if it was the last one."""
        with self._lock:
            self.backends.discard(backend)
            return not self.backends

    def stop(self) -> None:
        """Stop the worker: its executions stop before their next step, or are left in doubt."""
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
            logger.error("error=<%s> | the worker of this process has stopped", error)

    async def _until_stopped(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._work(self._stop, self.only)


_threads: weakref.WeakSet[WorkerThread] = weakref.WeakSet()


def _stop_at_exit(thread: WorkerThread) -> None:
    """Stop a worker when the script ends, before Python refuses work in threads: runs would record the refusal as an outcome.

    Functions registered with `atexit` run after that; those registered as thread pools register theirs run before.
    """
    if not _threads:
        getattr(threading, "_register_atexit", atexit.register)(_stop_all)
    _threads.add(thread)


def _stop_all() -> None:
    for thread in list(_threads):
        thread.stop()
