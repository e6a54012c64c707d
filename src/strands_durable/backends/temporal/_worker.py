"""The worker of a Temporal backend: hosts the workflow, takes over executions, and has its own task queue for their steps."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Container, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Plugin, PollerBehaviorSimpleMaximum, Worker

from ..._dispatch.quarantine import QuarantineProcess
from ..._dispatch.stopping import CLOSE_SECONDS, cancelled
from ..._enginekit.agent_loop import AgentLoop
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.trial import leaving
from ..._records.deadline import limited
from ..._records.logs import safe_logger
from ._activities import Activities
from ._connectivity import Link
from ._notifications.deliveries import Deliveries
from ._notifications.notify_workflow import NotifyWorkflow
from ._quarantine import Suspects
from ._slots import SlotSupplier, tuner
from ._workflow import ExecutionWorkflow
from ._workflow_worker import sandbox

logger = safe_logger(__name__)

_MAX_STEPS = 1000
_THROTTLE_SECONDS = 2.0
_GRACE = timedelta(seconds=2)
"""For a step that arrives after its execution was released: it is answered that the execution does not run here."""
_STICKY = timedelta(seconds=1)
"""How long a workflow waits for the worker that has it cached. Any other worker replays its history, which is quick."""
_CANCEL_SECONDS = 0.25
_ONE_POLL = PollerBehaviorSimpleMaximum(1)
"""A frozen worker delays one execution for every open poll."""


async def work(
    client: Client,
    task_queue: str,
    payload_store: PayloadStore,
    *,
    heartbeat_seconds: float = 10.0,
    concurrency: int,
    drain_seconds: float,
    stop: asyncio.Event,
    only: Container[str] | None = None,
    quarantine: QuarantineProcess | None = None,
    is_trial: bool = False,
    plugins: Sequence[Plugin] = (),
    deliveries: Deliveries | None = None,
) -> bool:
    """Run executions until ``stop`` is set, then let the current steps end; return True if all of them did.

    With ``only``, run only the executions of these workflows. ``quarantine``, if given, runs executions that may have killed
    their worker; with ``is_trial``, this process runs only those. ``deliveries``, if given, calls the hooks of this process.
    """
    own, loop = f"{task_queue}/{uuid.uuid4().hex}", AgentLoop()
    link = Link(client, heartbeat_seconds)
    reports = () if deliveries is None else deliveries.events
    activities = Activities(client, own, loop, payload_store, link, only, reports, quarantine)
    throttle = timedelta(seconds=min(_THROTTLE_SECONDS, heartbeat_seconds / 4))
    common: dict[str, Any] = {"plugins": plugins, "max_heartbeat_throttle_interval": throttle}
    driving = {**common, **_driving(activities, drain_seconds)}
    workers = [_steps_worker(client, own, activities, common)]
    if not is_trial:
        slots = SlotSupplier(lambda: concurrency + activities.waiting())
        workers.append(_executions_worker(client, task_queue, slots, driving))
        if deliveries is not None:
            workers.append(deliveries.worker(client, task_queue, {**common, "graceful_shutdown_timeout": _GRACE}))
    suspects = Suspects(activities, quarantine)
    workers.append(suspects.worker(client, f"{task_queue}/suspects", driving))
    async with AsyncExitStack() as beside:
        await beside.enter_async_context(link.watched(activities.back))
        await beside.enter_async_context(suspects.tried(drain_seconds, stop))
        if is_trial:
            await beside.enter_async_context(leaving(lambda: len(activities.names()), stop))
        is_clean = await _run(workers, activities, drain_seconds, stop)
    is_busy = loop.threads.is_busy
    loop.stop()
    return is_clean and not is_busy


def _driving(activities: Activities, drain_seconds: float) -> dict[str, Any]:
    """Return the options of every worker that takes over executions."""
    return {
        "activities": activities.drives(),
        "graceful_shutdown_timeout": timedelta(seconds=drain_seconds),
        "activity_task_poller_behavior": _ONE_POLL,
    }


def _steps_worker(client: Client, own: str, activities: Activities, common: dict[str, Any]) -> Worker:
    return Worker(
        client,
        task_queue=own,
        activities=activities.steps(),
        max_concurrent_activities=_MAX_STEPS,
        graceful_shutdown_timeout=_GRACE,
        **common,
    )


def _executions_worker(client: Client, task_queue: str, slots: SlotSupplier, driving: dict[str, Any]) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[ExecutionWorkflow, NotifyWorkflow],
        workflow_runner=sandbox(),
        tuner=tuner(slots),
        sticky_queue_schedule_to_start_timeout=_STICKY,
        **driving,
    )


async def _run(workers: list[Worker], activities: Activities, drain_seconds: float, stop: asyncio.Event) -> bool:
    """Run workers until ``stop`` is set; the first one, which runs the steps, ends after the others."""
    running = [asyncio.create_task(worker.run()) for worker in workers]
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        until = time.monotonic() + drain_seconds + CLOSE_SECONDS
        for each in zip(workers[1:], running[1:], strict=True):
            _begin_to_end(*each)
        is_clean = await _drained(activities, drain_seconds)
        _begin_to_end(workers[0], running[0])
        _, late = await asyncio.wait(running, timeout=until - time.monotonic())
    for run in running:
        error = None if run in late else run.exception()
        if error is not None:
            raise error
    await _leave({worker.task_queue for worker, run in zip(workers, running, strict=True) if run in late}, late)
    return is_clean and not late


async def _drained(activities: Activities, seconds: float) -> bool:
    """Release every execution after its current steps, and claim no more; return True if all ended in time."""
    activities.stop()
    try:
        await limited(activities.idle(), seconds)
    except TimeoutError:
        left = ", ".join(sorted(activities.names())) or "none"
        logger.warning(
            "executions=<%s>, seconds=<%g> | not released in time, their steps are left in doubt", left, seconds
        )
        return False
    return True


def _begin_to_end(worker: Worker, run: asyncio.Future[None]) -> None:
    """Have a worker shut down; its run ends later, or never: its server may be frozen, or a workflow stuck in its thread."""
    ending = asyncio.ensure_future(worker.shutdown())
    run.add_done_callback(lambda _: ending.cancel())


async def _leave(queues: set[str], runs: set[asyncio.Task[None]]) -> None:
    """Leave workers that have not shut down; the server gives their tasks to others once it misses them."""
    if runs:
        logger.warning(
            "task_queues=<%s> | Temporal's workers have not shut down in time and are left", ", ".join(sorted(queues))
        )
        await cancelled(*runs, seconds=_CANCEL_SECONDS)
