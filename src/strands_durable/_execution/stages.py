"""Replay or run: the one algorithm, for model calls and for tool calls.

Look up what is recorded. A result is returned as it is. A start without a result is in doubt, and its policy decides. If
nothing is recorded, commit the intent, run, commit the result, and return what was read back from its recorded form.

Our own errors never pass through Strands as exceptions: it would show them to the model as tool results.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from strands.middleware import ExecuteToolContext, InvokeModelContext, ModelStopReason, ToolResultEvent

from .._calls import tracing
from .._calls.agent_call import Call
from .._calls.context import StepContext, current_context
from .._calls.durable_call import journal_guard
from .._calls.metrics import tool_runs
from .._calls.tool_steps import ToolRequest
from .._records.copies import copied
from .._records.exceptions import revive
from .._records.keys import path
from .._records.outcomes import ModelAnswer, ToolOutcome
from .._records.policy import ToolPolicy
from .._records.steps import StepRecord
from .._strands.agents import Interrupt, InterruptException, agent_behind, answer_to, policy_of, put_for_tool
from .._strands.events import RecordedEvent
from .._strands.public_tools import delegates
from .._strands.watchers import changed_model_state
from .decided import come_through
from .event_stream import give_way
from .in_doubt import Situation, judge_model, judge_tool
from .retries import wait_for_retry
from .tool_run import ToolRun, with_own_input

Events = AsyncGenerator[Any, None]


def invoke_model(call: Call, context: InvokeModelContext, next_fn: Any) -> Events:
    """Answer a model call from the journal, or make it and record the answer."""
    with journal_guard(call):
        key, recorded = call.models.request()
        overflow = call.models.overflow(recorded)
        if (call.models.is_hooked(recorded) or overflow is not None) and call.put_back():
            context = context.replace(messages=copied(call.agent.messages))
    if overflow is not None:
        raise overflow
    if recorded is not None and recorded.status == "done":
        return _replayed_answer(call, recorded)
    return _live_answer(call, key, recorded, context, next_fn)


async def _replayed_answer(call: Call, recorded: StepRecord) -> Events:
    answer = ModelAnswer.from_json(recorded.result)
    call.models.take(recorded.step_id, answer)
    yield _recorded_event(call, recorded)
    yield _stop_event(answer)


async def _live_answer(
    call: Call, key: str, recorded: StepRecord | None, context: InvokeModelContext, next_fn: Any
) -> Events:
    policy = call.options.model_in_doubt
    with journal_guard(call):
        if call.models.is_in_doubt(recorded):
            judge_model(call, policy, key)
        call.models.start(context, lasting=policy != "retry")
    started_at, attempt, stop, redacted = time.time(), call.progress.attempt, None, False
    ticket = call.ticket(key, attempt, "model", "model", may_repeat=policy == "retry")
    await call.wait_for(ticket)
    with call.holding(ticket):
        step_context = StepContext(call, "model", "model", "running", key, lambda: (attempt, False))
        chunk_writer = call.journal.chunk_writer(call.record.call_id, key, attempt, "model", "model")
        events = _events(call, key, context, next_fn)
        try:
            while True:
                token = current_context.set(step_context)  # like `within`, without one more generator per chunk
                try:
                    event = await events.__anext__()
                except StopAsyncIteration:
                    break
                finally:
                    current_context.reset(token)
                if isinstance(event, ModelStopReason):
                    stop = event
                    continue
                if "event" in event:
                    redacted = redacted or _redacts(event["event"])
                    chunk_writer.write(event["event"])
                yield event
        except Exception as error:
            with journal_guard(call, starts=False):
                call.models.fail(key, started_at, context, error)
            raise
        finally:
            chunk_writer.close()
            await events.aclose()
        if stop is not None and stop.stop_reason != "cancelled":
            with journal_guard(call, starts=False):
                answer = call.models.finish(key, started_at, context, _answer(call, stop), redacted)
            stop = _stop_event(answer)
    if stop is not None:
        yield stop


def _events(call: Call, key: str, context: InvokeModelContext, next_fn: Any) -> Any:
    """Call the model, or whatever stands in its place."""
    player = call.options.player
    if player is None:
        return next_fn(context)
    with journal_guard(call):
        return player.model(call, key)


def _answer(call: Call, stop: ModelStopReason) -> ModelAnswer:
    """Return what is recorded of a model's answer."""
    return ModelAnswer(
        stop_reason=stop.stop_reason,
        message={"tracking_id": str(uuid.uuid4()), **stop.message},
        usage=stop.usage,
        metrics=stop.metrics,
        model_state=changed_model_state(call.agent),
    )


