"""Executions on a Temporal cluster: dispatched as workflows, run by workers anywhere."""

from __future__ import annotations

import asyncio
import atexit
import json
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from ..._dispatch import registry
from ..._dispatch.background import DRAIN_SECONDS, WorkerThread
from ..._dispatch.connect import with_worker
from ..._dispatch.deadlines import expiring
from ..._dispatch.notifications.hooks import Callback, hooks, hooks_of
from ..._dispatch.notifications.webhooks import Webhook
from ..._dispatch.ports import ExecutionHandle, WorkerMode
from ..._dispatch.quarantine import QuarantineProcess
from ..._dispatch.stopping import ended_in_time
from ..._enginekit.backend import LogBackend
from ..._enginekit.compaction import prune
from ..._enginekit.log import Presence
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.trial import report_started
from ..._records.change_sets import ChangeSet
from ..._records.cipher import Cipher
from ..._records.deadline import limited
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.keys import checked_id
from ..._records.listing import Listing
from ...errors import ExecutionBusyError, PayloadTooLargeError
from ._deletion import remove
from ._encryption import cipher_for, encrypting
from ._errors import error_of, is_unknown, translated, unreachable
from ._handle import TemporalHandle
from ._history import ExecutionHistory, execution_histories, execution_history, status_of
from ._history_size import CARRIED_BYTES
from ._memo import CREATED_AT, dispatched_at, dispatched_tags, tags_memo, totals_memo
from ._pending_activity import pending_activity_of
from ._pollers import unattended
from ._protocol import PREVIOUS, WORKFLOW, Start, task_timeout
from ._url import DEFAULT_ADDRESS, TemporalConfig
from ._visibility import records

if TYPE_CHECKING:
    from ._notifications.deliveries import Deliveries

T = TypeVar("T")
S = ExecutionStatus
_CONNECT_SECONDS = 10.0
_SETTLE_SECONDS = 0.05
_DEADLINE_SECONDS = 5.0
"""How often a worker looks for questions whose time is over."""


