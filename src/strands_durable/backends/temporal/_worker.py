"""The worker of a Temporal backend: hosts the workflow, takes executions over, and has a queue of its own for their steps."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Container, Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Plugin, PollerBehaviorSimpleMaximum, Worker

from ..._driver import Loop
from ..._outside import Outside
from ._activities import Activities
from ._hosting import sandbox
from ._seats import Seats, tuner
from ._workflow import ExecutionWorkflow

logger = logging.getLogger(__name__)

_MAX_STEPS = 1000
_THROTTLE_SECONDS = 2.0
_STICKY = timedelta(seconds=1)
"""How long a workflow waits for the worker that remembers it. Another one reads its history, which is quick."""
_ONE_POLL = PollerBehaviorSimpleMaximum(1)
"""A worker that is frozen swallows an execution with every poll that is open."""


async def work(
    client: Client,
    task_queue: str,
    outside: Outside,
    *,
    heartbeat_seconds: float = 10.0,
    concurrency: int,
    drain_seconds: float,
    stop: asyncio.Event,
    only: Container[str] | None = None,
    plugins: Sequence[Plugin] = (),
) -> bool:
    """Carry executions until ``stop`` is set, then let the current steps end; return True if all of them did.

    With ``only``, those of these workflows alone.
    """
    own, loop = f"{task_queue}/{uuid.uuid4().hex}", Loop()
    activities = Activities(client, own, loop, outside, only)
    throttle = timedelta(seconds=min(_THROTTLE_SECONDS, heartbeat_seconds / 4))
    common: dict[str, Any] = {"plugins": plugins, "max_heartbeat_throttle_interval": throttle}
    driving: dict[str, Any] = {
        **common,
        "graceful_shutdown_timeout": timedelta(seconds=drain_seconds),
        "activity_task_poller_behavior": _ONE_POLL,
    }
    workers = [
        Worker(client, task_queue=own, activities=activities.steps(), max_concurrent_activities=_MAX_STEPS, **common),
        Worker(
            client,
            task_queue=task_queue,
            workflows=[ExecutionWorkflow],
            workflow_runner=sandbox(),
            activities=activities.drives(),
            tuner=tuner(Seats(concurrency, activities.waiting)),
            sticky_queue_schedule_to_start_timeout=_STICKY,
            **driving,
        ),
        Worker(
            client,
            task_queue=f"{task_queue}/suspects",
            activities=activities.drives(),
            max_concurrent_activities=1,
            **driving,
        ),
    ]
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        ending = [asyncio.ensure_future(_ended(*each)) for each in zip(workers[1:], running[1:], strict=True)]
        is_clean = await _drained(activities, drain_seconds)
    finally:
        stopping.cancel()
        ends = [await _ended(workers[0], running[0]), *(await asyncio.gather(*ending))]
        is_busy = loop.threads.is_busy
        loop.stop()
    for error in ends:
        if error is not None:
            raise error
    return is_clean and not is_busy


async def _drained(activities: Activities, seconds: float) -> bool:
    """Have every execution left after its current steps, and take no other; return True if there was time for that."""
    activities.stop()
    try:
        await asyncio.wait_for(activities.idle(), seconds)
    except asyncio.TimeoutError:
        return False
    return True


async def _ended(worker: Worker, run: asyncio.Future[None]) -> BaseException | None:
    if not run.done():
        await worker.shutdown()
    await asyncio.wait([run])
    return run.exception()