async def execute_tool(call: Call, context: ExecuteToolContext, next_fn: Any) -> Events:
    """Answer a tool call from the journal, or make it and record its outcome."""
    own = put_for_tool(context.invocation_state)
    with journal_guard(call):
        context, request = come_through(call, context)
        policy, recorded = _policy(call, context), call.tools.recorded(request)
        outcome, attempt = await _settle(call, policy, request, recorded, context)
    if recorded is not None and recorded.status == "done":
        yield _recorded_event(call, recorded)
    errors = 0 if recorded is None else call.tools.errors(request)
    if recorded is not None and recorded.status == "failed":
        outcome = await wait_for_retry(call, policy, request, recorded, errors)
    while outcome is None:
        run = ToolRun(call, policy, request, attempt, errors, own, context.tool)
        with await run.begin(context):
            async for event in run.events(context, next_fn):
                yield event
        if run.interrupted:
            return
        outcome, attempt, errors = run.outcome, attempt + 1, errors + 1
        if outcome is None:
            await _let_go()
            last = call.tools.recorded(request)
            outcome = None if last is None else await wait_for_retry(call, policy, request, last, errors)
    call.tools.leave(request, outcome)
    exception = None if outcome.exception is None else revive(outcome.exception)
    yield ToolResultEvent(outcome.result, exception=exception)


async def _let_go() -> None:
    """Let the event loop close a tool's generator, as Strands does not; an agent behind it is busy until then."""
    for _ in range(3):
        await give_way()


async def run_in_loop(call: Call, context: ExecuteToolContext, next_fn: Any) -> Events:
    """Run a tool whose effect is the loop itself: it is not a step, only counted."""
    name = context.tool_use["name"]
    before, is_success = tool_runs(call.agent, name), False
    async for event in next_fn(with_own_input(context, context.tool_use)):
        if isinstance(event, ToolResultEvent):
            is_success = event.tool_result.get("status") == "success"
        yield event
    if tool_runs(call.agent, name) > before:  # by one or more: calls of the same tool may run in parallel
        call.tools.ran_in_loop(name, 1, int(is_success))


def _policy(call: Call, context: ExecuteToolContext) -> ToolPolicy:
    found = policy_of(context.tool, context.tool_use["name"], call.options.tool_policies)
    if call.options.player is not None:
        found = replace(found, retries=0, timeout=None)  # what was retried is on record, with its last outcome
    return replace(found, inline=True) if delegates(context.tool) and not found.opaque else found


async def _settle(
    call: Call, policy: ToolPolicy, request: ToolRequest, recorded: StepRecord | None, context: ExecuteToolContext
) -> tuple[ToolOutcome | None, int]:
    """Return the outcome if the record decides it, otherwise the number of the attempt to make."""
    if recorded is None:
        return None, 1
    if recorded.status == "done":
        return call.tools.reuse(request, recorded), recorded.attempt
    if recorded.status == "interrupted":
        if agent_behind(context.tool) is None:  # otherwise the agent behind it asks again
            _raise_unanswered(call, recorded)
        return None, recorded.attempt + 1
    if recorded.status == "failed":
        return None, recorded.attempt + 1
    situation: Situation = "unstorable" if recorded.status == "unstorable" else "died"
    outcome = await judge_tool(call, policy, request, recorded.attempt, recorded, context, situation)
    return outcome, recorded.attempt + 1


def _raise_unanswered(call: Call, recorded: StepRecord) -> None:
    """Raise the interrupt of a tool that waits for a person, if there is no answer yet."""
    interrupts = recorded.result["interrupts"]
    if all(answer_to(call.agent, found["id"]) is None for found in interrupts):
        found = interrupts[0]
        raise InterruptException(Interrupt(id=found["id"], name=found["name"], reason=found["reason"]))


def _stop_event(answer: ModelAnswer) -> ModelStopReason:
    return ModelStopReason(
        stop_reason=answer.stop_reason, message=answer.message, usage=answer.usage, metrics=answer.metrics
    )


def _recorded_event(call: Call, step: StepRecord) -> RecordedEvent:
    tracing.note_recorded(call, step)
    return RecordedEvent(path(call.record.scope, call.record.position, step.key), step.kind, step.name)


def _redacts(chunk: Any) -> bool:
    found = chunk.get("redactContent") if isinstance(chunk, dict) else None
    return bool(found and found.get("redactUserContentMessage"))