class TemporalBackend(LogBackend):
    """Runs executions on a Temporal cluster. An execution is a workflow of the same id.

    Args:
        url: ``temporal://host:7233?namespace=default&task_queue=strands-durable``. ``prefix`` is prepended to the workflow ids
            of executions. A worker counts as lost after ``heartbeat_seconds`` (10) without a heartbeat. ``payloads`` is the URL
            of a folder or bucket for payloads that are too large for Temporal. `start` runs a worker in this process, unless
            ``worker=off``; with ``worker=own`` only for executions that it dispatched or has a handle on.
        client: A client to use instead of a new connection: with your own TLS, data converter, codec, interceptors.
        plugins: Plugins for the workers that this process runs.
        connect: Arguments for `temporalio.client.Client.connect` besides the address and the namespace. Without it, TLS and API
            key come from Temporal's environment variables and config file.
        cipher: Encrypts all that Temporal stores. If None, the cipher that the environment names, if any.
    """

    retention_hint = "Temporal deletes executions that have ended: set the retention period of the namespace."
    backup_hint = "Back up the database of the Temporal server, and the payload store, if its URL names one."

    def __init__(
        self,
        url: str,
        *,
        client: Client | None = None,
        plugins: Sequence[Any] = (),
        connect: Mapping[str, Any] | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        self.url, self.cipher = url, cipher_for(cipher, client, connect)
        self.config = TemporalConfig.of(url)
        self.payload_store = PayloadStore(self.config.payloads, cipher=self.cipher)
        self._given, self._plugins, self._connect = client, plugins, connect
        self._worker = None if self.config.worker == "off" else self._thread()
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"TemporalBackend({str(self.config)!r})"  # the full URL may contain a password

    async def client(self) -> Client:
        """Return a connected client."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = await self._connected()
        return self._clients[loop]

    async def _connected(self) -> Client:
        config: dict[str, Any] = {"target_host": DEFAULT_ADDRESS, **ClientConfig.load_client_connect_config()}
        config.update({**(self._connect or {}), **encrypting(self.cipher, str(self.config))})
        if self.config.address is not None:
            config["target_host"] = self.config.address
        if self.config.namespace is not None:
            config["namespace"] = self.config.namespace
        _settle_at_exit()
        try:
            return await limited(Client.connect(**config), _CONNECT_SECONDS)
        except (TimeoutError, RuntimeError) as error:
            raise unreachable(self.config, config["target_host"], error) from error

    def workflow_id(self, execution_id: str) -> str:
        """Return the id of the workflow of an execution."""
        return f"{self.config.prefix}{checked_id(execution_id)}"

    async def workflow(self, execution_id: str) -> WorkflowHandle[Any, Any]:
        """Return Temporal's own handle."""
        return (await self.client()).get_workflow_handle(self.workflow_id(execution_id))

    # A worker of this process

    def _thread(self) -> WorkerThread:
        """Return the worker of this process: one for all backends of a URL, since a web server may connect per request."""
        found = WorkerThread(self._work_here, is_own=self.config.worker == "own")
        if self._given is not None or self._plugins or self._connect or self.cipher:
            return found
        return _workers.setdefault(self.url, found)

    async def _work_here(self, stop: asyncio.Event, only: set[str] | None) -> None:
        await ended_in_time(self._work(10, DRAIN_SECONDS, stop, only=only), stop, DRAIN_SECONDS)

    def working(self, what: WorkerMode) -> TemporalBackend:
        """Return the same backend with a worker for all executions, for none, or for those that this process holds."""
        url = with_worker(self.url, what)
        more: dict[str, Any] = {"client": self._given, "plugins": self._plugins, "connect": self._connect}
        return TemporalBackend(url, **more, cipher=self.cipher)

    def start(self) -> None:
        """Start a worker in a thread of this process, unless it is off or no agent is registered here.

        Nothing else starts one, except that with ``worker=own`` the first execution of this process does.
        """
        if self._worker is not None and registry.agents:
            self._worker.start(self)

    def notify(
        self,
        *,
        on_suspended: Callback | None = None,
        on_failed: Callback | None = None,
        on_completed: Callback | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """Have the workers of this process report executions, each by a workflow of its own."""
        hooks.add(self._hooks_key, *hooks_of(on_suspended, on_failed, on_completed, tuple(webhooks)))

    @property
    def _hooks_key(self) -> str:
        """What hooks are registered by: the same for all backends of a URL, whatever their workers run."""
        return with_worker(self.url, "off")

    def _deliveries(self) -> Deliveries | None:
        from ._notifications.deliveries import Deliveries

        events = hooks.events(self._hooks_key)
        return Deliveries(self.working("off"), self._hooks_key, events) if events else None

    def _handle(self, execution_id: str) -> ExecutionHandle:
        if self._worker is not None and self._worker.only is not None:
            self._worker.only.add(self.workflow_id(execution_id))
            self.start()
        return TemporalHandle(self, execution_id)

    async def close(self) -> None:
        """Stop the worker of this process, unless another backend here uses it; other workers resume its executions."""
        if self._worker is not None and self._worker.is_left_by(self):
            await asyncio.to_thread(self._worker.stop)

    # What a backend does

    async def _begin(self, execution_id: str, agent: str, changes: ChangeSet) -> bool:
        given = self._start_of(execution_id, agent)
        given["rows"] = self.payload_store.offload(changes, "What is dispatched")
        try:
            memo = {"steps": 0, CREATED_AT: dispatched_at(changes), **tags_memo(dispatched_tags(changes))}
            await self._start(given, WorkflowIDReusePolicy.REJECT_DUPLICATE, **memo)
        except WorkflowAlreadyStartedError:
            return False
        return True

    def _start_of(self, execution_id: str, agent: str) -> Start:
        return {
            "execution_id": execution_id,
            "agent": agent,
            "epoch": 0,
            "heartbeat_seconds": self.config.heartbeat_seconds,
            "max_events": self.config.max_events,
        }

    async def _start(self, given: Start, reuse: WorkflowIDReusePolicy, **memo: Any) -> None:
        with translated(self.config):
            await (await self.client()).start_workflow(
                WORKFLOW,
                given,
                id=self.workflow_id(given["execution_id"]),
                task_queue=self.config.task_queue,
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                task_timeout=task_timeout(given["heartbeat_seconds"]),
                memo={**memo, "status": "PENDING", "agent": given["agent"], "execution_id": given["execution_id"]},
                static_summary=given["agent"],
            )

    async def resume_run(self, known: ExecutionHistory) -> None:
        """Start a new run of a failed workflow from what is recorded."""
        given = self._start_of(known.execution_id, known.agent)
        given["changes"] = self.payload_store.offload(known.replica.changes(), "The resumed run")
        prune(known.replica)
        self._carry_on(given, known)
        given["previous_run_id"] = known.run_id
        given["epoch"] = known.position[0]
        known_as = known.replica.detail().execution
        memo = {"steps": known_as.steps, CREATED_AT: known_as.created_at}
        memo |= {**tags_memo(known_as.tags), **totals_memo(known_as)}
        if (await self.describe(given["execution_id"])).run_id != known.run_id:
            return  # another client has resumed it, and it may have failed again: its steps must not run twice
        try:
            await self._start(given, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY, **memo)
        except WorkflowAlreadyStartedError:
            return  # another client has resumed it

    def _carry_on(self, given: Start, known: ExecutionHistory) -> None:
        """Give a new run what is recorded; if that is too large, the new run loads it from the run before."""

        def previous(packed: str) -> ChangeSet:
            if len(packed) > CARRIED_BYTES:
                raise PayloadTooLargeError("The resumed run", len(packed), CARRIED_BYTES)
            given["carried_bytes"] = len(packed)
            return {PREVIOUS: known.position}

        limit = self.payload_store.limits.max_bytes - len(json.dumps(given["changes"]))
        export = known.replica.export()
        given["rows"] = self.payload_store.offload(export, "The resumed run", plainly=False, limit=limit, put=previous)

    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        await self.describe(execution_id)
        return self._handle(execution_id)

    async def describe(self, execution_id: str) -> WorkflowExecutionDescription:
        """Return Temporal's description of the workflow of an execution."""
        return await self._found(execution_id, (await self.workflow(execution_id)).describe())

    async def read(self, execution_id: str) -> ExecutionHistory:
        """Read an execution from history."""
        return await self.history(execution_id)

    async def history(self, execution_id: str, *, whole: bool = False) -> ExecutionHistory:
        """Read an execution from history; with ``whole``, including the runs before the last."""
        asking = execution_history(await self.client(), self.payload_store, self.workflow_id(execution_id), whole=whole)
        return await self._found(execution_id, asking)

    async def histories(self, execution_id: str) -> AsyncIterator[ExecutionHistory]:
        """Follow an execution by its history."""
        client, workflow_id = await self.client(), self.workflow_id(execution_id)
        with translated(self.config, execution_id):
            async for found in execution_histories(client, self.payload_store, workflow_id):
                yield found

    async def wake(self, execution_id: str) -> None:
        """Do nothing: an append wakes the workflow."""

    async def presence(self, execution_id: str) -> Presence:
        """Return which worker runs an execution, or why none does."""
        return await pending_activity_of(await self.client(), await self.describe(execution_id))

    async def ask_to_stop(self, execution_id: str) -> bool:
        """Cancel the workflow of an execution; if no worker has it, terminate it."""
        handle = await self.workflow(execution_id)
        status = await status_of(await self.describe(execution_id))
        await self.asked(handle.cancel() if status is S.RUNNING else handle.terminate("cancelled"))
        return True

    async def _found(self, execution_id: str, asking: Awaitable[T]) -> T:
        with translated(self.config, execution_id):
            return await asking

    async def asked(self, asking: Awaitable[None]) -> None:
        """Await a request to a workflow; ignore it if the workflow has ended in the meantime."""
        try:
            await asking
        except RPCError as error:
            if not is_unknown(error):
                raise error_of(error, self.config) from error

    async def listed(self, asked: Listing) -> list[ExecutionRecord]:
        """Return executions, most recently changed first."""
        with translated(self.config):
            return await records(await self.client(), self.config, asked)

    @classmethod
    def ends_at_once(cls) -> bool:
        """Temporal's threads abort a Python that ends while one of them still answers."""
        return True

    async def unattended(self) -> str | None:
        """Return a message if no worker polls the task queue; None if one does."""
        with translated(self.config):
            return await unattended(await self.client(), self.config)

    async def remove(self, execution_id: str) -> None:
        """Delete an execution that has ended, with all it recorded."""
        found = await self.describe(execution_id)
        status = await status_of(found)
        if status in (S.PENDING, S.RUNNING, S.SUSPENDED):
            why = f"is {status.value}. Before it can be removed, run 'strands-durable cancel {execution_id}'."
            raise ExecutionBusyError(execution_id, "", why)
        with translated(self.config):
            await remove(await self.client(), self.payload_store, self.workflow_id(execution_id), found.run_id or "")

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
        quarantine, stop = None if trial_command is None else QuarantineProcess(trial_command), stop or asyncio.Event()
        if is_trial:
            report_started()
        working = self._work(concurrency, drain_seconds, stop, quarantine=quarantine, is_trial=is_trial)
        return await ended_in_time(working, stop, drain_seconds)

    async def _work(self, concurrency: int, drain_seconds: float, stop: asyncio.Event, **more: Any) -> bool:
        async with nullcontext() if more.get("is_trial") else expiring(self.working("off"), _DEADLINE_SECONDS):
            return await self._run_worker(concurrency, drain_seconds, stop, **more)

    async def _run_worker(self, concurrency: int, drain_seconds: float, stop: asyncio.Event, **more: Any) -> bool:
        from ._worker import work

        client = await self.client()
        with translated(self.config):
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
        return await work(
            client,
            self.config.task_queue,
            self.payload_store,
            heartbeat_seconds=self.config.heartbeat_seconds,
            concurrency=concurrency,
            drain_seconds=drain_seconds,
            stop=stop,
            **more,
            plugins=self._plugins,
            deliveries=self._deliveries(),
        )


_workers: dict[str, WorkerThread] = {}
_settling: list[bool] = []


def _settle_at_exit() -> None:
    """Give Temporal's threads a moment at exit: Python aborts if it ends while one of them still runs a callback."""
    if not _settling:
        _settling.append(True)
        atexit.register(time.sleep, _SETTLE_SECONDS)
