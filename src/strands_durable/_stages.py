"""Replay or run: the one algorithm, for model calls and for tool calls.

Look up what is recorded. A result is returned as it is. A start without a result is in doubt, and its policy decides. Nothing
recorded: commit the intent, run, commit the result, and return what was read back from its recorded form.

Errors of ours never travel through Strands as exceptions: it would show them to the model as tool results.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from strands.middleware import ExecuteToolContext, InvokeModelContext, ModelStopReason, ToolResultEvent

from ._call import Call
from ._changes import difference
from ._context import Frame, within
from ._deadline import Deadline, TimedOut
from ._doubt import judge_model, judge_tool, outcome_of, tool_result, unknown
from ._events import RecordedEvent
from ._failure import revive
from ._keys import path
from ._latch import ours
from ._late import event_of
from ._policy import ToolPolicy, policy_of
from ._records import StepRecord
from ._strands import (
    Interrupt,
    InterruptException,
    ToolInterruptEvent,
    agent_behind,
    answer_to,
    cancel_flags,
    changed_model_state,
    copied,
    put_for_tool,
    sync_function,
    with_function,
)
from ._tool_steps import ToolRequest, title_of
from ._tool_threads import ToolThread
from ._usage import tool_runs

Events = AsyncGenerator[Any, None]


async def invoke_model(call: Call, context: InvokeModelContext, next_fn: Any) -> Events:
    """Answer a model call from the journal, or make it and record the answer."""
    policy = call.options.model_in_doubt
    with ours(call):
        key, recorded = call.models.request()
        overflow = call.models.overflow(recorded)
        if (call.models.is_hooked(recorded) or overflow is not None) and call.put_back():
            context = context.replace(messages=copied(call.agent.messages))
    if overflow is not None:
        raise overflow
    if recorded is not None and recorded.status == "done":
        call.models.take(recorded.step_id, recorded.result)
        yield _recorded_event(call, recorded)
        yield _stop_event(recorded.result)
        return
    with ours(call):
        if call.models.is_in_doubt(recorded) and policy != "retry":
            judge_model(call, policy, key)
        call.models.start(lasting=policy != "retry")
    started_at, stop, redacted = time.time(), None, False
    attempt = call.progress.attempt
    turn = call.turn(key, attempt, "model", "model")
    await call.take(turn)
    with call.taken(turn):
        standing = Frame(call, "model", "model", "running", key, lambda: (attempt, False))
        line = call.journal.line(call.record.call_id, key, attempt, "model", "model")
        try:
            async for event in within(standing, next_fn(context)):
                if isinstance(event, ModelStopReason):
                    stop = event
                    continue
                redacted = redacted or _redacts(event)
                if "event" in event:
                    line.say(event["event"])
                yield event
        except Exception as error:
            with ours(call, starts=False):
                call.models.fail(key, started_at, context, error)
            raise
        finally:
            line.close()
        if stop is not None and stop.stop_reason != "cancelled":
            with ours(call, starts=False):
                result = call.models.finish(key, started_at, context, _answer(call, stop), redacted)
            stop = _stop_event(result)
    if stop is not None:
        yield stop


def _answer(call: Call, stop: ModelStopReason) -> dict[str, Any]:
    """Return what is recorded of a model's answer."""
    message = {"tracking_id": str(uuid.uuid4()), **stop.message}
    fields = {"stop_reason": stop.stop_reason, "message": message, "usage": stop.usage, "metrics": stop.metrics}
    state = changed_model_state(call.agent)
    return fields if state is None else {**fields, "model_state": state}


