"""Executions that Temporal has given up but that still run here, after an outage of the server for example.

The worker notifies the workflow of them. As long as no other worker has reported anything, the workflow reattaches to this one
and accepts the results of the steps that kept running. If it does not reattach, another worker has the execution, and this one
releases it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from ..._calls.control import ExecutionReleasedError
from ..._records.logs import safe_logger
from ._active import ActiveExecution
from ._connectivity import Link
from ._errors import is_unknown
from ._heartbeat import BEAT_SECONDS
from ._protocol import ALIVE, Alive

logger = safe_logger(__name__)

Key = tuple[str, str]
"""A workflow and its run."""
_HOLD_SECONDS = 40.0
_TRIES = 20


class DetachedExecutions:
    """The detached executions of one worker."""

    def __init__(self, client: Client, queue: str, link: Link) -> None:
        self._client, self._queue, self._link = client, queue, link
        self._lives: dict[Key, ActiveExecution] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, key: Key) -> ActiveExecution | None:
        """Return the execution that is held for a workflow run, if any."""
        return self._lives.get(key)

    def items(self) -> list[tuple[Key, ActiveExecution]]:
        """Return all executions that are held."""
        return list(self._lives.items())

    def hold(self, key: Key, live: ActiveExecution) -> None:
        """Keep an execution running, in case the workflow reattaches."""
        self._lives[key] = live
        task = asyncio.ensure_future(self._wait(key, live))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def let_go(self, key: Key) -> None:
        """Hold an execution no longer: the workflow has reattached."""
        self._lives.pop(key, None)

    async def _wait(self, key: Key, live: ActiveExecution) -> None:
        """Release an execution if the workflow does not reattach in time. Until then none of its steps starts here."""
        left = _HOLD_SECONDS
        while left > 0 and self._lives.get(key) is live:
            await asyncio.sleep(BEAT_SECONDS)
            left -= 0.0 if self._link.is_away else BEAT_SECONDS
        if self._lives.get(key) is live:
            del self._lives[key]
            logger.warning("execution_id=<%s> | released to another worker, running steps are not recorded", key[0])
            live.driver.halt(ExecutionReleasedError())

    async def announce(self, key: Key, live: ActiveExecution) -> None:
        """Notify the workflow that its execution runs here, and on which task queue."""
        await self._notify(key, {"epoch": live.epoch, "queue": self._queue})

    async def report_alive(self, key: Key, live: ActiveExecution) -> None:
        """Report that this process is alive if Temporal missed its heartbeat: the execution has not killed its worker.

        A process that was itself frozen does not report: an execution that blocks heartbeats is to be found out as well.
        """
        details = activity.cancellation_details()
        is_given_up = details is not None and (details.not_found or details.timed_out)
        if is_given_up and not live.is_lost and not live.has_reported_alive:
            live.has_reported_alive = await self._notify(key, {"epoch": live.epoch})

    async def _notify(self, key: Key, what: Alive) -> bool:
        handle: Any = self._client.get_workflow_handle(key[0], run_id=key[1])
        for _ in range(_TRIES):  # a server that has just started refuses many requests
            try:
                await handle.signal(ALIVE, what)
                return True
            except RPCError as error:
                logger.debug("execution_id=<%s>, error=<%s> | not notified that this worker is alive", key[0], error)
                if is_unknown(error):
                    return False
            await asyncio.sleep(BEAT_SECONDS / 2)
        return False
