"""One attempt of a tool call: commit its intent, run it, and commit its outcome, in time or late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from strands.middleware import ExecuteToolContext, ToolResultEvent

from .._calls.agent_call import Call
from .._calls.context import StepContext, within
from .._calls.durable_call import journal_guard
from .._calls.metrics import tool_runs
from .._calls.tool_steps import ToolRequest
from .._records.copies import copied, unshared
from .._records.deadline import TimedOut
from .._records.exceptions import TRACEBACK, describe
from .._records.exceptions.tracebacks import text_of
from .._records.keys import path
from .._records.logs import safe_logger
from .._records.outcomes import ToolOutcome
from .._records.patches import difference
from .._records.policy import ToolPolicy
from .._records.steps import StepRecord
from .._strands.agents import (
    InterruptException,
    ToolInterruptEvent,
    agent_behind,
    cancel_flags,
    sync_function,
    with_function,
)
from .._strands.fingerprints import loaded_since, tools_of
from .._strands.public_tools import delegates, with_idempotency_key
from .drift import refuse_other_children
from .in_doubt import DECISIONS, Situation, judge_tool
from .late_results import event_of
from .reruns import note_rerun
from .retries import is_tried_again
from .tool_threads import ToolThread

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]
Before = tuple[Any, Any, Any]
"""The invocation state, the cancel flags and the tools of the agent, before a tool runs."""

_NO_RESULT = "A middleware of ExecuteToolStage did not yield a ToolResultEvent: it must pass on every event of next_fn."


def with_own_input(context: ExecuteToolContext, tool_use: Any) -> ExecuteToolContext:
    """Give a tool a copy of its input: what it does to that changes no recorded message, and no other attempt."""
    own: Any = {**tool_use, "input": unshared(tool_use.get("input"))}
    return context.replace(tool_use=own)


class ToolRun:
    """One live attempt of a tool call."""

    def __init__(
        self,
        call: Call,
        policy: ToolPolicy,
        request: ToolRequest,
        attempt: int,
        errors: int,
        own: dict[str, Any],
        tool: Any,
    ) -> None:
        self._call, self._policy, self._request, self._attempt, self._errors = call, policy, request, attempt, errors
        self._own = own
        """What the tool must find in the invocation state about its own agent."""
        self._delegates = delegates(tool) and not policy.opaque
        self._may_repeat = self._delegates or policy.in_doubt == "retry"
        self._tool = tool
        self._tool_use: Any = None
        """As hooks and the recorded messages have it."""
        self._result: ToolResultEvent | None = None
        self._step: StepRecord | None = None
        self._started_at = time.time()
        self._runs_before = (0, 0)
        self._thread: ToolThread | None = None
        self.interrupted = False
        self.outcome: ToolOutcome | None = None

    async def begin(self, context: ExecuteToolContext) -> AbstractContextManager[None]:
        """Commit the intent, and wait until the tool may run; return what to hold while it runs."""
        call, request = self._call, self._request
        self._tool_use = context.tool_use
        with journal_guard(call):
            refuse_other_children(call, request.name)
            if not self._policy.inline:
                self._step = call.tools.start(request, self._attempt)
            elif not self._delegates:
                call.sync_answer()
        if self._delegates:  # the steps inside wait for the gate
            return nullcontext()
        ticket = call.ticket(
            request.key, self._attempt, "tool", request.name, request.title, may_repeat=self._may_repeat
        )
        await call.wait_for(ticket)
        return call.holding(ticket)

    async def events(self, context: ExecuteToolContext, next_fn: Any) -> Events:
        """Run the tool and commit its outcome; yield what it streams."""
        call, request = self._call, self._request
        context.invocation_state.update(self._own)
        before = copied(call.head.storable(context.invocation_state)), cancel_flags(call.agent), tools_of(call.agent)
        step_context = self._context(context)
        self._runs_before = tool_runs(call.agent, request.name)
        context, events = self._begun(context, next_fn, step_context, before)
        chunk_writer = call.journal.chunk_writer(call.record.call_id, request.key, self._attempt, "tool", request.name)
        try:
            async for event in within(step_context, events, self._policy.timeout):
                if isinstance(event, ToolResultEvent):
                    self._result = event
                    continue
                if isinstance(event, ToolInterruptEvent):
                    self._take()
                    self._interrupt([found.to_dict() for found in event.interrupts], ran=True)
                elif not self._delegates and "tool_stream_event" in event:
                    chunk_writer.write(event["tool_stream_event"].get("data"))
                yield event
            if self._result is None and not self.interrupted:
                raise RuntimeError(_NO_RESULT)
        except InterruptException as interruption:
            self._take()
            self._interrupt([interruption.interrupt.to_dict()], ran=self._has_run())
            raise
        except TimedOut:
            with journal_guard(call):
                if not await self._ends_after_all(context, next_fn):
                    self.outcome = await judge_tool(
                        call, self._policy, request, self._attempt, self._step, context, self._situation()
                    )
                    return
        except Exception as error:  # from a middleware inside ours: the result that the executor would return
            self._result = _error_event(request, error)
        except BaseException as death:
            if self._thread is not None:
                self._thread.detach()
            call.notice(death)
            raise
        finally:
            step_context.is_over = True
            chunk_writer.close()
        if not self.interrupted and self._result is not None:
            self._take()
            with journal_guard(call, starts=False):
                self.outcome = self._finish(step_context, context, before)

    def _context(self, context: ExecuteToolContext) -> StepContext:
        """Return what encloses the tool's code."""
        return StepContext(
            self._call,
            "tool",
            self._request.name,
            "running",
            self._request.key,
            lambda: (self._attempt, False),
            delegate=agent_behind(context.tool),
            tries_again=self._errors > 0,
            may_repeat=self._may_repeat,
            is_opaque=self._policy.opaque,
        )

    def _begun(
        self, context: ExecuteToolContext, next_fn: Any, step_context: StepContext, before: Before
    ) -> tuple[ExecuteToolContext, Events]:
        """Return the events of the tool, with the context that it runs in; a player gives them in place of running it."""
        player = self._call.options.player
        if player is None or step_context.delegate is not None:
            own = with_idempotency_key(self._own_input(context), lambda: step_context.view.idempotency_key)
            found = self._threaded(own, partial(self._finish_late, step_context, context, next_fn, before))
            return found, next_fn(found)
        with journal_guard(self._call):
            return context, player.tool(self._call, self._request.key, context)

    def _own_input(self, context: ExecuteToolContext) -> ExecuteToolContext:
        return with_own_input(context, self._tool_use)

    def _finish(self, step_context: StepContext, context: ExecuteToolContext, before: Before) -> ToolOutcome | None:
        """Commit the outcome, with what has changed since the tool started; return None if the policy retries it."""
        assert self._result is not None
        outcome = self._outcome_of(self._result, step_context, context, before)
        status = self._status_of(outcome, self._result.exception)
        recorded = self._call.tools.finish(
            self._request,
            self._step,
            self._attempt,
            outcome,
            status=status,
            started_at=self._started_at,
            ran=self._has_run(),
        )
        self._log(outcome)
        return None if status == "failed" else recorded

    def _outcome_of(
        self, result: ToolResultEvent, step_context: StepContext, context: ExecuteToolContext, before: Before
    ) -> ToolOutcome:
        """Return what to record of a tool: its result, and what has changed since it started."""
        state, flags, tools = before
        cancelled = cancel_flags(self._call.agent)
        return ToolOutcome(
            result=result.tool_result,
            exception=None if result.exception is None else describe(result.exception),
            state=step_context.changes,
            invocation=difference(state, self._call.head.storable(context.invocation_state)),
            cancel=cancelled if cancelled != flags else None,
            tools=loaded_since(self._call.agent, tools),
            rerun=note_rerun(self._call, self._policy, self._tool, self._request),
        )

    def _status_of(self, outcome: ToolOutcome, exception: Exception | None) -> Literal["done", "failed"]:
        request, attempt, errors = self._request, self._attempt, self._errors
        again = is_tried_again(self._policy, request, attempt, errors, outcome.result, exception)
        return "failed" if again else "done"

    def _threaded(self, context: ExecuteToolContext, record: Callable[[Any], None]) -> ExecuteToolContext:
        """Follow the function of a sync tool into its thread, which may outlive this call."""
        function, request = sync_function(context.tool), self._request
        if function is None:
            return context
        call = self._call
        step = path(call.record.scope, call.record.position, request.key)
        self._thread = thread = ToolThread(request.name, step, call.control.tools, record)

        def run(*args: Any, **given: Any) -> Any:
            return thread.run(function, *args, **given)

        return replace(context, tool=with_function(context.tool, run))

    def _take(self) -> None:
        """Claim the outcome for this call, unless the tool's thread records it because the call has ended."""
        if self._thread is not None and not self._thread.take():
            raise asyncio.CancelledError

    async def _ends_after_all(self, context: ExecuteToolContext, next_fn: Any) -> bool:
        """Wait for the timeout once more after a sync tool did not answer in time; return True if it has ended.

        While it runs, it is neither verified nor retried: both would happen in parallel to it.
        """
        thread = self._thread
        outcome = None if thread is None else thread.outcome
        if thread is None or outcome is None:
            return False
        if DECISIONS[self._policy.in_doubt][self._timed_out()] in ("retry", "verify"):
            await thread.wait(self._policy.timeout)
        if not outcome.done():
            thread.detach()
            return False
        event = await event_of(self._own_input(context), next_fn, outcome)
        if isinstance(event, ToolInterruptEvent):
            self._take()
            self._interrupt([found.to_dict() for found in event.interrupts], ran=True)
            raise InterruptException(event.interrupts[0])
        self._result = event
        return True

    def _timed_out(self) -> Situation:
        return "timed out" if self._attempt <= self._policy.retries else "out of retries"

    def _situation(self) -> Situation:
        """Return the situation of a tool that did not answer in time."""
        if self._step is None:
            return "no intent"
        return "still runs" if self._thread is not None and self._thread.is_detached else self._timed_out()

    def _finish_late(
        self, step_context: StepContext, context: ExecuteToolContext, next_fn: Any, before: Before, outcome: Future[Any]
    ) -> None:
        """Record what a tool returned after its call had ended, in the tool's own thread."""
        tools, request = self._call.tools, self._request
        event = asyncio.run(event_of(self._own_input(context), next_fn, outcome))
        if isinstance(event, ToolInterruptEvent):
            end = tools.asking(request, [found.to_dict() for found in event.interrupts], ran=True)
        else:
            found = self._outcome_of(event, step_context, context, before)
            end = tools.ending(request, self._step, found, self._status_of(found, event.exception), ran=True)
        tools.finish_late(request, self._step, self._attempt, end, self._started_at)
        if not isinstance(event, ToolInterruptEvent):
            self._log(found)

    def _log(self, outcome: ToolOutcome) -> None:
        """Log a tool that raised, in a worker: a script has its own way to see that."""
        call, error = self._call, outcome.exception
        if error is None or call.options.player is not None or not call.journal.is_dispatched():
            return
        step = path(call.record.scope, call.record.position, self._request.key)
        facts = (call.execution_id, step, self._attempt, self._request.name)
        logger.warning(
            "execution_id=<%s>, step=<%s>, attempt=<%d> | tool %s raised",
            *facts,
            extra={TRACEBACK: error.get(TRACEBACK)},
        )

    def _interrupt(self, interrupts: list[dict[str, Any]], *, ran: bool) -> None:
        self.interrupted = True
        with journal_guard(self._call, starts=False):
            self._call.tools.interrupt(self._request, self._step, self._attempt, interrupts, ran=ran)

    def _has_run(self) -> bool:
        """Return True if the tool itself was reached: a middleware inside ours may have answered or asked in its place."""
        return tool_runs(self._call.agent, self._request.name) > self._runs_before


def _error_event(request: ToolRequest, error: Exception) -> ToolResultEvent:
    content: Any = [{"text": f"Error: {text_of(error)}"}]
    return ToolResultEvent({"toolUseId": request.tool_use_id, "status": "error", "content": content}, exception=error)
