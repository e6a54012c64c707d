"""Runs executions that may have killed their worker in a separate process, which is started for the first of them.

If that process cannot be started, the worker runs them itself, each while nothing else runs there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import Worker

from ..._dispatch.quarantine import QuarantineProcess
from ._activities import Activities
from ._protocol import DRIVE, NOT_HERE
from ._slots import SlotSupplier, tuner

_LOOK_SECONDS = 0.5
_AGAIN = timedelta(seconds=1)


class Suspects:
    """The task queue of executions that may have killed their worker, as a worker sees it.

    Args:
        activities: Those of the worker.
        quarantine: The process that runs them; without it, this worker does, one at a time.
    """

    def __init__(self, activities: Activities, quarantine: QuarantineProcess | None) -> None:
        self._activities, self._quarantine = activities, quarantine
        self._found = asyncio.Event()

    def worker(self, client: Client, task_queue: str, driving: dict[str, Any]) -> Worker:
        """Return the worker of this queue.

        Once the process polls it, this worker does not, but is not stopped: a worker that stops may lose the task of its last
        poll.
        """

        @activity.defn(name=DRIVE)
        async def drive(given: dict) -> Any:  # type: ignore[type-arg]
            return await self._drive(given)

        return Worker(
            client, task_queue=task_queue, tuner=tuner(SlotSupplier(self._slots)), **{**driving, "activities": [drive]}
        )

    @property
    def _is_left(self) -> bool:
        """Whether they are left to the process."""
        return self._quarantine is not None and self._quarantine.trouble is None

    def _slots(self) -> int:
        return int(not self._found.is_set()) if self._is_left else 1 + self._activities.waiting(alone=True)

    async def _drive(self, given: Any) -> Any:
        self._found.set()
        if not self._is_left:
            return await self._activities.drive(given)
        raise ApplicationError(  # Temporal offers it again a moment later
            "it must run in a process of its own",
            type=NOT_HERE,
            category=ApplicationErrorCategory.BENIGN,
            next_retry_delay=_AGAIN,
        )

    @asynccontextmanager
    async def tried(self, drain_seconds: float, stop: asyncio.Event) -> AsyncIterator[None]:
        """Start the process once an execution waits, restart it whenever it dies, and end it with ``stop``."""
        if self._quarantine is None:
            yield
            return
        task = asyncio.ensure_future(self._keep(self._quarantine))
        try:
            async with self._quarantine.until(stop, drain_seconds):
                yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _keep(self, quarantine: QuarantineProcess) -> None:
        await self._found.wait()
        while True:
            quarantine.begin()
            await asyncio.sleep(_LOOK_SECONDS)
