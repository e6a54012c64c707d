"""Where the agents of a worker run: one thread with an event loop, and threads for sync tools."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future

from .._dispatch.runner import Threads
from .driver import Driver


class AgentLoop:
    """A thread whose event loop runs the agents of a worker: what blocks it blocks no heartbeat."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.threads = Threads()
        self._loop.set_default_executor(self.threads)
        self._thread = threading.Thread(target=self._loop.run_forever, name="strands-durable-agents", daemon=True)
        contextvars.Context().run(self._thread.start)

    def run(self, driver: Driver) -> Future[None]:
        """Have an execution run."""
        return asyncio.run_coroutine_threadsafe(driver.run(self._loop), self._loop)

    def stop(self) -> None:
        """Stop; what runs in threads is left alone."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1.0)
        self.threads.shutdown(wait=False)
