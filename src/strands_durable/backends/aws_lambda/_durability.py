"""A durable agent inside a handler of your own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, RetryableSerDesError

from ..._dispatch.registry import DurableAgent
from ..._enginekit.operations.port import Notify, RunSettings
from ..._enginekit.operations.row_store import RowStore
from ..._enginekit.operations.run import OperationRun, dispatched
from ..._records.cipher import Cipher
from ..._records.results import ExecutionResult
from ...errors import BackendUnavailableError, UnsupportedFeatureError
from ._operations import LambdaOperations
from ._protocol import LIMITS, WHERE


class LambdaDurability:
    """Runs durable agents inside a handler of your own, between its other durable operations.

        @durable_execution
        def handler(event, context):
            plan = LambdaDurability(context).invoke(trip_planner, event["trip"])
            ...

    What the agent records is part of the handler's durable execution, and counts towards its 3,000 operations. Questions are
    answered through their callbacks.

    Args:
        context: The durable context that the SDK passes to the handler.
        payloads: As for `lambda_handler`.
        notify: As for `lambda_handler`.
        answer_seconds: As for `lambda_handler`.
        cipher: As for `lambda_handler`; what your handler takes and returns is yours to protect.
    """

    def __init__(
        self, context: Any, *, payloads: str | None = None, notify: Notify | None = None, answer_seconds: int = 0,
        cipher: Cipher | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(context, DurableContext):
            raise UnsupportedFeatureError(
                "LambdaDurability outside of a durable handler",
                f"it needs the context that @durable_execution passes to the handler, not {type(context).__name__}",
                'Elsewhere, dispatch the agent: connect("lambda://function:1").dispatch(agent.spec, prompt).',
            )
        self._context = context
        self._settings = RunSettings(
            agents=frozenset(),
            payload_store=RowStore(payloads, LIMITS, cipher=cipher, where=WHERE),
            notify=notify,
            answer_seconds=answer_seconds,
        )

    def invoke(
        self,
        agent: DurableAgent,
        prompt: Any,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> ExecutionResult:
        """Run an agent to its end. While it waits for a person, the handler is suspended.

        Args:
            agent: A durable agent.
            prompt: As for a Strands agent.
            execution_id: The id of the execution, for one call; generated once if None.
            invocation_state: As for a Strands agent.
            arguments: The arguments of the agent's factory.

        Raises:
            ExecutionFailedError: It failed; the cause is the error it failed with.
            ExecutionCancelledError: It was cancelled.
        """
        operations, spec = LambdaOperations(self._context), partial(agent.spec_with, **arguments)
        store = self._settings.payload_store
        found, rows = dispatched(operations, store, spec, prompt, execution_id, dict(invocation_state or {}))
        run = OperationRun(operations, found, rows, replace(self._settings, agents=frozenset({agent.name})))
        try:
            run.run()
            return run.result()
        except BackendUnavailableError as error:  # as in `lambda_handler`, the next invocation may be able to
            raise RetryableSerDesError(str(error)) from error
