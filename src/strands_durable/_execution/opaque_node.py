"""Nodes that we cannot see into: an executor that is not a Strands agent, A2A for example, is one step with a policy."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from strands.agent import AgentResult
from strands.multiagent.base import MultiAgentBase
from strands.telemetry.metrics import EventLoopMetrics

from .._calls.context import StepContext, current_context
from .._calls.durable_call import journal_guard
from .._calls.orchestrator_call import OrchestratorCall
from .._records.policy import ToolPolicy
from .._records.questions import answers_in
from .._strands.agents import Interrupt
from ..errors import UnsupportedFeatureError
from .event_stream import only
from .in_doubt import judge_node, run_again

Events = AsyncGenerator[Any, None]


class Opaque:
    """Wraps the `stream_async` of an opaque executor, and looks like it."""

    def __init__(self, executor: Any, original: Any) -> None:
        self._executor, self._original = executor, original

    def __call__(self, *args: Any, **given: Any) -> Events:
        return _stream(self._executor, self._original, *args, **given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


async def _stream(executor: Any, original: Any, prompt: Any = None, *args: Any, **given: Any) -> Events:
    """Run an opaque executor, unless an earlier attempt decides the result."""
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
            if result is None:
                call.node_runs(step_context.name)
        live = _live(call, step_context, executor, original, prompt, *args, **given) if result is None else None
        events = only({"result": result}) if live is None else _in_turn(call, step_context, executor, live)
    try:
        async for event in events:
            yield event
    except BaseException as death:
        if call is not None:
            call.notice(death)
        raise


def _live(
    call: OrchestratorCall, step_context: StepContext, executor: Any, original: Any, *args: Any, **given: Any
) -> Events:
    """Run an executor, or whatever stands in its place; an orchestrator is seen into after all, as its nodes are."""
    player = call.options.player
    if player is None or isinstance(executor, MultiAgentBase):
        found: Events = original(*args, **given)
        return found
    with journal_guard(call):
        return player.node(call, step_context.key)


async def _in_turn(call: OrchestratorCall, step_context: StepContext, executor: Any, events: Events) -> Events:
    """Run an executor once its step may start; an orchestrator needs no ticket, as its own steps have theirs."""
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
    """Return the result that the policy of a node in doubt gives, or an interrupt result; None: run it."""
    step = call.doubtful(node_id)
    policy = call.options.tool_policies.get(node_id, ToolPolicy())
    if step is None or policy.in_doubt == "retry":
        return None
    if isinstance(executor, MultiAgentBase):
        raise UnsupportedFeatureError(
            f"in_doubt={policy.in_doubt!r} for node {node_id!r}", "the node is an orchestrator", 'Use "retry".'
        )
    verdict = await judge_node(call, policy, node_id, step, answers_in(prompt) or {})
    if isinstance(verdict, Interrupt):
        return _result("interrupt", "In doubt", [verdict])
    return None if verdict is None else _result("end_turn", verdict["result"])


def _result(stop_reason: Any, given: Any, interrupts: list[Interrupt] | None = None) -> AgentResult:
    message: Any = {"role": "assistant", "content": [{"text": str(given)}]}
    return (
        given
        if isinstance(given, AgentResult)
        else AgentResult(stop_reason, message, EventLoopMetrics(), {}, interrupts)
    )
