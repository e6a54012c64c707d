"""The sidecar's state and workflow APIs over gRPC, from any event loop; the one place that maps Dapr's errors to ours.

Answers of a store are not trusted: a write that was refused, or whose answer was lost, raises `WriteError`, and its caller
reads what is there now. Reads are repeated: a store may be busy for a moment, and a sidecar may restart.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from logging import NullHandler, getLogger
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
from dapr.conf import settings
from dapr.ext.workflow import WorkflowState, WorkflowStatus
from dapr.ext.workflow.aio import DaprWorkflowClient
from dapr.ext.workflow.logger import LoggerOptions
from dapr.proto import api_service_v1, common_v1
from dapr.proto.runtime.v1 import state_pb2

from ..._enginekit.key_value.store import Value, WriteError
from ..._records.deadline import limited
from ..._records.logs import safe_logger
from ...errors import BackendUnavailableError, DurableError
from ._url import DaprConfig

T = TypeVar("T")
logger = safe_logger(__name__)

LOGGING = LoggerOptions(log_handler=NullHandler())  # Dapr's own would print each call
CLIENT_SECONDS, WORKER_SECONDS = 15.0, float("inf")
"""How long a client and a worker try to reach the sidecar."""
_CALL_SECONDS, _WORKFLOW_SECONDS, _AGAIN_SECONDS = 10.0, 3.0, 0.2
_GROUP = 200
"""How many values are read at once, unless they are large."""
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_FINAL = {
    grpc.StatusCode.UNAUTHENTICATED: "Set DAPR_API_TOKEN to the token of the sidecar.",
    grpc.StatusCode.PERMISSION_DENIED: "Set DAPR_API_TOKEN, or look at the sidecar's access policies.",
    grpc.StatusCode.INVALID_ARGUMENT: "Name the state store of the sidecar in the URL: ?store=NAME.",
    grpc.StatusCode.UNIMPLEMENTED: "Use daprd 1.18 or later.",
}
_ENDED = (WorkflowStatus.COMPLETED, WorkflowStatus.FAILED, WorkflowStatus.TERMINATED)
SUPERSEDED = "superseded by another workflow of this execution"
_LARGE = grpc.StatusCode.RESOURCE_EXHAUSTED


@dataclass(frozen=True, kw_only=True)
class WorkflowInstance:
    """What Dapr knows of the workflow of an execution."""

    status: WorkflowStatus
    life: str
    """That of the execution that it was started for."""
    resumes: int
    """How often that had been resumed then."""
    shows: str
    """Its custom status."""
    output: str

    @property
    def is_terminated(self) -> bool:
        """Whether a person has terminated it."""
        return self.status is WorkflowStatus.TERMINATED and SUPERSEDED not in self.output

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more events."""
        return self.status in _ENDED