async def execute_tool(call: Call, context: ExecuteToolContext, next_fn: Any) -> Events:
    """Answer a tool call from the journal, or make it and record its outcome."""
    policy, own = _policy(call, context), put_for_tool(context.invocation_state)
    with ours(call):
        request = call.tools.request(context.tool_use)
        recorded = call.tools.recorded(request)
        outcome, attempt = await _settle(call, policy, request, recorded, context)
    if recorded is not None and recorded.status == "done":
        yield _recorded_event(call, recorded)
    errors = 0 if recorded is None else call.tools.errors(request)
    while outcome is None:
        run = _ToolRun(call, policy, request, attempt, errors, own)
        async for event in run.events(context, next_fn):
            yield event
        if run.interrupted:
            return
        outcome, attempt, errors = run.outcome, attempt + 1, errors + 1
        if outcome is None:
            await _let_go()
    call.tools.leave(request)
    exception = outcome.get("exception")
    yield ToolResultEvent(outcome["result"], exception=None if exception is None else revive(exception))


async def _let_go() -> None:
    """Strands leaves a tool's generator to the event loop to close, and an agent behind it is busy until then."""
    for _ in range(3):
        await asyncio.sleep(0)


async def run_in_loop(call: Call, context: ExecuteToolContext, next_fn: Any) -> Events:
    """Run a tool whose effect is the loop itself: it is no step, it only counts."""
    name = context.tool_use["name"]
    before, is_success = tool_runs(call.agent, name), False
    async for event in next_fn(context):
        if isinstance(event, ToolResultEvent):
            is_success = event.tool_result.get("status") == "success"
        yield event
    if tool_runs(call.agent, name) > before:  # by one or more: others of its name may run at the same time
        call.tools.ran_in_loop(name, 1, int(is_success))


def _policy(call: Call, context: ExecuteToolContext) -> ToolPolicy:
    found = policy_of(context.tool, context.tool_use["name"], call.options.tool_policies)
    return found if agent_behind(context.tool) is None else replace(found, inline=True)


async def _settle(
    call: Call, policy: ToolPolicy, request: ToolRequest, recorded: StepRecord | None, context: ExecuteToolContext
) -> tuple[dict[str, Any] | None, int]:
    """Return the outcome if the record decides it, and the number of the attempt to make if it does not."""
    if recorded is None:
        return None, 1
    if recorded.status == "done":
        return call.tools.reuse(request, recorded), recorded.attempt
    if recorded.status == "interrupted":
        if agent_behind(context.tool) is None:  # else the agent behind it asks again
            _raise_unanswered(call, recorded)
        return None, recorded.attempt + 1
    if recorded.status == "failed":
        return None, recorded.attempt + 1
    return await judge_tool(call, policy, request, recorded, context), recorded.attempt + 1


def _raise_unanswered(call: Call, recorded: StepRecord) -> None:
    """A tool that waits for a person does not run before there is an answer."""
    interrupts = recorded.result["interrupts"]
    if all(answer_to(call.agent, found["id"]) is None for found in interrupts):
        found = interrupts[0]
        raise InterruptException(Interrupt(id=found["id"], name=found["name"], reason=found["reason"]))


_NO_RESULT = "A middleware of ExecuteToolStage did not yield a ToolResultEvent: it must pass on all that next_fn gives."


