"""Hosts the workflow of executions, which needs no agent: any process can do so while no worker does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from temporalio.client import Client
from temporalio.service import ServiceClient

from ..._dispatch.stopping import CLOSE_SECONDS, cancelled
from ..._dispatch.sync import aside
from ..._records.logs import safe_logger

if TYPE_CHECKING:
    from temporalio.worker import Worker
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

logger = safe_logger(__name__)

HOST = "strands-durable: hosts the workflow for a moment, runs no agent"
"""The identity of such a process, so that it is not mistaken for a worker."""
_AGAIN_SECONDS = 1.0


def sandbox() -> SandboxedWorkflowRunner:
    """Return Temporal's sandbox with this package passed through, and nothing else: the workflow runs no other code."""
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

    restrictions = SandboxRestrictions.default.with_passthrough_modules("strands_durable")
    return SandboxedWorkflowRunner(restrictions=restrictions)


class _Host:
    """A worker that runs the workflows of a task queue, shared by all that need one.

    It has a connection of its own: each has room for one worker of a task queue, and one that finds no server when it starts
    never leaves it.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client, self._task_queue = client, task_queue
        self._worker: Worker | None = None
        self._run = asyncio.create_task(self._keep())
        self.users: set[object] = set()

    async def _keep(self) -> None:
        """Host the workflows until it is stopped; while there is no server, try again."""
        while True:
            try:
                self._worker = await self._connected()
                return await self._worker.run()
            except Exception as error:
                logger.debug("task_queue=<%s>, error=<%s> | the workflow was not hosted", self._task_queue, error)
            self._worker = None
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _connected(self) -> Worker:
        from temporalio.worker import Worker

        from ._notifications.notify_workflow import NotifyWorkflow
        from ._workflow import ExecutionWorkflow

        config: Any = self._client.config()
        service = await ServiceClient.connect(self._client.service_client.config)
        return Worker(
            Client(**{**config, "service_client": service}),
            task_queue=self._task_queue,
            workflows=[ExecutionWorkflow, NotifyWorkflow],
            workflow_runner=sandbox(),
            identity=HOST,
        )

    async def end(self) -> None:
        """Stop; a worker whose server does not answer is left."""
        ending = []
        if self._worker is not None:
            ending = [asyncio.create_task(self._worker.shutdown())]
            await asyncio.wait([self._run], timeout=CLOSE_SECONDS)
        await cancelled(*ending, self._run)


class _Hosts:
    """The hosts of this process. They run on the loop for sync code: callers come from any loop, and may end first."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[Client, str], _Host] = {}
        self._locks: WeakValueDictionary[tuple[Client, str], asyncio.Lock] = WeakValueDictionary()

    async def enter(self, client: Client, task_queue: str, user: object) -> None:
        """Host a task queue for a user."""
        key = client, task_queue
        async with self._locks.setdefault(key, asyncio.Lock()):
            host = self._hosts[key] = self._hosts.get(key) or _Host(client, task_queue)
            host.users.add(user)

    async def leave(self, client: Client, task_queue: str, user: object) -> None:
        """Stop hosting a task queue once it has no users."""
        key = client, task_queue
        async with self._locks.setdefault(key, asyncio.Lock()):
            host = self._hosts.get(key)
            if host is None or user not in host.users:
                return
            host.users.discard(user)
            if not host.users:
                del self._hosts[key]
                await host.end()


_hosts = _Hosts()


@asynccontextmanager
async def workflow_worker(client: Client, task_queue: str) -> AsyncIterator[None]:
    """Run the workflows of a task queue in this process, without running agents: one worker for all that ask at once."""
    user = object()
    try:
        await aside(_hosts.enter(client, task_queue, user))
        yield
    finally:
        await aside(_hosts.leave(client, task_queue, user))
