"""The workflow of an execution: a supervisor that has a worker run the agent until it is at rest.

Everything that the execution does is in its log, so the workflow's own history stays small. An activity of an earlier run under
the same id may answer for this one: each answer repeats the turn that it is for, and another one is ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from datetime import timedelta
from typing import Any

from dapr.ext.workflow import DaprWorkflowContext, TaskFailedError, when_any

from ..._enginekit.key_value.head import REMOVED
from ..._records.executions import ExecutionStatus

WORKFLOW, RUN_AGENT, DISPATCH = "strands_durable", "strands_durable_run_agent", "strands_durable_dispatch"
WAKE, STEP = "wake", "step"
PAUSED = "its workflow is paused; resume it with Dapr's tools"
_FAILED_SECONDS = 5.0
_SHOWN_CHARACTERS = 1000
S = ExecutionStatus
End = dict[str, Any]
"""Status, and what else there is: result, error, note, refusals, and in how many seconds to try again."""


def call_of(execution_id: str) -> str:
    """Return what the call of an agent in a user's workflow is, if it is encrypted."""
    return f"the call of execution {execution_id!r}"


def result_of(execution_id: str) -> str:
    """Return what the result of a workflow is, if it is encrypted."""
    return f"the result of execution {execution_id!r}"


class AgentExecutionFailed(Exception):
    """The execution has failed; `strands-durable resume` tries it again from the failed step."""


def payload_of(execution_id: str, life: str, *, has_steps: bool, resumes: int = 0) -> dict[str, Any]:
    """Return the input of a new workflow."""
    turn = [uuid.uuid4().hex, 0]
    return {"execution": execution_id, "life": life, "turn": turn, "steps": has_steps, "resumes": resumes}


def supervise(ctx: DaprWorkflowContext, payload: dict[str, Any]) -> Generator[Any, Any, Any]:
    """Have an execution run until it ends."""
    if "shows" in payload:
        ctx.set_custom_status(payload["shows"])  # Dapr forgets it when a workflow continues as new
    try:
        end: End = yield from _run_agent(ctx, payload)
    except TaskFailedError as error:
        end = {"status": S.PENDING.value, "note": str(error), "seconds": _FAILED_SECONDS}
    shows = (end.get("note") or end["status"])[:_SHOWN_CHARACTERS]
    ctx.set_custom_status(shows)
    if end["status"] in (S.COMPLETED.value, S.CANCELLED.value, REMOVED):
        return end
    if end["status"] == S.FAILED.value:
        raise AgentExecutionFailed(end["error"])
    wake = ctx.wait_for_external_event(WAKE)
    if end["status"] == S.SUSPENDED.value:
        yield wake
    elif end.get("seconds", 0) > 0:
        yield when_any([wake, ctx.create_timer(timedelta(seconds=end["seconds"]))])
    nonce, number = payload["turn"]
    again = {**payload, "turn": [nonce, number + 1], "refusals": end.get("refusals", 0), "shows": shows}
    ctx.continue_as_new(again, save_events=False)  # a client that wakes it has committed before
    return None


def _run_agent(ctx: DaprWorkflowContext, payload: dict[str, Any]) -> Generator[Any, Any, End]:
    while True:
        running: Any = ctx.call_activity(RUN_AGENT, input=payload)
        while payload["steps"]:
            step = ctx.wait_for_external_event(STEP)
            if (yield when_any([running, step])) is running:
                break
            ctx.set_custom_status(step.get_result()["now"])
        end: End = yield running
        if end["turn"] == payload["turn"]:
            return end
