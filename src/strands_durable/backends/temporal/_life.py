"""Signs of life of a worker: shown to Temporal, asked of itself after a freeze, and said when it was given up too early."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from ..._driver import Driver
from ..._lease import Released
from ._wire import ALIVE

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED)


def uptime() -> float:
    """Return seconds that go on also while this process, or the machine, is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass
class Live:
    """An execution that this worker has taken over."""

    epoch: int
    driver: Driver
    replica: Any
    news: asyncio.Event
    heartbeat_seconds: float
    is_alone: bool
    steps: set[str] = field(default_factory=set)
    """The turns whose activities have not told yet what came out."""
    beat: float = field(default_factory=uptime)
    is_lost: bool = False
    """Whether this process was frozen for so long that somebody else may have taken it over by now."""
    is_leaving: bool = False
    has_vouched: bool = False

    @property
    def is_reporting(self) -> bool:
        """Whether a step has ended and is about to tell so, and what waits since then."""
        return any(self.driver.has_ended(turn_id) for turn_id in self.steps)

    def look(self) -> None:
        """Take note that this process is there; let nothing more start if it was not."""
        gone, self.beat = uptime() - self.beat, uptime()
        is_long = gone > self.heartbeat_seconds / 2  # what Temporal heard last may be older than our beat
        if is_long and not self.is_lost:
            self.is_lost = True
            logger.warning("seconds=<%.0f> | this process was away for too long, its executions are left", gone)
            self.driver.halt(Released())

    async def change(self, seconds: float = BEAT_SECONDS) -> None:
        """Wait for news, or for a moment."""
        try:
            await asyncio.wait_for(self.news.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self.news.clear()


@asynccontextmanager
async def beating(live: Live | None = None) -> AsyncIterator[None]:
    """Show signs of life, whatever this activity does."""
    timeout = activity.info().heartbeat_timeout
    seconds = BEAT_SECONDS if timeout is None else min(BEAT_SECONDS, timeout.total_seconds() / 4)

    async def beat() -> None:
        while True:
            await asyncio.sleep(seconds)  # that it has begun, Temporal knows: a short step sends nothing
            activity.heartbeat()
            if live is not None:
                live.look()

    task = asyncio.ensure_future(beat())
    try:
        yield
    finally:
        task.cancel()


def is_asked() -> bool:
    """Say whether the workflow wants an activity to stop; else it is over for other reasons, the end of the worker for one."""
    details = activity.cancellation_details()
    return details is None or details.cancel_requested


async def vouch(client: Client, live: Live) -> None:
    """Say that this process lives, if Temporal did not hear of it in time: the execution has killed nobody.

    Whoever was away himself says nothing: what keeps a process from showing signs of life is to be found out as well.
    """
    details = activity.cancellation_details()
    is_given_up = details is not None and (details.not_found or details.timed_out)
    if not is_given_up or live.is_lost or live.has_vouched:
        return
    try:
        await workflow_of(client).signal(ALIVE, {"epoch": live.epoch})
        live.has_vouched = True
    except Exception as error:  # it has ended, or is not to be reached: then it is tried alone
        execution_id = activity.info().workflow_id
        logger.debug("execution_id=<%s>, error=<%s> | nobody to tell that this worker lives", execution_id, error)


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


async def is_taken_back(client: Client, live: Live) -> bool:
    """Say whether an execution that is tried alone is to be for everybody again, and not cancelled."""
    if not live.is_alone:
        return False
    try:
        found = await workflow_of(client).describe()
    except Exception as error:  # to leave it is right in either case
        logger.debug("execution_id=<%s>, error=<%s> | left", activity.info().workflow_id, error)
        return True
    is_running = found.status is WorkflowExecutionStatus.RUNNING
    return is_running and not found.raw_description.workflow_extended_info.cancel_requested


def workflow_of(client: Client) -> WorkflowHandle[Any, Any]:
    """Return a handle on the workflow that the current activity works for."""
    info = activity.info()
    return client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
