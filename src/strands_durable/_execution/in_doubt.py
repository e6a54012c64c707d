"""Steps in doubt: what happens to a step that had started and has no result, for tools, nodes and model calls.

`DECISIONS` says what a policy means in each situation. ``retry`` runs the step again, ``verify`` asks the policy's callback,
``ask`` a person; ``fail`` gives a tool call a result saying that its outcome is unknown, and raises for nodes and models.
"""

from __future__ import annotations

import inspect
import uuid
from typing import Any, Literal

from strands.middleware import ExecuteToolContext

from .._calls.agent_call import Call
from .._calls.context import CurrentStep, StepContext
from .._calls.durable_call import DurableCall
from .._calls.orchestrator_call import OrchestratorCall
from .._calls.tool_steps import ToolRequest
from .._records.counters import count
from .._records.keys import path
from .._records.logs import safe_logger
from .._records.outcomes import ToolOutcome
from .._records.policy import DoubtfulStep, InDoubt, ModelInDoubt, ToolPolicy
from .._records.questions import ANSWERS, MODEL_ANSWERS, QUESTION
from .._records.steps import StepRecord
from .._strands.agents import Interrupt, InterruptException, answer_to
from ..errors import InDoubtError

logger = safe_logger(__name__)

Situation = Literal["died", "unstorable", "timed out", "out of retries", "still runs", "no intent"]
"""died: the process that ran the step is gone. unstorable: it ran, but its result has no recorded form. timed out: a tool did
not answer in time; out of retries: it did so on the last attempt; still runs: it did so, and its thread cannot be stopped;
no intent: it did so, and its policy is ``inline``, so no start is on record."""

DECISIONS: dict[InDoubt, dict[Situation, InDoubt]] = {
    "retry": {
        "died": "retry", "unstorable": "ask",
        "timed out": "retry", "out of retries": "fail", "still runs": "fail", "no intent": "fail",
    },
    "verify": {
        "died": "verify", "unstorable": "ask",
        "timed out": "verify", "out of retries": "verify", "still runs": "fail", "no intent": "fail",
    },
    "ask": {
        "died": "ask", "unstorable": "ask",
        "timed out": "ask", "out of retries": "ask", "still runs": "ask", "no intent": "fail",
    },
    "fail": {
        "died": "fail", "unstorable": "ask",
        "timed out": "fail", "out of retries": "fail", "still runs": "fail", "no intent": "fail",
    },
}  # fmt: skip


# Tools


async def judge_tool(
    call: Call,
    policy: ToolPolicy,
    request: ToolRequest,
    attempt: int,
    recorded: StepRecord | None,
    context: ExecuteToolContext,
    situation: Situation,
) -> ToolOutcome | None:
    """Return the outcome of a tool call in doubt; None: run it again. ``recorded`` is its start."""
    count("in_doubt", "tool")
    decision = DECISIONS[policy.in_doubt][situation]
    timeout = None if situation in ("died", "unstorable") else policy.timeout
    verdict: Any = decision
    if decision == "verify":
        assert recorded is not None
        view = _view(call, request, recorded)
        found = await _verified(policy, view, recorded, tool_use_id=request.tool_use_id, given=request.input)
        verdict = "retry" if found is None else {"result": found}
    elif decision == "ask":
        verdict = _ask(call, request, attempt, context, timeout)
    if verdict == "retry" and recorded is not None:
        run_again("tool", _view(call, request, recorded), attempt + 1)
        return None
    given = verdict["result"] if isinstance(verdict, dict) else unknown(request, timeout)
    outcome = ToolOutcome(result=tool_result(request, given))
    return call.tools.finish(request, None, attempt + 1, outcome)  # the attempt in doubt stays on record


def _view(call: Call, request: ToolRequest, recorded: StepRecord) -> CurrentStep:
    return StepContext(call, "tool", request.name, "before", request.key, lambda: (recorded.attempt, False)).view


def _ask(call: Call, request: ToolRequest, attempt: int, context: ExecuteToolContext, timeout: float | None) -> Any:
    """Ask a person; each attempt is a separate question."""
    why = "its result is not known" if timeout is None else f"did not answer within {timeout:g} s"
    reason = {
        "question": f"Did tool {request.name!r} take effect? It had started, and {why}.",
        "tool": request.name,
        "input": request.input,
        "attempt": attempt,
        "answers": ANSWERS,
    }
    return context.interrupt(_question(call, request.key, attempt), reason=reason).response


