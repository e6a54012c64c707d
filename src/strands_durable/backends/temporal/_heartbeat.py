"""Heartbeats of activities, and access to the workflow that an activity belongs to."""

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
"""How late a heartbeat may arrive, if Temporal's timeout is long enough for that."""
_CANCEL_REQUESTED = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED)


def uptime() -> float:
    """Return seconds on a clock that also advances while this process, or the machine, is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Beat:
    """When an activity last sent a heartbeat; its start counts as one."""

    def __init__(self) -> None:
        self._sent = uptime()
        self.on_look: Callable[[], None] = lambda: None

    @property
    def age(self) -> float:
        """Seconds since the last heartbeat."""
        return uptime() - self._sent

    def look(self, every: float) -> None:
        """Call `on_look`, which checks whether this process was frozen; send a heartbeat if one is due."""
        self.on_look()
        if self.age >= every:
            activity.heartbeat()
            self._sent = uptime()


@asynccontextmanager
async def beating() -> AsyncIterator[Beat]:
    """Send heartbeats while this activity runs, and as few as possible: each of them is a billed action."""
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
    """Return True if the workflow has cancelled the current activity; else it ends for another reason, such as a shutdown."""
    details = activity.cancellation_details()
    return details is None or details.cancel_requested


def is_shutdown() -> bool:
    """Return True if the current activity is to stop because its worker shuts down."""
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


async def is_withdrawn(client: Client) -> bool:
    """Return True if the workflow has requested the cancellation of the current activity."""
    mine = activity.info().activity_id
    pending = (await workflow_of(client).describe()).raw_description.pending_activities
    return any(each.activity_id == mine and each.state == _CANCEL_REQUESTED for each in pending)


async def is_cancelled(client: Client) -> bool:
    """Return True if the current activity is to stop because its execution was cancelled, not moved to another worker."""
    if not is_asked():
        return False
    try:
        found = await workflow_of(client).describe()
    except Exception as error:  # releasing it is right in either case
        logger.debug("execution_id=<%s>, error=<%s> | released", activity.info().workflow_id, error)
        return False
    is_running = found.status is WorkflowExecutionStatus.RUNNING
    return not is_running or found.raw_description.workflow_extended_info.cancel_requested


async def signal(client: Client, name: str, what: Any) -> None:
    """Signal the workflow, and retry while the server is unreachable: the workflow ignores duplicates."""
    handle = workflow_of(client)
    while True:
        try:
            return await handle.signal(name, what)
        except RPCError as error:
            if error.status not in _AWAY:
                raise
            logger.debug("execution_id=<%s>, error=<%s> | signal not sent yet", activity.info().workflow_id, error)
            await asyncio.sleep(BEAT_SECONDS)


def workflow_of(client: Client) -> WorkflowHandle[Any, Any]:
    """Return a handle on the workflow of the current activity."""
    info = activity.info()
    return client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
