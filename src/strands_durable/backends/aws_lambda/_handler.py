"""The function that AWS invokes: ``handler = lambda_handler(trip_planner)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, RetryableSerDesError, durable_execution
from aws_durable_execution_sdk_python.config import InvokeConfig
from aws_durable_execution_sdk_python.serdes import JsonSerDes

from ..._dispatch.notifications.hooks import Callback, hooks_of
from ..._dispatch.notifications.webhooks import Webhook
from ..._dispatch.registry import DurableAgent
from ..._enginekit.operations.inputs import begun
from ..._enginekit.operations.port import Notify, RunSettings
from ..._enginekit.operations.reports import key_of, run_delivery
from ..._enginekit.operations.row_store import RowStore
from ..._enginekit.operations.run import OperationRun, load
from ..._enginekit.operations.segments import SegmentEnd, returned, run_chain, run_segment
from ..._records.change_sets import ChangeSet
from ..._records.cipher import Cipher
from ...errors import BackendUnavailableError, CipherError, UnsupportedFeatureError
from ._operations import LambdaOperations, OperationLimits
from ._protocol import CHAINED_BYTES, LIMITS, SEGMENT, WHERE
from ._url import LambdaConfig

Handler = Callable[[Any, Any], Any]
_RESULT_BYTES = 200_000


def lambda_handler(
    *agents: DurableAgent,
    payloads: str | None = None,
    notify: Notify | None = None,
    answer_seconds: int = 0,
    on_suspended: Callback | None = None,
    on_failed: Callback | None = None,
    on_completed: Callback | None = None,
    webhooks: Sequence[Webhook] = (),
    cipher: Cipher | None = None,
    boto3_client: Any = None,
    **settings: Any,
) -> Callable[[Any, Any], Any]:
    """Return the handler of a durable function that runs these agents.

        handler = lambda_handler(trip_planner)

    Args:
        agents: One or several durable agents. The first one runs an input that has a ``prompt`` and names no agent.
        payloads: The URL of a bucket or folder for what is large, such as ``s3://bucket/prefix``. Without it, large results
            are split over several steps, and one of more than 4 MB is an error.
        notify: Called for each question to a person with the callback id and a dict: ``execution_id``, ``interrupt_id``,
            ``name``, ``reason`` (None above 20 KB), and ``rejected``, why the answer before could not be used, or None. It is
            a durable step, at least once for each question. If it raises three times, that is logged; the question stays open.
        answer_seconds: How long a question stays open; 0 for as long as the execution may. After that, the tool that asked
            gets ``{"error": "..."}`` as its answer; a question about a step in doubt is answered with ``"fail"``.
        on_suspended: Called with a `Notification` when an execution waits for a person, at least once, by a durable execution
            of its own that retries for a day. Sync or async.
        on_failed: The same when one has failed.
        on_completed: The same when one has completed.
        webhooks: URLs that receive the same.
        cipher: Encrypts what is recorded. If None, the cipher that the environment names, if any.
        boto3_client: A Lambda client for AWS's SDK to use instead of its own.
        settings: ``stop_poll_seconds`` (3): how often a running step checks whether the execution was stopped. For tests:
            ``max_operations`` (2,500) and ``max_bytes`` (80,000,000), after which a further durable execution continues;
            ``exits`` (True), whether the process ends if a tool's thread outlives the invocation.
    """
    if not agents:
        raise UnsupportedFeatureError("lambda_handler()", "it names no agent", "Pass one: lambda_handler(planner).")
    load()  # while the process starts, not in the first invocation
    limits = OperationLimits(**{name: settings.pop(name) for name in asdict(OperationLimits()) if name in settings})
    key = key_of(*hooks_of(on_suspended, on_failed, on_completed, tuple(webhooks)))
    store = RowStore(payloads, LIMITS, cipher=cipher, where=WHERE)
    found = RunSettings(
        agents=frozenset(agent.name for agent in agents), payload_store=store, notify=notify,
        answer_seconds=answer_seconds, handover_bytes=CHAINED_BYTES, hooks_key=key, **settings,
    )  # fmt: skip
    return durable_execution(_serving(agents, found, limits, boto3_client), boto3_client=boto3_client)


def _serving(agents: Sequence[DurableAgent], settings: RunSettings, limits: OperationLimits, client: Any) -> Handler:
    """Return what one invocation does: run an execution or a segment of one, or deliver a report."""
    by_name = {agent.name: agent for agent in agents}

    def serve(event: Any, context: DurableContext) -> Any:
        operations = LambdaOperations(context, limits, client)
        try:
            if isinstance(event, dict) and "notice" in event and not {"prompt", "rows"} & event.keys():
                return run_delivery(operations, event, settings.hooks_key, settings.payload_store.contents)
            execution_id, rows = begun(event, operations, by_name, settings.payload_store)
            run = OperationRun(operations, execution_id, rows, settings)
            if event.get("segment"):
                return run_segment(run)
            return returned(run, run_chain(run, partial(_invoke, context, execution_id)), _RESULT_BYTES)
        except BackendUnavailableError as error:
            raise RetryableSerDesError(str(error)) from error

    return serve


class _InputSerDes(JsonSerDes[Any]):
    """The input of a segment: it is serialized when the segment is started, and not when the function is replayed."""

    def serialize(self, value: Any, _: Any) -> str:
        if isinstance(value["rows"], CipherError):
            raise RetryableSerDesError(str(value["rows"]))
        return super().serialize(value, _)


_INVOKE: InvokeConfig[Any, Any] = InvokeConfig(_InputSerDes(), JsonSerDes())


def _invoke(context: DurableContext, execution_id: str, number: int, rows: ChangeSet | CipherError) -> SegmentEnd:
    """Let a further durable execution continue this one."""
    function = LambdaConfig.running(context.lambda_context)
    given = {"execution_id": execution_id, "rows": rows, "segment": True}
    version = f"{function.function}:{function.qualifier}"
    end: SegmentEnd = context.invoke(version, given, name=f"{SEGMENT}{number}", config=_INVOKE)
    return end
