"""Executions that Temporal has given up, and that are still at work here: after an outage of the server, for example.

The workflow hears that they are. As long as no other worker has told anything, it comes back to this one, and takes what the
steps return that have run all the time. If it does not come back, another worker has the execution, and it is left here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from ..._journal.lease import ExecutionReleasedError
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
    """What one worker holds, and for how long."""

    def __init__(self, client: Client, queue: str, link: Link) -> None:
        self._client, self._queue, self._link = client, queue, link
        self._lives: dict[Key, ActiveExecution] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, key: Key) -> ActiveExecution | None:
        """Return what is held of a workflow."""
        return self._lives.get(key)

    def items(self) -> list[tuple[Key, ActiveExecution]]:
        """Return all that is held."""
        return list(self._lives.items())

    def hold(self, key: Key, live: ActiveExecution) -> None:
        """Keep an execution at work, in case that the workflow comes back."""
        self._lives[key] = live
        task = asyncio.ensure_future(self._wait(key, live))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def let_go(self, key: Key) -> None:
        """Hold an execution no longer: the workflow has come back."""
        self._lives.pop(key, None)

    async def _wait(self, key: Key, live: ActiveExecution) -> None:
        """Leave an execution that the workflow does not come back to. Until then no step of it starts here."""
        left = _HOLD_SECONDS
        while left > 0 and self._lives.get(key) is live:
            await asyncio.sleep(BEAT_SECONDS)
            left -= 0.0 if self._link.is_away else BEAT_SECONDS
        if self._lives.get(key) is live:
            del self._lives[key]
            logger.warning("execution_id=<%s> | left to another worker, what runs here is not recorded", key[0])
            live.driver.halt(ExecutionReleasedError())

    async def announce(self, key: Key, live: ActiveExecution) -> None:
        """Say that an execution is at work here, and where the workflow finds it."""
        await self._say(key, {"epoch": live.epoch, "queue": self._queue})

    async def report_alive(self, key: Key, live: ActiveExecution) -> None:
        """Say that this process lives, if Temporal did not hear of it in time: the execution has killed nobody.

        A process that was away itself says nothing: what keeps a process from showing signs of life is to be found out as well.
        """
        details = activity.cancellation_details()
        is_given_up = details is not None and (details.not_found or details.timed_out)
        if is_given_up and not live.is_lost and not live.has_reported_alive:
            live.has_reported_alive = await self._say(key, {"epoch": live.epoch})

    async def _say(self, key: Key, what: Alive) -> bool:
        handle: Any = self._client.get_workflow_handle(key[0], run_id=key[1])
        for _ in range(_TRIES):  # a server that has just started refuses much
            try:
                await handle.signal(ALIVE, what)
                return True
            except RPCError as error:
                logger.debug("execution_id=<%s>, error=<%s> | not heard that this worker lives", key[0], error)
                if is_unknown(error):
                    return False
            await asyncio.sleep(BEAT_SECONDS / 2)
        return False
