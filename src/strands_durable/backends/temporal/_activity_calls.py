"""The activities that the workflow schedules on workers, and their timeouts. Imported into the sandbox."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from ._protocol import CARRY, DRIVE, GONE, BatchMessage, Carrying, Driving, Start

_FOR_EVER = timedelta(days=3650)
_ID_BYTES = 200
_STEP_HEARTBEATS = 6
"""How many times rarer a step heartbeats than its execution, whose heartbeat already shows that the worker is alive."""
_HOLDER_TIMEOUT = timedelta(seconds=25)
"""How long a worker that still has the execution may take to poll again: after a long outage it polls every ten seconds."""
_ONCE = RetryPolicy(maximum_attempts=1)
_UNTIL_A_WORKER_HAS_IT = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=1.5,
    maximum_interval=timedelta(seconds=10),
    non_retryable_error_types=["TemporalTimeout:Heartbeat", GONE],
)
"""Temporal retries when a worker lacks the agent. The workflow itself handles a lost worker."""
_UNTIL_IT_IS_DONE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))


def start_driving(given: Driving, start: Start, holder: str) -> asyncio.Task[BatchMessage]:
    """Offer an execution to workers: to all, to those that run quarantined executions, or to the one that still has it."""
    queue = workflow.info().task_queue
    drive: asyncio.Task[BatchMessage] = workflow.start_activity(
        DRIVE,
        given,
        activity_id=f"{given['epoch']}",
        task_queue=holder or (f"{queue}/suspects" if given["alone"] else queue),
        schedule_to_start_timeout=_HOLDER_TIMEOUT if holder else None,
        start_to_close_timeout=_FOR_EVER,
        heartbeat_timeout=_heartbeat(start),
        retry_policy=_ONCE if holder else _UNTIL_A_WORKER_HAS_IT,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=start["agent"],
        result_type=dict,
    )
    return drive


async def ask(what: str, given: Any, activity_id: str, queue: str, start: Start, summary: str) -> BatchMessage:
    """Ask the worker that has an execution to let a step run, to release the execution or to stop it."""
    message: BatchMessage = await workflow.execute_activity(
        what,
        given,
        activity_id=activity_id.encode()[:_ID_BYTES].decode(errors="ignore"),  # every server accepts that length
        task_queue=queue,
        start_to_close_timeout=_FOR_EVER,
        heartbeat_timeout=_STEP_HEARTBEATS * _heartbeat(start),
        retry_policy=_ONCE,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=summary or None,
        result_type=dict,
    )
    return message


async def carry(given: Carrying, start: Start) -> None:
    """Have any worker send this run the state of the run before it."""
    await workflow.execute_activity(
        CARRY,
        given,
        start_to_close_timeout=_FOR_EVER,
        heartbeat_timeout=_heartbeat(start),
        retry_policy=_UNTIL_IT_IS_DONE,
        result_type=dict,
    )


def _heartbeat(start: Start) -> timedelta:
    return timedelta(seconds=start["heartbeat_seconds"])
