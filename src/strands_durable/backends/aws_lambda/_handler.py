"""The function that AWS invokes: ``handler = lambda_handler(trip_planner)``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, RetryableSerDesError, durable_execution
from aws_durable_execution_sdk_python.config import InvokeConfig
from aws_durable_execution_sdk_python.serdes import JsonSerDes

from ..._dispatch.registry import DurableAgent
from ..._enginekit.change_sets import ChangeSet
from ..._enginekit.operations.port import Notify, RunSettings
from ..._enginekit.operations.run import OperationRun, dispatched, load
from ..._enginekit.operations.segments import SegmentEnd, run_chain, run_segment
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.progress import end_of
from ..._records.executions import ExecutionStatus
from ...errors import BackendUnavailableError, ExecutionFailedError, UnsupportedFeatureError
from ._operations import LambdaOperations, OperationLimits
from ._protocol import CHAINED_BYTES, LIMITS, SEGMENT, Start

_RESULT_BYTES = 200_000
_INVOKE: InvokeConfig[Any, Any] = InvokeConfig(JsonSerDes(), JsonSerDes())


def lambda_handler(
    *agents: DurableAgent,
    payloads: str | None = None,
    notify: Notify | None = None,
    answer_seconds: int = 0,
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
        boto3_client: A Lambda client for AWS's SDK to use instead of its own.
        settings: ``stop_poll_seconds`` (3): how often a running step checks whether the execution was stopped. For tests:
            ``max_operations`` (2,500) and ``max_bytes`` (80,000,000), after which a further durable execution continues;
            ``exits`` (True), whether the process ends if a tool's thread outlives the invocation.
    """
    if not agents:
        raise UnsupportedFeatureError("lambda_handler()", "it names no agent", "Pass one: lambda_handler(planner).")
    load()  # while the process starts, not in the first invocation
    limits = OperationLimits(**{name: settings.pop(name) for name in asdict(OperationLimits()) if name in settings})
    found = RunSettings(
        agents=frozenset(agent.name for agent in agents),
        payload_store=PayloadStore(payloads, LIMITS),
        notify=notify,
        answer_seconds=answer_seconds,
        handover_bytes=CHAINED_BYTES,
        **settings,
    )
    by_name = {agent.name: agent for agent in agents}

    def handler(event: Any, context: DurableContext) -> Any:
        operations = LambdaOperations(context, limits)
        try:
            execution_id, rows = _begun(event, operations, by_name)
            run = OperationRun(operations, execution_id, rows, found)
            return run_segment(run) if event.get("segment") else _ended(run, execution_id, context)
        except BackendUnavailableError as error:
            raise RetryableSerDesError(str(error)) from error

    return durable_execution(handler, boto3_client=boto3_client)


def _begun(event: Any, operations: LambdaOperations, agents: dict[str, DurableAgent]) -> tuple[str, ChangeSet]:
    """Return the id and the rows of the execution; record one that was not dispatched by our client."""
    if isinstance(event, dict) and "rows" in event:
        return event["execution_id"], event["rows"]
    if not isinstance(event, dict) or "prompt" not in event:
        raise UnsupportedFeatureError(
            "This input of the function",
            'it is neither from strands-durable nor has it a "prompt"',
            'Dispatch with connect("lambda://..."), or pass {"prompt": ..., "agent": ..., "execution_id": ...}.',
        )
    name = event.get("agent") or next(iter(agents))
    if name not in agents:
        known = ", ".join(sorted(agents))
        raise UnsupportedFeatureError(f"Agent {name!r}", f"this function has {known}", "Name one of them.")
    spec = partial(agents[name].spec_with, **event.get("arguments", {}))
    return dispatched(operations, spec, event["prompt"], event.get("execution_id"), event.get("invocation_state"))


def _ended(run: OperationRun, execution_id: str, context: DurableContext) -> dict[str, Any]:
    """Run an execution to its end, and return what the durable execution returns; a failed one raises."""
    end = run_chain(run, partial(_invoke, context, execution_id))
    if end["status"] == ExecutionStatus.FAILED.value:
        raise ExecutionFailedError(execution_id, end.get("error", ""), "Its handle's resume() retries it.")
    found, result = {"execution_id": execution_id, "status": end["status"]}, end_of(run.replica).result
    is_small = result is not None and len(json.dumps(result)) <= _RESULT_BYTES
    return {**found, "result": result} if is_small else found


def _invoke(context: DurableContext, execution_id: str, number: int, rows: ChangeSet) -> SegmentEnd:
    """Let a further durable execution continue this one."""
    lambda_context: Any = context.lambda_context
    arn = str(lambda_context.invoked_function_arn).split(":")[:7]
    version = ":".join([*arn, str(lambda_context.function_version)])  # an alias may point to another one by now
    given: Start = {"execution_id": execution_id, "rows": rows, "segment": True}
    end: SegmentEnd = context.invoke(version, given, name=f"{SEGMENT}{number}", config=_INVOKE)
    return end