class Sidecar:
    """One daprd; its state store is a `KeyValueStore`."""

    def __init__(self, config: DaprConfig, patience_seconds: float = CLIENT_SECONDS) -> None:
        self.config, self._patience_seconds = config, patience_seconds
        self._stubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, Any, DaprWorkflowClient]]
        self._stubs = weakref.WeakKeyDictionary()  # a channel lives on the loop that it was made on

    @property
    def where(self) -> str:
        """Its URL, for people."""
        return str(self.config)

    def _connected(self) -> tuple[Any, Any, DaprWorkflowClient]:
        loop = asyncio.get_running_loop()
        if loop not in self._stubs:
            channel = grpc.aio.insecure_channel(self.config.address, options=_OPTIONS)
            workflows = DaprWorkflowClient(self.config.host, str(self.config.port), LOGGING)
            handlers = getLogger("durabletask-client").handlers
            handlers[:] = dict.fromkeys(handlers)  # each client adds its handler once more
            self._stubs[loop] = channel, api_service_v1.DaprStub(channel), workflows  # type: ignore[no-untyped-call]
        return self._stubs[loop]

    async def close(self) -> None:
        """Close the connection of the running loop."""
        found = self._stubs.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[0].close()  # that of the workflow client ends with it

    def _state(self, method: str, request: Any) -> Awaitable[Any]:
        token = settings.DAPR_API_TOKEN
        metadata = (("dapr-api-token", str(token)),) if token else ()
        call = getattr(self._connected()[1], method)
        answer: Awaitable[Any] = call(request, timeout=_CALL_SECONDS, metadata=metadata)
        return answer

    async def patiently(self, ask: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Ask until there is an answer, or until there will be none; for at most so many seconds."""
        begun, seconds = time.monotonic(), self._patience_seconds if seconds is None else seconds
        while True:
            try:
                return await ask()
            except (grpc.RpcError, WriteError, TimeoutError) as error:
                if _is_final(error) or time.monotonic() - begun > seconds:
                    raise self.error(error) from error
                logger.debug("sidecar=<%s>, error=<%s> | asked again", self.config, _text(error))
            await asyncio.sleep(_AGAIN_SECONDS)

    def error(self, error: BaseException) -> DurableError:
        """Return our error for one of Dapr's."""
        code = error.code() if isinstance(error, grpc.RpcError) else None
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            hint = "Start it ('dapr run' on your own machine), or fix the address: it is the gRPC port."
            return BackendUnavailableError(self.where, f"no daprd answers at {self.config.address}", hint)
        return BackendUnavailableError(self.where, f"daprd says: {_text(error)}", _FINAL.get(code, ""))

    # State

    async def get(self, key: str) -> tuple[bytes, str]:
        """Return a value and its ETag; both are empty if there is none."""
        request = state_pb2.GetStateRequest(
            store_name=self.config.store, key=key, consistency=common_v1.StateOptions.CONSISTENCY_STRONG
        )
        found = await self.patiently(lambda: self._state("GetState", request))
        return found.data, found.etag

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values that exist, in as many requests as their size needs."""
        found: dict[str, bytes] = {}
        begin, size = 0, _GROUP
        while begin < len(keys):
            try:
                found |= await self.patiently(lambda group=keys[begin : begin + size]: self._bulk(group))  # type: ignore[misc]
            except BackendUnavailableError as error:
                if size == 1 or not _is_large(error.__cause__):
                    raise
                size = max(1, size // 2)
                continue
            begin += size
        return found

    async def _bulk(self, keys: Sequence[str]) -> dict[str, bytes]:
        request = state_pb2.GetBulkStateRequest(store_name=self.config.store, keys=keys, parallelism=10)
        items = (await self._state("GetBulkState", request)).items
        failed = next((item.error for item in items if item.error), None)
        if failed is not None:
            raise WriteError(failed)
        return {item.key: item.data for item in items if item.data}

    async def save(self, *values: Value) -> None:
        """Write values; `WriteError` if any may not have been written."""
        items = [_item(value) for value in values]
        await self._write("SaveState", state_pb2.SaveStateRequest(store_name=self.config.store, states=items))

    async def save_together(self, *values: Value) -> None:
        """Write values in one transaction; `WriteError` as for `save`."""
        operations = [
            state_pb2.TransactionalStateOperation(operationType="upsert", request=_item(value)) for value in values
        ]
        request = state_pb2.ExecuteStateTransactionRequest(storeName=self.config.store, operations=operations)
        await self._write("ExecuteStateTransaction", request)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete values."""
        for begin in range(0, len(keys), _GROUP):
            items = [common_v1.StateItem(key=key) for key in keys[begin : begin + _GROUP]]
            request = state_pb2.DeleteBulkStateRequest(store_name=self.config.store, states=items)
            await self.patiently(lambda request=request: self._state("DeleteBulkState", request))  # type: ignore[misc]

    async def _write(self, method: str, request: Any) -> None:
        try:
            await self._state(method, request)
        except grpc.RpcError as error:
            if _is_final(error) and not _is_large(error):
                raise self.error(error) from error
            raise WriteError(_text(error)) from error

    # Workflows

    async def workflow(self, instance_id: str) -> WorkflowInstance | None:
        """Return what Dapr knows of a workflow; None if there is none. Raises if Dapr does not say for some seconds."""

        def ask() -> Awaitable[WorkflowState | None]:
            return self._within(self._connected()[2].get_workflow_state(instance_id), _WORKFLOW_SECONDS)

        found = await self.patiently(ask, _WORKFLOW_SECONDS)
        if found is None:
            return None
        given = json.loads(found.serialized_input or "{}")
        payload = given if isinstance(given, dict) else {}  # a workflow of the user may have this id
        return WorkflowInstance(
            status=found.runtime_status,
            life=payload.get("life", ""),
            resumes=payload.get("resumes", 0),
            shows=found.serialized_custom_status or "",
            output=found.serialized_output or "",
        )

    async def start_workflow(self, name: str, instance_id: str, payload: dict[str, Any], seconds: float) -> bool:
        """Start a workflow; False if there is one of this id, or if no worker is connected."""
        starting = self._connected()[2].schedule_new_workflow(name, input=payload, instance_id=instance_id)
        return await self._succeeds(starting, seconds)

    async def supersede(self, instance_id: str) -> bool:
        """Terminate a workflow, which is to be replaced by another one."""
        return await self._succeeds(self._connected()[2].terminate_workflow(instance_id, output=SUPERSEDED))

    async def raise_event(self, instance_id: str, name: str, data: Any = None) -> bool:
        """Raise an event of a workflow, which has it once this returns True; False if no worker is connected."""
        return await self._succeeds(self._connected()[2].raise_workflow_event(instance_id, name, data=data))

    async def purge(self, instance_id: str) -> bool:
        """Delete a workflow that has ended."""
        return await self._succeeds(self._connected()[2].purge_workflow(instance_id))

    async def _succeeds(self, asking: Awaitable[Any], seconds: float = _CALL_SECONDS) -> bool:
        try:
            await self._within(asking, seconds)
        except (grpc.RpcError, TimeoutError) as error:
            logger.debug("sidecar=<%s>, error=<%s> | a workflow was not reached", self.config, _text(error))
            return False
        return True

    async def _within(self, asking: Awaitable[T], seconds: float = _CALL_SECONDS) -> T:
        return await limited(asking, seconds)


def _item(value: Value) -> Any:
    """Return a value in Dapr's form."""
    found = common_v1.StateItem(key=value.key, value=value.data)
    if value.ttl_seconds is not None:
        found.metadata["ttlInSeconds"] = str(value.ttl_seconds)
    if value.etag is not None:
        found.options.concurrency = common_v1.StateOptions.CONCURRENCY_FIRST_WRITE
        if value.etag:
            found.etag.value = value.etag
    return found


def _is_final(error: BaseException) -> bool:
    return isinstance(error, grpc.RpcError) and (error.code() in _FINAL or _is_large(error))


def _is_large(error: BaseException | None) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() is _LARGE


def _text(error: BaseException) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.RpcError) else str(error) or "no answer"
