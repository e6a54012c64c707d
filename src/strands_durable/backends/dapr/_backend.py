"""Executions on Dapr: recorded in a state store through the sidecar, supervised by Dapr workflows, run by workers anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from dapr.ext.workflow import WorkflowRuntime

from ..._dispatch import registry
from ..._dispatch.background import DRAIN_SECONDS, WorkerThread
from ..._dispatch.connect import with_worker
from ..._dispatch.deadlines import expiring
from ..._dispatch.ports import WorkerMode
from ..._dispatch.quarantine import QuarantineProcess
from ..._dispatch.requests import Requests
from ..._dispatch.stopping import ended_in_time
from ..._enginekit.key_value.backend import KeyValueBackend
from ..._enginekit.key_value.engine import KeyValueEngine
from ..._enginekit.key_value.head import Head
from ..._enginekit.log import Presence, StaleError, read
from ..._enginekit.trial import report_started
from ..._records.cipher import Cipher
from ..._records.cipher_setting import cipher_or_default
from ...errors import CipherError
from ._client import Sidecar
from ._url import DaprConfig
from ._workflow import PAUSED
from ._workflows import Workflows

_DEADLINE_SECONDS = 5.0
"""How often a worker looks for questions whose time is over."""


class DaprBackend(KeyValueBackend):
    """Runs executions beside a Dapr sidecar. An execution is a workflow of the same id, and its journal is in the state store.

    Args:
        url: ``dapr://127.0.0.1:50001?store=statestore``: the gRPC address of the sidecar, and the state store that it uses for
            workflows. Without an address, that of Dapr's environment variables. With ``steps=off``, steps are not reported to
            workflows. `start` runs a worker in this process, unless ``worker=off``.
        runtime: A workflow runtime with workflows of your own: the worker adds its own to it, starts and stops it.
        cipher: Encrypts what is recorded. If None, the cipher that the environment names, if any.
    """

    retention_hint = "Remove executions with 'strands-durable rm --older-than 30d --yes', for example once a day."
    backup_hint = "Back up the database behind Dapr's state store."

    def __init__(self, url: str, *, runtime: WorkflowRuntime | None = None, cipher: Cipher | None = None) -> None:
        self.url, self._runtime, self._cipher = url, runtime, cipher_or_default(cipher)
        self.config = DaprConfig.of(url)
        self._sidecar = Sidecar(self.config)
        self.engine = KeyValueEngine.at(self._sidecar, cipher=self._cipher)
        self.log = self.engine.log
        self._workflows = Workflows(self._sidecar, self.engine)
        self._worker = WorkerThread(self._work_here, is_own=False) if self.config.has_worker else None

    def __repr__(self) -> str:
        return f"DaprBackend({str(self.config)!r})"

    async def head(self, execution_id: str) -> Head:
        """Return the head of an execution; one whose workflow was terminated with Dapr's own tools is cancelled first."""
        head = await super().head(execution_id)
        if head.has_ended or not await self._workflows.is_terminated(execution_id, head):
            return head
        if await self.engine.workers.seems_alive(head.owner):
            return head  # its worker cancels it
        try:
            known = await read(self.log, execution_id, self._sidecar.where)
        except CipherError:
            return head  # who has the key cancels it
        Requests(known.replica).cancel(execution_id)
        try:
            return await self.engine.log.append(execution_id, known.position, known.replica.changes())
        except StaleError:
            return await self.head(execution_id)

    async def wake(self, execution_id: str) -> None:
        """Start the workflow of an execution, or wake it."""
        await self.engine.open.confirm(execution_id)
        await self._workflows.notify(execution_id)

    async def presence(self, execution_id: str) -> Presence:
        """Return which worker runs an execution, or why none does."""
        found = await super().presence(execution_id)
        if found.owner is None and await self._workflows.is_paused(execution_id, await self.head(execution_id)):
            return replace(found, note=PAUSED)
        return found

    async def unattended(self) -> str | None:
        """Return a message if no worker is connected; None if one is."""
        if await self.engine.workers.beating():
            return None
        start = f"Start one: strands-durable worker FILE --backend '{self.config}'"
        return f"no worker is connected to daprd at {self.config.address}. {start}"

    async def remove(self, execution_id: str) -> None:
        """Delete an execution that has ended, with all it recorded, and its workflow if a worker is connected."""
        head = await self.head(execution_id)
        await super().remove(execution_id)
        instance = await self._workflows.of(execution_id, head)
        if instance is not None and instance.has_ended and await self.engine.workers.beating():
            await self._sidecar.purge(execution_id)

    # Workers

    def working(self, what: WorkerMode) -> DaprBackend:
        """Return the same backend with or without a worker. Dapr gives an execution to any worker: none runs only its own."""
        url = with_worker(self.url, "off" if what == "off" else "on")
        return DaprBackend(url, runtime=self._runtime, cipher=self._cipher)

    def start(self) -> None:
        """Start a worker in a thread of this process, unless it is off or no agent is registered here."""
        if self._worker is not None and registry.agents:
            self._worker.start(self)

    async def _work_here(self, stop: asyncio.Event, _: set[str] | None) -> None:
        await self.work(drain_seconds=DRAIN_SECONDS, stop=stop)

    async def close(self) -> None:
        """Stop the worker of this process; others resume its executions."""
        if self._worker is not None and self._worker.is_left_by(self):
            await asyncio.to_thread(self._worker.stop)
        await self._sidecar.close()

    async def work(
        self,
        *,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        stop: asyncio.Event | None = None,
        trial_command: Sequence[str] | None = None,
        is_trial: bool = False,
    ) -> bool:
        """Run executions of the agents that are registered in this process until ``stop`` is set."""
        from ._work import work

        options: dict[str, Any] = {"concurrency": concurrency, "drain_seconds": drain_seconds, "is_trial": is_trial}
        quarantine, stop = None if trial_command is None else QuarantineProcess(trial_command), stop or asyncio.Event()
        options |= {"stop": stop, "quarantine": quarantine, "runtime": self._runtime, "cipher": self._cipher}
        if is_trial:
            report_started()
        working = work(self.config, **options)
        return await ended_in_time(working if is_trial else self._beside(working), stop, drain_seconds)

    async def _beside(self, working: Awaitable[bool]) -> bool:
        """Run a worker, and answer questions at their deadlines beside it."""
        reader = self.working("off")  # with connections of this loop
        try:
            async with expiring(reader, _DEADLINE_SECONDS):
                return await working
        finally:
            await reader.close()
