"""Runs a worker beside Dapr's workflow runtime, which has threads and an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from dapr.ext.workflow import WorkflowActivityContext, WorkflowRuntime

from ..._dispatch.quarantine import QuarantineProcess
from ..._dispatch.stopping import in_daemon, unless
from ..._enginekit.key_value.engine import KeyValueEngine
from ..._enginekit.key_value.notifier import Notifier
from ..._enginekit.key_value.worker import run_periodically
from ..._enginekit.trial import leaving
from ..._records.cipher import Cipher
from ..._records.deadline import limited
from ._client import LOGGING, WORKER_SECONDS, Sidecar
from ._step_events import StepEvents
from ._url import DaprConfig
from ._worker import DaprWorker
from ._workflow import DISPATCH, RUN_AGENT, WORKFLOW, supervise

BEAT_SECONDS, CHECK_SECONDS, TRIAL_SECONDS = 1.0, 5.0, 0.5
_MANY = 100_000
"""Activities at a time: one that follows or waits costs next to nothing."""
_LEAVE_SECONDS, _REPORT_SECONDS = 2.0, 2.0


async def work(
    config: DaprConfig,
    *,
    concurrency: int,
    drain_seconds: float,
    stop: asyncio.Event,
    quarantine: QuarantineProcess | None = None,
    is_trial: bool = False,
    runtime: WorkflowRuntime | None = None,
    cipher: Cipher | None = None,
) -> bool:
    """Run executions until ``stop`` is set, then let the current steps end; return True if all of them did."""
    sidecar = Sidecar(config, WORKER_SECONDS)
    steps = StepEvents(sidecar)
    engine = KeyValueEngine.at(sidecar, steps.add, cipher)
    heartbeat = await engine.workers.begin()
    worker = DaprWorker(sidecar, engine, steps, heartbeat, concurrency, quarantine)
    async with AsyncExitStack() as stack:
        stack.callback(heartbeat.end)
        stack.push_async_callback(sidecar.close)
        stack.push_async_callback(worker.close)
        notifier = Notifier(engine, worker.pool.owner.recorded())
        stack.push_async_callback(notifier.close)
        for seconds, duty in _duties(worker, is_trial=is_trial):
            stack.callback(asyncio.create_task(run_periodically(seconds, duty)).cancel)
        if quarantine is not None:
            await stack.enter_async_context(quarantine.until(stop, drain_seconds))
        if is_trial:
            await stack.enter_async_context(leaving(lambda: len(worker.live), stop))
        else:
            notifier.start()
            await _connect(stack, runtime or _new_runtime(config), worker, stop)
            await unless(stop, heartbeat.join())
        await stop.wait()
        is_clean = await worker.drained(drain_seconds)
        if not is_trial:
            await notifier.finish(_REPORT_SECONDS)
        with suppress(TimeoutError):
            await limited(heartbeat.leave(), _LEAVE_SECONDS)
        return is_clean


def _duties(worker: DaprWorker, *, is_trial: bool) -> list[tuple[float, Callable[[], Awaitable[None]]]]:
    """Return what a worker does periodically, and how often."""
    return [
        (BEAT_SECONDS, worker.heartbeat.beat),
        (BEAT_SECONDS, worker.obey),
        (BEAT_SECONDS, worker.report_steps),
        (CHECK_SECONDS, worker.check_workflows),
        (TRIAL_SECONDS, worker.try_suspects) if is_trial else (BEAT_SECONDS, worker.sweep),
    ]


def _new_runtime(config: DaprConfig) -> WorkflowRuntime:
    return WorkflowRuntime(config.host, str(config.port), LOGGING, maximum_concurrent_activity_work_items=_MANY)


async def _connect(stack: AsyncExitStack, runtime: WorkflowRuntime, worker: DaprWorker, stop: asyncio.Event) -> None:
    """Connect to the sidecar; return earlier if the worker is stopped."""
    _register(runtime, worker)
    stack.push_async_callback(in_daemon, runtime.shutdown)
    await unless(stop, in_daemon(runtime.start))


def _register(runtime: WorkflowRuntime, worker: DaprWorker) -> None:
    """Register the workflow and its activities, which run on the loop of the worker."""
    loop = asyncio.get_running_loop()

    def workflow(ctx: Any, payload: dict) -> Any:  # type: ignore[type-arg]  # Dapr allows each function to be registered once
        return supervise(ctx, payload)

    async def run_agent(_: WorkflowActivityContext, payload: dict) -> Any:  # type: ignore[type-arg]
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(worker.run_agent(payload), loop))

    async def dispatch(_: WorkflowActivityContext, payload: dict) -> Any:  # type: ignore[type-arg]
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(worker.dispatch(payload), loop))

    runtime.register_workflow(workflow, name=WORKFLOW)
    runtime.register_activity(run_agent, name=RUN_AGENT)
    runtime.register_activity(dispatch, name=DISPATCH)
