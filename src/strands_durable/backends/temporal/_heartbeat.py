"""Signs of life of a worker, and talking to the workflow that an activity works for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from ..._records.logs import safe_logger

logger = safe_logger(__name__)

BEAT_SECONDS = 1.0
_LATE_SECONDS = 4.0
"""How late a sign of life may come, where the time that Temporal waits for it is long enough."""
_CANCEL_REQUESTED = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED)


def uptime() -> float:
    """Return seconds that go on also while this process, or the machine, is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Beat:
    """When an activity showed a sign of life last; that it has begun is one."""

    def __init__(self) -> None:
        self._sent = uptime()
        self.on_look: Callable[[], None] = lambda: None

    @property
    def age(self) -> float:
        """How many seconds ago that was."""
        return uptime() - self._sent

    def look(self, every: float) -> None:
        """Have it looked whether this process was away; show a sign of life if it is time."""
        self.on_look()
        if self.age >= every:
            activity.heartbeat()
            self._sent = uptime()


@asynccontextmanager
async def beating() -> AsyncIterator[Beat]:
    """Show signs of life, whatever this activity does, and as few as that takes: each of them is an action that is billed."""
    timeout = activity.info().heartbeat_timeout
    limit = 4 * BEAT_SECONDS if timeout is None else timeout.total_seconds()
    every = max(limit - _LATE_SECONDS, limit / 2)
    beat = Beat()

    async def look() -> None:
        while True:
            await asyncio.sleep(min(BEAT_SECONDS, limit / 8))
            beat.look(every)

    task = asyncio.ensure_future(look())
    try:
        yield beat
    finally:
        task.cancel()


def is_asked() -> bool:
    """Say whether the workflow wants an activity to stop; else it is over for other reasons, the end of the worker for one."""
    details = activity.cancellation_details()
    return details is None or details.cancel_requested


def is_shutdown() -> bool:
    """Say whether an activity is to stop because its worker does."""
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


async def is_withdrawn(client: Client) -> bool:
    """Say whether the workflow no longer wants what the current activity was asked for."""
    mine = activity.info().activity_id
    pending = (await workflow_of(client).describe()).raw_description.pending_activities
    return any(each.activity_id == mine and each.state == _CANCEL_REQUESTED for each in pending)


async def is_cancelled(client: Client) -> bool:
    """Say whether the execution that the current activity is to stop for was cancelled; else it was taken back."""
    if not is_asked():
        return False
    try:
        found = await workflow_of(client).describe()
    except Exception as error:  # to leave it is right in either case
        logger.debug("execution_id=<%s>, error=<%s> | left", activity.info().workflow_id, error)
        return False
    is_running = found.status is WorkflowExecutionStatus.RUNNING
    return not is_running or found.raw_description.workflow_extended_info.cancel_requested


async def signal(client: Client, name: str, what: Any) -> None:
    """Tell the workflow something; while the server is away, again and again: what it has twice it takes once."""
    handle = workflow_of(client)
    while True:
        try:
            return await handle.signal(name, what)
        except RPCError as error:
            if error.status not in _AWAY:
                raise
            logger.debug("execution_id=<%s>, error=<%s> | not told yet", activity.info().workflow_id, error)
            await asyncio.sleep(BEAT_SECONDS)


def workflow_of(client: Client) -> WorkflowHandle[Any, Any]:
    """Return a handle on the workflow that the current activity works for."""
    info = activity.info()
    return client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