class _ToolRun:
    """One live attempt of a tool call."""

    def __init__(
        self, call: Call, policy: ToolPolicy, request: ToolRequest, attempt: int, errors: int, own: dict[str, Any]
    ) -> None:
        self._call, self._policy, self._request, self._attempt, self._errors = call, policy, request, attempt, errors
        self._own = own
        """What the tool is to find in the invocation state, of its own agent."""
        self._result: ToolResultEvent | None = None
        self._step: StepRecord | None = None
        self._started_at = time.time()
        self._runs_before = (0, 0)
        self._thread: ToolThread | None = None
        self.interrupted = False
        self.outcome: dict[str, Any] | None = None

    async def events(self, context: ExecuteToolContext, next_fn: Any) -> Events:
        """Commit the intent, run the tool, commit what came out; yield what it streams."""
        call, request = self._call, self._request
        with ours(call):
            if not self._policy.inline:
                self._step = call.tools.start(request, self._attempt)
        if agent_behind(context.tool) is not None:  # its steps are the steps
            async for event in self._run(context, next_fn):
                yield event
            return
        turn = call.turn(request.key, self._attempt, "tool", request.name, title_of(request.input))
        await call.take(turn)
        with call.taken(turn):
            async for event in self._run(context, next_fn):
                yield event

    async def _run(self, context: ExecuteToolContext, next_fn: Any) -> Events:
        call, request = self._call, self._request
        context.invocation_state.update(self._own)
        before = copied(call.head.storable(context.invocation_state)), cancel_flags(call.agent)
        hosted = agent_behind(context.tool)
        standing = Frame(call, "tool", request.name, "running", request.key, lambda: (self._attempt, False), hosted)
        self._runs_before = tool_runs(call.agent, request.name)
        context = self._threaded(context, partial(self._finish_late, standing, context, next_fn, *before))
        line = call.journal.line(call.record.call_id, request.key, self._attempt, "tool", request.name)
        try:
            async for event in within(standing, next_fn(context), Deadline(self._policy.timeout)):
                if isinstance(event, ToolResultEvent):
                    self._result = event
                    continue
                if isinstance(event, ToolInterruptEvent):
                    self._take()
                    self._interrupt([found.to_dict() for found in event.interrupts], ran=True)
                elif hosted is None and "tool_stream_event" in event:
                    line.say(event["tool_stream_event"].get("data"))
                yield event
            if self._result is None and not self.interrupted:
                raise RuntimeError(_NO_RESULT)
        except InterruptException as interruption:
            self._take()
            self._interrupt([interruption.interrupt.to_dict()], ran=self._has_run())
            raise
        except TimedOut:
            with ours(call):
                if not await self._ends_after_all(context, next_fn):
                    self.outcome = await self._timed_out(context)
                    return
        except Exception as error:  # from a middleware inside ours: what the executor would make of it
            text = {"toolUseId": request.tool_use_id, "status": "error", "content": [{"text": f"Error: {error}"}]}
            self._result = ToolResultEvent(text, exception=error)  # type: ignore[arg-type]
        except BaseException as death:
            if self._thread is not None:
                self._thread.detach()
            call.notice(death)
            raise
        finally:
            line.close()
        if not self.interrupted and self._result is not None:
            self._take()
            with ours(call, starts=False):
                self.outcome = self._finish(standing, context, *before)

    def _finish(self, standing: Frame, context: ExecuteToolContext, state_before: Any, cancelled_before: Any) -> Any:
        """Commit the outcome; None if the policy wants another attempt."""
        assert self._result is not None
        outcome = self._outcome_of(self._result, standing, context, state_before, cancelled_before)
        status = self._status_of(outcome)
        recorded = self._call.tools.finish(
            self._request,
            self._step,
            self._attempt,
            outcome,
            status=status,
            started_at=self._started_at,
            ran=self._has_run(),
        )
        return None if status == "failed" else recorded

    def _outcome_of(
        self,
        result: ToolResultEvent,
        standing: Frame,
        context: ExecuteToolContext,
        state_before: Any,
        cancelled_before: Any,
    ) -> dict[str, Any]:
        cancelled = cancel_flags(self._call.agent)
        return outcome_of(
            result.tool_result,
            exception=result.exception,
            state=standing.changes,
            invocation=difference(state_before, self._call.head.storable(context.invocation_state)),
            cancel=cancelled if cancelled != cancelled_before else None,
        )

    def _status_of(self, outcome: dict[str, Any]) -> Literal["done", "failed"]:
        again = self._errors < self._policy.retries and outcome["result"].get("status") == "error"
        return "failed" if again else "done"

    def _threaded(self, context: ExecuteToolContext, record: Callable[[Any], None]) -> ExecuteToolContext:
        """Follow the function of a sync tool into its thread, which may outlive this call."""
        function, request = sync_function(context.tool), self._request
        if function is None:
            return context
        call = self._call
        step = path(call.record.scope, call.record.position, request.key)
        self._thread = ToolThread(request.name, step, call.journal.lease.tools, record)
        return context.replace(tool=with_function(context.tool, partial(self._thread.run, function)))

    def _take(self) -> None:
        """Record what came out in this call, unless the tool's thread does so because the call has ended."""
        if self._thread is not None and not self._thread.take():
            raise asyncio.CancelledError

    async def _ends_after_all(self, context: ExecuteToolContext, next_fn: Any) -> bool:
        """Wait as long again for a sync tool that did not answer in time; return True if it has ended then.

        As long as it runs, it is neither verified nor run again: both would happen beside it.
        """
        thread = self._thread
        outcome = None if thread is None else thread.outcome
        if thread is None or outcome is None:
            return False
        if self._wants_to_know():
            await thread.wait(self._policy.timeout)
        if not outcome.done():
            thread.detach()
            return False
        event = await event_of(context, next_fn, outcome)
        if isinstance(event, ToolInterruptEvent):
            self._take()
            self._interrupt([found.to_dict() for found in event.interrupts], ran=True)
            raise InterruptException(event.interrupts[0])
        self._result = event
        return True

    def _wants_to_know(self) -> bool:
        """Say whether the policy can decide nothing about a tool that still runs."""
        is_retried = self._policy.in_doubt == "retry" and self._attempt <= self._policy.retries
        return is_retried or self._policy.in_doubt == "verify"

    def _finish_late(
        self,
        standing: Frame,
        context: ExecuteToolContext,
        next_fn: Any,
        state_before: Any,
        cancelled_before: Any,
        outcome: Future[Any],
    ) -> None:
        """Record what a tool returned after its call had ended, in the tool's own thread."""
        tools, request = self._call.tools, self._request
        event = asyncio.run(event_of(context, next_fn, outcome))
        if isinstance(event, ToolInterruptEvent):
            end = tools.asking(request, [found.to_dict() for found in event.interrupts], ran=True)
        else:
            found = self._outcome_of(event, standing, context, state_before, cancelled_before)
            end = tools.ending(request, self._step, found, self._status_of(found), ran=True)
        tools.finish_late(request, self._step, self._attempt, end, self._started_at)

    async def _timed_out(self, context: ExecuteToolContext) -> dict[str, Any] | None:
        """A timeout leaves the step in doubt; only ``retry`` is bounded, by the policy's retries."""
        step, still_runs = self._step, self._thread is not None and self._thread.is_detached
        is_tried = self._policy.in_doubt == "retry" and self._attempt > self._policy.retries
        if step is None or is_tried or (still_runs and self._wants_to_know()):
            outcome = outcome_of(tool_result(self._request, unknown(self._request, self._policy.timeout)))
            return self._call.tools.finish(self._request, None, self._attempt + 1, outcome)
        return await judge_tool(self._call, self._policy, self._request, step, context)

    def _interrupt(self, interrupts: list[dict[str, Any]], *, ran: bool) -> None:
        self.interrupted = True
        with ours(self._call, starts=False):
            self._call.tools.interrupt(self._request, self._step, self._attempt, interrupts, ran=ran)

    def _has_run(self) -> bool:
        """Say whether the tool itself was reached: a middleware inside ours may have answered or asked in its place."""
        return tool_runs(self._call.agent, self._request.name) > self._runs_before


def _stop_event(result: dict[str, Any]) -> ModelStopReason:
    return ModelStopReason(
        stop_reason=result["stop_reason"], message=result["message"], usage=result["usage"], metrics=result["metrics"]
    )


def _recorded_event(call: Call, step: StepRecord) -> RecordedEvent:
    return RecordedEvent(path(call.record.scope, call.record.position, step.key), step.kind, step.name)


def _redacts(event: Any) -> bool:
    chunk = event.get("event") if isinstance(event, dict) else None
    found = chunk.get("redactContent") if isinstance(chunk, dict) else None
    return bool(found and found.get("redactUserContentMessage"))
