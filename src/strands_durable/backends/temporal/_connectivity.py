"""Checks that the server is reachable, once for all executions of a worker. The check is not a billed action."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from ..._dispatch.stopping import cancelled
from ..._records.logs import safe_logger
from ._heartbeat import uptime

logger = safe_logger(__name__)

_ASK_SECONDS, _ANSWER_SECONDS = 2.0, 5.0
_GRACE_SECONDS, _MAX_GRACE_SECONDS = 2.0, 12.0
"""The longer the server was unreachable, the less often its workers poll; after a while every ten seconds."""


class Link:
    """The connection of one worker to the server."""

    def __init__(self, client: Client, heartbeat_seconds: float) -> None:
        self._client = client
        self._ask_seconds = min(_ASK_SECONDS, heartbeat_seconds / 4)
        self._answer_seconds = min(_ANSWER_SECONDS, heartbeat_seconds / 2)
        self._settled_at = float("-inf")
        self.is_away = self._is_over = False

    @asynccontextmanager
    async def watched(self, on_back: Callable[[float], Awaitable[None]]) -> AsyncIterator[None]:
        """Monitor the connection; when the server is back, call ``on_back`` with the seconds it was unreachable."""
        task = asyncio.ensure_future(self._watch(on_back))
        try:
            yield
        finally:
            self._is_over = True  # Temporal's client may turn the cancel of a request into an error
            await cancelled(task)

    async def _watch(self, on_back: Callable[[float], Awaitable[None]]) -> None:
        heard = uptime()
        while not self._is_over:
            if await self._is_there():
                was_away, seconds = self.is_away, uptime() - heard
                heard = uptime()
                if was_away:
                    self.is_away = False
                    self._settled_at = heard + min(_MAX_GRACE_SECONDS, _GRACE_SECONDS + seconds / 2)
                    logger.warning("seconds=<%.0f> | the Temporal server is back", seconds)
                    await on_back(seconds)
            elif not self.is_away:
                self.is_away = True
                logger.warning("the Temporal server does not answer")
            await asyncio.sleep(self._ask_seconds)

    async def _is_there(self) -> bool:
        asked, timeout = GetSystemInfoRequest(), timedelta(seconds=self._answer_seconds)
        try:
            await self._client.workflow_service.get_system_info(asked, timeout=timeout)
        except RPCError as error:
            logger.debug("error=<%s> | no answer", error)
            return False
        return True

    async def settle(self) -> bool:
        """After an outage, wait until other workers have had time to report that they are alive; True if there was one."""
        was_away = False
        while self.is_away or uptime() < self._settled_at:
            was_away = True
            await asyncio.sleep(self._ask_seconds / 4)
        return was_away
