"""Executions that may have killed their worker: a process of its own tries them, and is started with the first of them."""

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

from ..._trials import Trials
from ._wire import DRIVE, NOT_HERE

_LOOK_SECONDS = 0.5
_AGAIN = timedelta(seconds=1)


@asynccontextmanager
async def calling_for(
    client: Client, task_queue: str, trials: Trials, drain_seconds: float, stop: asyncio.Event
) -> AsyncIterator[None]:
    """Start the process once an execution waits on its task queue, and again whenever it has died; end it with ``stop``."""
    calling = asyncio.ensure_future(_call_for(client, task_queue, trials))
    stopping = asyncio.ensure_future(stop.wait())

    async def end() -> None:
        await asyncio.wait([stopping, calling], return_when=asyncio.FIRST_COMPLETED)
        calling.cancel()
        await asyncio.wait([calling])
        await asyncio.to_thread(trials.end, drain_seconds)

    ending = asyncio.ensure_future(end())  # both are drained at the same time: a container may not have twice as long
    try:
        yield
    finally:
        stopping.cancel()
        await ending


async def _call_for(client: Client, task_queue: str, trials: Trials) -> None:
    await _first(client, task_queue)
    while True:
        trials.begin()
        await asyncio.sleep(_LOOK_SECONDS)


async def _first(client: Client, task_queue: str) -> None:
    """Return when an execution waits there; it is offered again a moment later."""
    found = asyncio.Event()

    @activity.defn(name=DRIVE)
    async def hand_on(given: dict) -> Any:  # type: ignore[type-arg]
        found.set()
        raise ApplicationError(
            "it is to be tried in a process of its own",
            type=NOT_HERE,
            category=ApplicationErrorCategory.BENIGN,
            next_retry_delay=_AGAIN,
        )

    poll = PollerBehaviorSimpleMaximum(1)
    async with Worker(client, task_queue=task_queue, activities=[hand_on], activity_task_poller_behavior=poll):
        await found.wait()
