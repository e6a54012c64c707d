"""Executions on a Temporal cluster: dispatched as workflows, carried by workers anywhere."""

from __future__ import annotations

import asyncio
import builtins
import weakref
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from ..._handle import DurableBackend, ExecutionHandle
from ..._keys import checked_id
from ..._outside import Outside
from ..._pruning import prune
from ..._records import ExecutionRecord, ExecutionStatus
from ..._replica import Replica
from ..._requests import Requests
from ..._spec import AgentSpec
from ...errors import (
    BackendUnavailableError,
    ExecutionCancelledError,
    ExecutionNotFoundError,
    UnsupportedFeatureError,
)
from ._follow import Story, status_of, stories, story
from ._handle import TemporalHandle
from ._wire import DEFAULT_QUEUE, WORKFLOW, Start

T = TypeVar("T")
S = ExecutionStatus
_TAKES = ("namespace", "task_queue", "prefix", "heartbeat_seconds", "max_events", "payloads")


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a ``temporal://`` URL says."""

    address: str
    namespace: str | None
    task_queue: str
    prefix: str
    heartbeat_seconds: float
    max_events: int
    payloads: str | None

    @classmethod
    def of(cls, url: str) -> Place:
        """Read a URL."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        unknown = sorted(set(options) - set(_TAKES))
        if parts.scheme != "temporal" or unknown or parts.username or parts.path not in ("", "/"):
            raise UnsupportedFeatureError(
                f"temporal://{parts.hostname or ''}…",
                f"a Temporal URL is temporal://HOST:PORT with {', '.join(_TAKES)} behind a question mark"
                + (f"; there is no {', '.join(unknown)}" if unknown else ""),
                "TLS and API keys come from Temporal's own environment variables or config file, never from a URL.",
            )
        return cls(
            address=f"{parts.hostname or 'localhost'}:{parts.port or 7233}",
            namespace=options.get("namespace"),
            task_queue=options.get("task_queue", DEFAULT_QUEUE),
            prefix=options.get("prefix", ""),
            heartbeat_seconds=float(options.get("heartbeat_seconds", 10.0)),
            max_events=int(options.get("max_events", 0)),
            payloads=options.get("payloads"),
        )


class TemporalBackend(DurableBackend):
    """Runs executions on a Temporal cluster. An execution is a workflow of the same id.

    Args:
        url: ``temporal://host:7233?namespace=default&task_queue=strands-durable``. ``prefix`` is put before the workflow ids of
            executions. ``heartbeat_seconds`` (10) is after how long without a sign of life a worker counts as lost,
            ``payloads`` the URL of a folder or bucket for what is too large for Temporal.
        client: A client to use instead of a connection of its own: with your own TLS, data converter, codec, interceptors.
        plugins: Plugins for the workers that this process runs.
        connect: What `temporalio.client.Client.connect` is given besides the address and the namespace. Without it, TLS and API
            key are as Temporal's environment variables and config file say.
    """

    def __init__(
        self,
        url: str,
        *,
        client: Client | None = None,
        plugins: Sequence[Any] = (),
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        self.url = url
        self.place = Place.of(url)
        self.outside = Outside(self.place.payloads)
        self._given, self._plugins, self._connect = client, plugins, connect
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"TemporalBackend({self.url!r})"

    async def client(self) -> Client:
        """Return a connected client."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
            config.update(self._connect or {}, target_host=self.place.address)
            if self.place.namespace is not None:
                config["namespace"] = self.place.namespace
            try:
                self._clients[loop] = await Client.connect(**config)
            except RuntimeError as error:
                raise BackendUnavailableError(
                    self.url,
                    f"no Temporal server answers at {self.place.address}: {error}",
                    "Start one ('temporal server start-dev' for a test), or mend the address.",
                ) from error
        return self._clients[loop]

    def workflow_id(self, execution_id: str) -> str:
        """Return the id of the workflow of an execution."""
        return f"{self.place.prefix}{checked_id(execution_id)}"

    async def workflow(self, execution_id: str) -> WorkflowHandle[Any, Any]:
        """Return Temporal's own handle."""
        return (await self.client()).get_workflow_handle(self.workflow_id(execution_id))

    # What a backend does

    async def dispatch(
        self,
        spec: AgentSpec,
        prompt: Any,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> ExecutionHandle:
        """Start a workflow for an execution, or attach to the one that has its id."""
        replica = Replica.new("new")
        found = Requests(replica).put(spec, prompt, execution_id, invocation_state, limits)
        given = self._start_of(found, spec.name)
        given["rows"] = self.outside.sent(replica.changes(), "What is dispatched")
        try:
            await self._start(given, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            known = await self.story(found)
            if known.status is S.CANCELLED:
                raise ExecutionCancelledError(found) from None
            Requests(known.replica).refuse_other(found, spec, prompt, invocation_state, limits)
        return TemporalHandle(self, found)

    def _start_of(self, execution_id: str, agent: str) -> Start:
        return {
            "execution_id": execution_id,
            "agent": agent,
            "epoch": 0,
            "heartbeat_seconds": self.place.heartbeat_seconds,
            "max_events": self.place.max_events,
        }

    async def _start(self, given: Start, reuse: WorkflowIDReusePolicy) -> None:
        client = await self.client()
        await client.start_workflow(
            WORKFLOW,
            given,
            id=self.workflow_id(given["execution_id"]),
            task_queue=self.place.task_queue,
            id_reuse_policy=reuse,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            memo={"status": "PENDING", "agent": given["agent"], "steps": 0, "execution_id": given["execution_id"]},
            static_summary=given["agent"],
        )

    async def go_on(self, known: Story) -> None:
        """Start a new run of a workflow that has failed, with what is recorded."""
        given = self._start_of(known.journal().execution_id, known.agent)
        given["changes"] = self.outside.sent(known.replica.changes(), "What is resumed")
        prune(known.replica)
        given["rows"] = self.outside.sent(known.replica.export(), "What is resumed", plainly=False)
        given["previous_run_id"] = known.run_id
        given["epoch"] = known.position[0]
        try:
            await self._start(given, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
        except WorkflowAlreadyStartedError:
            return  # somebody else has resumed it

    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        await self.describe(execution_id)
        return TemporalHandle(self, execution_id)

    async def describe(self, execution_id: str) -> WorkflowExecutionDescription:
        """Return what Temporal knows of the workflow of an execution."""
        handle = await self.workflow(execution_id)
        return await self._found(execution_id, handle.describe())

    async def story(self, execution_id: str, *, whole: bool = False) -> Story:
        """Read an execution from history."""
        asking = story(await self.client(), self.outside, self.workflow_id(execution_id), whole=whole)
        return await self._found(execution_id, asking)

    async def stories(self, execution_id: str) -> AsyncIterator[Story]:
        """Follow an execution by its history."""
        async for found in stories(await self.client(), self.outside, self.workflow_id(execution_id)):
            yield found

    async def _found(self, execution_id: str, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise ExecutionNotFoundError(execution_id, self.url) from error
            raise BackendUnavailableError(self.url, str(error)) from error

    async def asked(self, asking: Awaitable[None]) -> None:
        """Ask something of a workflow; if it has ended in the meantime, there is nothing to ask for."""
        try:
            await asking
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise BackendUnavailableError(self.url, str(error)) from error

    async def list(
        self,
        *,
        status: ExecutionStatus | Collection[ExecutionStatus] | None = None,
        agent: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> builtins.list[ExecutionRecord]:
        """Return executions, the one that began last first."""
        wanted = None if status is None else {status} if isinstance(status, ExecutionStatus) else set(status)
        found: builtins.list[ExecutionRecord] = []
        query = f"WorkflowType = '{WORKFLOW}' AND TaskQueue = '{self.place.task_queue}'"
        async for each in (await self.client()).list_workflows(query):
            if not each.id.startswith(self.place.prefix):
                continue
            record = await self._record(each)
            if (
                (wanted is None or record.status in wanted)
                and (agent is None or record.agent == agent)
                and (since is None or record.updated_at >= since)
            ):
                found.append(record)
            if limit is not None and len(found) >= limit:
                break
        return found

    async def _record(self, found: WorkflowExecution) -> ExecutionRecord:
        memo = await found.memo()
        at = found.close_time or found.execution_time or found.start_time
        return ExecutionRecord(
            execution_id=memo.get("execution_id", found.id),
            kind="dispatched",
            status=await status_of(found),  # type: ignore[arg-type]
            run=0,
            calls=1,
            steps=memo.get("steps", 0),
            owner=None,
            created_at=_seconds(found.start_time),
            updated_at=_seconds(at),
            agent=memo.get("agent"),
        )

    async def work(
        self,
        *,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        stop: asyncio.Event | None = None,
        trial_command: Sequence[str] | None = None,
        is_trial: bool = False,
    ) -> bool:
        """Carry executions of the agents that are registered in this process, until ``stop`` is set."""
        from ._worker import work

        return await work(
            await self.client(),
            self.place.task_queue,
            self.outside,
            concurrency=concurrency,
            drain_seconds=drain_seconds,
            stop=stop or asyncio.Event(),
            plugins=self._plugins,
        )


def _seconds(at: datetime | None) -> float:
    return 0.0 if at is None else at.astimezone(timezone.utc).timestamp()
