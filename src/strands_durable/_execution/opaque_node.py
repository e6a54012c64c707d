"""Nodes whose inside we cannot see: an executor that is no Strands agent, A2A for example, is one step with a policy."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from typing import Any

from strands.agent import AgentResult
from strands.multiagent.base import MultiAgentBase
from strands.telemetry.metrics import EventLoopMetrics

from .._calls.context import StepContext, current_context
from .._calls.durable_call import journal_guard
from .._calls.orchestrator_call import OrchestratorCall
from .._records.keys import path
from .._records.policy import ToolPolicy
from .._records.questions import ANSWERS, QUESTION, answers_in
from .._strands.agents import Interrupt
from ..errors import InDoubtError, UnsupportedFeatureError
from .event_stream import only
from .in_doubt import run_again, verified

Events = AsyncGenerator[Any, None]


class Opaque:
    """Stands around the `stream_async` of an opaque executor, and looks like it."""

    def __init__(self, executor: Any, original: Any) -> None:
        self._executor, self._original = executor, original

    def __call__(self, *args: Any, **given: Any) -> Events:
        return _stream(self._executor, self._original, *args, **given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


async def _stream(executor: Any, original: Any, prompt: Any = None, *args: Any, **given: Any) -> Events:
    """Run an opaque executor, unless what is known of an earlier attempt decides."""
    step_context = current_context.get()
    call = None if step_context is None else step_context.call
    if step_context is None or step_context.delegate is not executor or not isinstance(call, OrchestratorCall):
        events = original(prompt, *args, **given)
    else:
        with journal_guard(call):
            result = await _judged(call, step_context.name, executor, prompt)
            doubtful = call.doubtful(step_context.name)
            if result is None and doubtful is not None and doubtful.status == "started":
                run_again("node", call.view(step_context.name), step_context.look()[0])
        live = original(prompt, *args, **given) if result is None else None
        events = only({"result": result}) if live is None else _in_turn(call, step_context, executor, live)
    try:
        async for event in events:
            yield event
    except BaseException as death:
        if call is not None:
            call.notice(death)
        raise


async def _in_turn(call: OrchestratorCall, step_context: StepContext, executor: Any, events: Events) -> Events:
    """Run an executor in its turn; an orchestrator's own steps are the steps."""
    if isinstance(executor, MultiAgentBase):
        async for event in events:
            yield event
        return
    ticket = call.ticket(step_context.key, step_context.look()[0], "node", step_context.name)
    await call.wait_for(ticket)
    with call.holding(ticket):
        async for event in events:
            yield event


async def _judged(call: OrchestratorCall, node_id: str, executor: Any, prompt: Any) -> Any:
    """Return the result if the policy of a node in doubt gives one; None: run it."""
    step = call.doubtful(node_id)
    policy = call.options.tool_policies.get(node_id, ToolPolicy())
    if step is None or policy.in_doubt == "retry":
        return None
    if isinstance(executor, MultiAgentBase):
        raise UnsupportedFeatureError(
            f"in_doubt={policy.in_doubt!r} for node {node_id!r}", "the node is an orchestrator", 'Use "retry".'
        )
    verdict: Any = policy.in_doubt
    if policy.in_doubt == "verify":
        verdict = await verified(policy, call.view(node_id), step, tool_use_id="", given={})
    elif policy.in_doubt == "ask":
        interrupt = _question(call, node_id, step)
        answer = (answers_in(prompt) or {}).get(interrupt.id)
        if answer is None:
            return _result("interrupt", "In doubt", [interrupt])
        verdict = answer["result"] if isinstance(answer, dict) else answer
        if isinstance(answer, dict):
            return _result("end_turn", verdict)
    if verdict == "fail":
        raise InDoubtError(call.execution_id, step.key, "its policy or a person decided not to run it again")
    return None if verdict in (None, "retry") else _result("end_turn", verdict)


def _question(call: OrchestratorCall, node_id: str, step: Any) -> Interrupt:
    name = f"{QUESTION} ({path(call.record.scope, call.record.position, step.key)})"
    interrupt_id = f"v1:strands_durable:{uuid.uuid5(uuid.NAMESPACE_OID, f'{call.execution_id} {name}')}"
    reason = {"question": f"Did node {node_id!r} take effect? It had started.", "node": node_id, "answers": ANSWERS}
    return Interrupt(id=interrupt_id, name=name, reason=reason)


def _result(stop_reason: Any, given: Any, interrupts: list[Interrupt] | None = None) -> AgentResult:
    message: Any = {"role": "assistant", "content": [{"text": str(given)}]}
    return (
        given
        if isinstance(given, AgentResult)
        else AgentResult(stop_reason, message, EventLoopMetrics(), {}, interrupts)
    )
