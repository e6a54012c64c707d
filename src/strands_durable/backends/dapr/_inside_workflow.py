"""A durable agent inside a Dapr workflow of your own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from dapr.ext.workflow import DaprWorkflowContext, TaskFailedError

from ..._dispatch.registry import DurableAgent
from ..._enginekit.encryption import Contents
from ..._records.cipher import Cipher
from ..._records.cipher_setting import cipher_or_default
from ..._records.codec import encode
from ..._records.executions import ExecutionStatus
from ..._records.keys import checked_id
from ..._records.results import ExecutionResult
from ...errors import ExecutionBusyError, ExecutionCancelledError, ExecutionFailedError, UnsupportedFeatureError
from ._workflow import DISPATCH, WORKFLOW, call_of, payload_of, result_of

_LOCKED_SECONDS, _MAX_LOCKED_SECONDS = 2.0, 300.0
"""How soon, and at last how seldom, another worker is asked if one lacks the key: each time adds to the workflow's history."""


@lru_cache(maxsize=8)
def _contents(cipher: Cipher | None) -> Contents:
    """Return the contents of all workflows of a cipher: a replay must not ask a key service for another data key."""
    return Contents(cipher, "a Dapr workflow", reads_plain=True)


class DaprDurability:
    """A durable agent in a workflow of your own: each of its calls is a child workflow and a full execution.

        def plan(ctx: DaprWorkflowContext, trip: str):
            result = yield from DaprDurability(ctx, trip_planner).invoke(trip)
            return str(result)

    It has steps, questions and answers like any execution: `strands-durable show` and `respond` work on its id. Dapr gives work
    to any worker of an app, so your workflows and the agents need the same one: ``DaprBackend(url, runtime=runtime).work()``.

    Args:
        context: The context that Dapr passes to the workflow.
        agent: A `DurableAgent`, or its name.
        cipher: That of the worker; encrypts the call and its result in the history of your workflow, too. If None, the cipher
            that the environment names, if any. What your workflow itself takes and returns is yours to protect.
    """

    def __init__(self, context: Any, agent: DurableAgent | str, *, cipher: Cipher | None = None) -> None:
        if not isinstance(context, DaprWorkflowContext):
            raise UnsupportedFeatureError(
                "DaprDurability outside of a workflow",
                f"it needs the context that Dapr passes to a workflow, not {type(context).__name__}",
                'Elsewhere, dispatch the agent: connect("dapr://127.0.0.1:50001").dispatch(agent.spec, prompt).',
            )
        self._context, self._name = context, checked_id(agent if isinstance(agent, str) else agent.name)
        self._contents = _contents(cipher_or_default(cipher))

    def invoke(
        self,
        prompt: Any = None,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
        **arguments: Any,
    ) -> Generator[Any, Any, ExecutionResult]:
        """Run the agent to its end, with ``yield from``. While it waits for a person, so does the workflow.

        Args:
            prompt: As for a Strands agent.
            execution_id: The id of the execution and of its workflow, for one call; derived from this workflow's id if None.
            invocation_state: JSON-safe, for its tools and hooks.
            limits: As for a Strands agent.
            arguments: For the agent's factory.

        Raises:
            ExecutionFailedError: It failed.
            ExecutionCancelledError: It was cancelled.
            ExecutionBusyError: The id is in use.
        """
        ctx, guid = self._context, hashlib.sha256(f"{self._context.instance_id} {self._context.new_guid()}".encode())
        life, nonce = guid.hexdigest()[:12], guid.hexdigest()[12:44]
        found = checked_id(execution_id) if execution_id is not None else self._derived(life)
        call = encode([prompt, dict(invocation_state or {}), limits and dict(limits), arguments], "The call")
        sealed = self._contents.seal_value(call, call_of(found))
        asked = {"execution": found, "life": life, "agent": self._name, "call": sealed}
        dispatched = yield from self._dispatched(asked)
        if dispatched["why"] is not None:
            raise ExecutionBusyError(found, "", dispatched["why"])
        payload = {**payload_of(found, life, has_steps=dispatched["steps"]), "turn": [nonce, 0]}
        try:
            end = yield ctx.call_child_workflow(WORKFLOW, input=payload, instance_id=found)
        except TaskFailedError as error:
            if not error.details.message:
                hint = "Its handle shows whether it was cancelled; it may also have continued."
                raise ExecutionFailedError(found, "its workflow was terminated", hint) from error
            raise ExecutionFailedError(found, error.details.message, "Its handle's resume() retries it.") from error
        if end["status"] != ExecutionStatus.COMPLETED.value:
            raise ExecutionCancelledError(found)
        if "result" not in end:
            raise ExecutionFailedError(found, end["note"], "It has completed: read it with its handle.")
        return ExecutionResult.from_json(self._contents.open_value(end["result"], result_of(found)))

    def _dispatched(self, asked: dict[str, Any]) -> Generator[Any, Any, dict[str, Any]]:
        """Have a worker record the execution; one that lacks the key leaves it to another."""
        seconds = _LOCKED_SECONDS
        while (found := (yield self._context.call_activity(DISPATCH, input=asked))).get("is_locked"):
            yield self._context.create_timer(timedelta(seconds=seconds))
            seconds = min(2 * seconds, _MAX_LOCKED_SECONDS)
        return dict(found)

    def _derived(self, life: str) -> str:
        """Return an id that names this workflow and the agent."""
        mine = re.sub(r"[^A-Za-z0-9._:@+=-]", "-", self._context.instance_id).lstrip("._:@+=-")[:120]
        return checked_id(f"{mine or 'workflow'}:{self._name[:60]}:{life}")
