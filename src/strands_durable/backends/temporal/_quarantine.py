"""Runs executions that may have killed their worker in a separate process, which is started for the first of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from ..._dispatch.quarantine import QuarantineProcess
from ._protocol import DRIVE, NOT_HERE
from ._slots import SlotSupplier, tuner

_LOOK_SECONDS = 0.5
_AGAIN = timedelta(seconds=1)


@asynccontextmanager
async def calling_for(
    client: Client, task_queue: str, quarantine: QuarantineProcess, drain_seconds: float, stop: asyncio.Event
) -> AsyncIterator[None]:
    """Start the process once an execution waits on its task queue, restart it whenever it dies, and end it with ``stop``."""
    task = asyncio.ensure_future(_call_for(client, task_queue, quarantine))
    try:
        async with quarantine.until(stop, drain_seconds):
            yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _call_for(client: Client, task_queue: str, quarantine: QuarantineProcess) -> None:
    found = asyncio.Event()

    @activity.defn(name=DRIVE)
    async def hand_on(given: dict) -> Any:  # type: ignore[type-arg]
        found.set()  # an execution waits; Temporal offers it again a moment later
        raise ApplicationError(
            "it must run in a process of its own",
            type=NOT_HERE,
            category=ApplicationErrorCategory.BENIGN,
            next_retry_delay=_AGAIN,
        )

    # From then on this worker does not poll, but is not stopped: a worker that stops may lose the task of its last poll.
    slots = SlotSupplier(lambda: 0 if found.is_set() else 1)
    poll = PollerBehaviorSimpleMaximum(1)
    async with Worker(
        client, task_queue=task_queue, activities=[hand_on], activity_task_poller_behavior=poll, tuner=tuner(slots)
    ):
        await found.wait()
        while True:
            quarantine.begin()
            await asyncio.sleep(_LOOK_SECONDS)
