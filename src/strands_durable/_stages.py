"""Replay or run: the one algorithm, for model calls and for tool calls.

Look up what is recorded. A result is returned as it is. A start without a result is in doubt, and its policy decides. Nothing
recorded: commit the intent, run, commit the result, and return what was read back from its recorded form.

Errors of ours never travel through Strands as exceptions: it would show them to the model as tool results.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from strands.middleware import ExecuteToolContext, InvokeModelContext, ModelStopReason, ToolResultEvent

from ._call import Call
from ._changes import difference
from ._context import Frame, within
from ._doubt import judge_model, judge_tool, outcome_of, tool_result, unknown
from ._drift import loaded_since, tools_of
from ._events import RecordedEvent
from ._failure import revive
from ._keys import path
from ._latch import ours
from ._policy import ToolPolicy, policy_of
from ._records import StepRecord
from ._reruns import note_rerun
from ._retries import is_tried_again, wait_for_retry
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
)
from ._tool_steps import ToolRequest, title_of
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
    if recorded is not None and recorded.status == "failed":
        outcome = await wait_for_retry(call, policy, request, recorded, errors)
    while outcome is None:
        run = _ToolRun(call, policy, request, attempt, errors, own)
        async for event in run.events(context, next_fn):
            yield event
        if run.interrupted:
            return
        outcome, attempt, errors = run.outcome, attempt + 1, errors + 1
        if outcome is None:
            await _let_go()
            last = call.tools.recorded(request)
            outcome = None if last is None else await wait_for_retry(call, policy, request, last, errors)
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
        before = copied(call.head.storable(context.invocation_state)), cancel_flags(call.agent), tools_of(call.agent)
        hosted = agent_behind(context.tool)
        standing = Frame(call, "tool", request.name, "running", request.key, lambda: (self._attempt, False), hosted)
        self._runs_before = tool_runs(call.agent, request.name)
        line = call.journal.line(call.record.call_id, request.key, self._attempt, "tool", request.name)
        try:
            async for event in within(standing, next_fn(context), _Deadline(self._policy.timeout)):
                if isinstance(event, ToolResultEvent):
                    self._result = event
                    continue
                if isinstance(event, ToolInterruptEvent):
                    self._interrupt([found.to_dict() for found in event.interrupts], ran=True)
                elif hosted is None and "tool_stream_event" in event:
                    line.say(event["tool_stream_event"].get("data"))
                yield event
            if self._result is None and not self.interrupted:
                raise RuntimeError(_NO_RESULT)
        except InterruptException as interruption:
            self._interrupt([interruption.interrupt.to_dict()], ran=self._has_run())
            raise
        except _TimedOut:
            with ours(call):
                self.outcome = await self._timed_out(context)
            return
        except Exception as error:  # from a middleware inside ours: what the executor would make of it
            text = {"toolUseId": request.tool_use_id, "status": "error", "content": [{"text": f"Error: {error}"}]}
            self._result = ToolResultEvent(text, exception=error)  # type: ignore[arg-type]
        except BaseException as death:
            call.notice(death)
            raise
        finally:
            line.close()
        if not self.interrupted and self._result is not None:
            with ours(call, starts=False):
                self.outcome = self._finish(standing, context, *before)

    def _finish(self, standing: Frame, context: ExecuteToolContext, state: Any, flags: Any, tools: Any) -> Any:
        """Commit the outcome, with what has changed since the tool began; None if the policy wants another attempt."""
        assert self._result is not None
        cancelled = cancel_flags(self._call.agent)
        outcome = outcome_of(
            self._result.tool_result,
            exception=self._result.exception,
            state=standing.changes,
            invocation=difference(state, self._call.head.storable(context.invocation_state)),
            cancel=cancelled if cancelled != flags else None,
            tools=loaded_since(self._call.agent, tools),
            rerun=note_rerun(self._call, self._policy, context.tool, self._request),
        )
        again = is_tried_again(
            self._policy, self._request, self._attempt, self._errors, outcome["result"], self._result.exception
        )
        recorded = self._call.tools.finish(
            self._request,
            self._step,
            self._attempt,
            outcome,
            status="failed" if again else "done",
            started_at=self._started_at,
            ran=self._has_run(),
        )
        return None if again else recorded

    async def _timed_out(self, context: ExecuteToolContext) -> dict[str, Any] | None:
        """A timeout leaves the step in doubt; only ``retry`` is bounded, by the policy's retries."""
        step = self._step
        if step is None or (self._policy.in_doubt == "retry" and self._attempt > self._policy.retries):
            outcome = outcome_of(tool_result(self._request, unknown(self._request, self._policy.timeout)))
            return self._call.tools.finish(self._request, None, self._attempt + 1, outcome)
        return await judge_tool(self._call, self._policy, self._request, step, context, self._policy.timeout)

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


class _TimedOut(Exception):
    """A tool did not answer in time."""


class _Deadline:
    """Cancels the task it is entered in once a time is over; `asyncio.timeout` is not there before Python 3.11."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._over = False

    def __enter__(self) -> None:
        self._handle = None
        if self._until is not None:
            self._task = asyncio.current_task()
            self._handle = asyncio.get_running_loop().call_later(max(0.0, self._until - time.monotonic()), self._cancel)

    def _cancel(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._over and kind is asyncio.CancelledError:
            uncancel = getattr(self._task, "uncancel", None)
            if uncancel is not None:
                uncancel()
            raise _TimedOut from None
