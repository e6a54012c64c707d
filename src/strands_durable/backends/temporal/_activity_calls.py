"""What the workflow asks of workers, and how long it waits for it. Imported into the sandbox."""

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
"""How many times rarer than an execution its steps show signs of life: those of the execution say that the worker is there."""
_HOLDER_TIMEOUT = timedelta(seconds=25)
"""How long a worker that still has the execution may take to poll again: after a long outage it asks every ten seconds."""
_ONCE = RetryPolicy(maximum_attempts=1)
_UNTIL_A_WORKER_HAS_IT = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=1.5,
    maximum_interval=timedelta(seconds=10),
    non_retryable_error_types=["TemporalTimeout:Heartbeat", GONE],
)
"""A worker that lacks the agent hands it back; Temporal offers it again. A worker that is lost is for us to see to."""
_UNTIL_IT_IS_DONE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))


def start_driving(given: Driving, start: Start, holder: str) -> asyncio.Task[BatchMessage]:
    """Offer an execution to workers: to all, to those that try it alone, or to the one that still has it."""
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
    """Ask the worker that has an execution for something: to let a step run, to leave it, to stop."""
    told: BatchMessage = await workflow.execute_activity(
        what,
        given,
        activity_id=activity_id.encode()[:_ID_BYTES].decode(errors="ignore"),  # every server takes that
        task_queue=queue,
        start_to_close_timeout=_FOR_EVER,
        heartbeat_timeout=_STEP_HEARTBEATS * _heartbeat(start),
        retry_policy=_ONCE,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=summary or None,
        result_type=dict,
    )
    return told


async def carry(given: Carrying, start: Start) -> None:
    """Have a worker, any of them, send this run what the one before it had come to."""
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
