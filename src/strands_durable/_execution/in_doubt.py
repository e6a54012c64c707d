"""Steps in doubt: what becomes of a tool or model call that had started and has no result, and how a person is asked."""

from __future__ import annotations

import inspect
import uuid
from typing import Any

from strands.middleware import ExecuteToolContext

from .._calls.agent_call import Call
from .._calls.context import CurrentStep, StepContext
from .._calls.tool_steps import ToolRequest
from .._records.exceptions import describe
from .._records.keys import path
from .._records.logs import safe_logger
from .._records.policy import DoubtfulStep, ModelInDoubt, ToolPolicy
from .._records.questions import ANSWERS, MODEL_ANSWERS, QUESTION
from .._records.steps import StepRecord
from .._strands.agents import Interrupt, InterruptException, answer_to
from ..errors import InDoubtError

logger = safe_logger(__name__)


async def judge_tool(
    call: Call,
    policy: ToolPolicy,
    request: ToolRequest,
    recorded: StepRecord,
    context: ExecuteToolContext,
    timeout: float | None = None,
) -> dict[str, Any] | None:
    """Decide what becomes of a tool call that had started and has no result; None: run it again.

    With ``timeout`` it has none because it did not answer for so many seconds, else because its process died.
    """
    if recorded.status == "unstorable":
        verdict: Any = _ask(call, request, recorded, context, timeout)
    elif policy.in_doubt == "verify":
        found = await _verify(call, policy, request, recorded)
        verdict = "retry" if found is None else {"result": found}
    elif policy.in_doubt == "ask":
        verdict = _ask(call, request, recorded, context, timeout)
    else:
        verdict = policy.in_doubt
    if verdict == "retry":
        run_again("tool", _view(call, request, recorded), recorded.attempt + 1)
        return None
    given = verdict["result"] if isinstance(verdict, dict) else unknown(request, timeout)
    outcome = outcome_of(tool_result(request, given))
    return call.tools.finish(request, None, recorded.attempt + 1, outcome)  # the doubtful attempt stays on record


def run_again(kind: str, view: CurrentStep, attempt: int) -> None:
    """Say that a step which may have happened is run again: if it has, it now happens twice, unless its key prevents it."""
    logger.warning(
        "execution_id=<%s>, %s=<%s>, step=<%s>, attempt=<%d>, idempotency_key=<%s> | %s in doubt is run again",
        view.execution_id, kind, view.name, view.key, attempt, view.idempotency_key, kind,
    )  # fmt: skip


def _view(call: Call, request: ToolRequest, recorded: StepRecord) -> CurrentStep:
    return StepContext(call, "tool", request.name, "before", request.key, lambda: (recorded.attempt, False)).view


async def _verify(call: Call, policy: ToolPolicy, request: ToolRequest, recorded: StepRecord) -> Any:
    view = _view(call, request, recorded)
    return await verified(policy, view, recorded, tool_use_id=request.tool_use_id, given=request.input)


async def verified(policy: ToolPolicy, view: CurrentStep, recorded: StepRecord, *, tool_use_id: str, given: Any) -> Any:
    """Return what the policy's callback says about a step in doubt; None: it did not happen."""
    assert policy.verify is not None
    step = DoubtfulStep(
        execution_id=view.execution_id,
        key=view.key,
        idempotency_key=view.idempotency_key,
        attempt=recorded.attempt,
        tool=view.name,
        tool_use_id=tool_use_id,
        input=given,
        started_at=recorded.started_at,
    )
    try:
        found = policy.verify(step)
        return await found if inspect.isawaitable(found) else found
    except Exception as error:
        raise InDoubtError(view.execution_id, recorded.key, f"its verify callback raised {error!r}") from error


def _ask(
    call: Call, request: ToolRequest, recorded: StepRecord, context: ExecuteToolContext, timeout: float | None
) -> Any:
    """Ask a person; each attempt is a question of its own."""
    why = "its result is not known" if timeout is None else f"did not answer within {timeout:g} s"
    reason = {
        "question": f"Did tool {request.name!r} take effect? It had started, and {why}.",
        "tool": request.name,
        "input": request.input,
        "attempt": recorded.attempt,
        "answers": ANSWERS,
    }
    return context.interrupt(_question(call, request.key, recorded.attempt), reason=reason).response


def _question(call: Call, key: str, attempt: int) -> str:
    """Name a question by the step's whole path: nodes that run together may have steps with one key."""
    return f"{QUESTION} ({path(call.record.scope, call.record.position, key)}, attempt {attempt})"


def judge_model(call: Call, policy: ModelInDoubt, key: str) -> None:
    """Return if the model may be called again; raise otherwise."""
    attempt = call.progress.attempt
    if policy == "ask":
        name = _question(call, key, attempt)
        interrupt_id = f"v1:strands_durable:{uuid.uuid5(uuid.NAMESPACE_OID, f'{call.execution_id} {name}')}"
        answer = answer_to(call.agent, interrupt_id)
        if answer is None:
            reason = {
                "question": "May the model be called again? A call had started, and its answer is not known.",
                "attempt": attempt,
                "answers": MODEL_ANSWERS,
            }
            raise InterruptException(Interrupt(id=interrupt_id, name=name, reason=reason))
        if answer == "retry":
            return
    raise InDoubtError(call.execution_id, key, 'its policy is model_in_doubt="fail"')


def tool_result(request: ToolRequest, given: Any) -> dict[str, Any]:
    """Make a tool result of what a person or a callback gave."""
    if isinstance(given, dict) and "status" in given and "content" in given:
        return {**given, "toolUseId": request.tool_use_id}
    block = {"text": given} if isinstance(given, str) else {"json": given}
    return {"toolUseId": request.tool_use_id, "status": "success", "content": [block]}


def unknown(request: ToolRequest, timeout: float | None = None) -> dict[str, Any]:
    why = "was interrupted by a crash" if timeout is None else f"did not answer within {timeout:g} s"
    text = f"The outcome of {request.name} is unknown: it had started and {why}. It may or may not have taken effect."
    return {"status": "error", "content": [{"text": text}]}


def outcome_of(result: Any, *, exception: Exception | None = None, **more: Any) -> dict[str, Any]:
    """Return the recorded form of a tool's outcome; what did not happen is not stored.

    Besides the result there may be ``state``, ``invocation`` and ``cancel``: what the tool did to the agent; ``tools``: the
    schemas of those it loaded; ``rerun``: what is needed to make the call again in another process.
    """
    outcome = {"result": result, **more}
    if exception is not None:
        outcome["exception"] = describe(exception)
    return {name: value for name, value in outcome.items() if value or name == "result"}