# Nodes


async def judge_node(
    call: OrchestratorCall, policy: ToolPolicy, node_id: str, step: StepRecord, answers: dict[str, Any]
) -> Interrupt | dict[str, Any] | None:
    """Decide about a node in doubt; return its ``result``, a question to a person, or None: run it."""
    count("in_doubt", "node")
    verdict: Any = DECISIONS[policy.in_doubt]["died"]
    if verdict == "verify":
        found = await _verified(policy, call.view(node_id), step, tool_use_id="", given={})
        verdict = "retry" if found is None else {"result": found}
    elif verdict == "ask":
        reason = {"question": f"Did node {node_id!r} take effect? It had started.", "node": node_id, "answers": ANSWERS}
        interrupt = _interrupt(call, _question(call, step.key), reason)
        verdict = answers.get(interrupt.id)
        if verdict is None:
            return interrupt
    if verdict == "fail":
        raise InDoubtError(call.execution_id, step.key, "its policy or a person decided not to run it again")
    return verdict if isinstance(verdict, dict) else None


# Models


def judge_model(call: Call, policy: ModelInDoubt, key: str) -> None:
    """Return if the model may be called again; raise otherwise."""
    count("in_doubt", "model")
    verdict: Any = DECISIONS[policy]["died"]
    attempt = call.progress.attempt
    if verdict == "ask":
        reason = {
            "question": "May the model be called again? A call had started, and its answer is not known.",
            "attempt": attempt,
            "answers": MODEL_ANSWERS,
        }
        interrupt = _interrupt(call, _question(call, key, attempt), reason)
        verdict = answer_to(call.agent, interrupt.id)
        if verdict is None:
            raise InterruptException(interrupt)
    if verdict != "retry":
        raise InDoubtError(call.execution_id, key, 'its policy is model_in_doubt="fail"')


# Callbacks and questions


async def _verified(
    policy: ToolPolicy, view: CurrentStep, recorded: StepRecord, *, tool_use_id: str, given: Any
) -> Any:
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


def _question(call: DurableCall, key: str, attempt: int | None = None) -> str:
    """Name a question by the step's full path: parallel nodes may have steps with the same key."""
    which = "" if attempt is None else f", attempt {attempt}"
    return f"{QUESTION} ({path(call.record.scope, call.record.position, key)}{which})"


def _interrupt(call: DurableCall, name: str, reason: dict[str, Any]) -> Interrupt:
    """Build an interrupt whose id is the same in every process."""
    interrupt_id = f"v1:strands_durable:{uuid.uuid5(uuid.NAMESPACE_OID, f'{call.execution_id} {name}')}"
    return Interrupt(id=interrupt_id, name=name, reason=reason)


def run_again(kind: str, view: CurrentStep, attempt: int) -> None:
    """Warn that a step in doubt runs again: if it took effect, it now does so twice, unless its key prevents that."""
    logger.warning(
        "execution_id=<%s>, %s=<%s>, step=<%s>, attempt=<%d>, idempotency_key=<%s> | %s in doubt is run again",
        view.execution_id, kind, view.name, view.key, attempt, view.idempotency_key, kind,
    )  # fmt: skip


# Tool results


def tool_result(request: ToolRequest, given: Any) -> dict[str, Any]:
    """Build a tool result from what a person or a callback gave."""
    if isinstance(given, dict) and "status" in given and "content" in given:
        return {**given, "toolUseId": request.tool_use_id}
    block = {"text": given} if isinstance(given, str) else {"json": given}
    return {"toolUseId": request.tool_use_id, "status": "success", "content": [block]}


def unknown(request: ToolRequest, timeout: float | None = None) -> dict[str, Any]:
    why = "was interrupted by a crash" if timeout is None else f"did not answer within {timeout:g} s"
    text = f"The outcome of {request.name} is unknown: it had started and {why}. It may or may not have taken effect."
    return {"status": "error", "content": [{"text": text}]}
