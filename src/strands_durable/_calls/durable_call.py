"""What calls of agents and of orchestrators have in common: their progress, how they end, how our own errors surface.

Strands turns an exception inside a tool into a result for the model, one inside a node into a failed node, and in a parallel
tool drops what is not an Exception. None of this may happen to our own errors: each is latched on the call and on every
enclosing call, no more steps start, and the root call raises it from our own frame.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strands import Agent

from .._journal.port import Journal
from .._records import keys
from .._records.calls import CallProgress, CallRecord
from .._records.changed import changed
from .._records.exceptions import describe
from .._records.executions import ExecutionStatus
from .._records.options import Options
from .._records.outcomes import AgentCallResult, OrchestratorCallResult
from .._records.phases import STATUS, Phase, move
from .._records.step_gate import StepTicket, holding
from .._records.steps import StepKind
from .._strands.agents import InterruptException
from .._strands.orchestrators import OrchestratorAdapter
from ..errors import DurableError, ExecutionCancelledError
from .children import BEGUN_IN
from .context import StepContext, StepPhase, current_context, enclosing_steps
from .control import ExecutionControl, ExecutionReleasedError

if TYPE_CHECKING:
    from .head import Head
    from .local_execution import LocalExecution


TRACES = "traces"
"""The part of a root call's head that holds the W3C traceparent of each of its attempts that was traced."""


class UnwindLoop(BaseException):
    """Unwinds Strands' loop after one of our own errors, which must not become a tool result as an Exception would."""


@dataclass(frozen=True)
class CallContext:
    """Where a call is made: the execution, this process's part in it, the options in effect, and the enclosing call."""

    control: ExecutionControl
    local: LocalExecution
    options: Options
    outer: DurableCall | None = None

    @property
    def journal(self) -> Journal:
        """The journal of the execution."""
        return self.control.journal

    @property
    def origin(self) -> list[tuple[str, str]]:
        """What a call that begins here records of the attempt that makes it."""
        attempt = 1 if self.outer is None else self.outer.record.attempt
        return [] if attempt == 1 else [(BEGUN_IN, str(attempt))]

    @property
    def is_in_node(self) -> bool:
        """Whether a node makes the call: nodes share one invocation state."""
        return self.outer is not None and self.outer.adapter is not None


class DurableCall:
    """One call that runs in this process. It keeps the first of our own errors in it and in the calls inside it."""

    agent: Agent | None = None
    adapter: OrchestratorAdapter | None = None
    """Access to the orchestrator; None in a call of an agent."""
    head: Head | None = None

    def __init__(self, context: CallContext, record: CallRecord, progress: CallProgress, name: str) -> None:
        self.local, self.options = context.local, context.options
        self.take_control(context.control)
        self.outer, self.is_in_node = context.outer, context.is_in_node
        self.record, self.progress, self.name = record, progress, name
        self.is_open = False
        """True while it runs here."""
        self.invocation_state: dict[str, Any] | None = None
        self.made_in: StepContext | None = None if context.outer is None else current_context.get()
        """The step or hook of the outer call that made this one."""
        self.is_new_child = False
        """Whether code called it, and no tool has run inside it in earlier attempts."""
        self.traced = 0
        """The attempt whose first span has begun."""
        self.unwritten_traces: str | None = None
        """What the next commit records of its traces."""
        self.failure: Exception | None = None
        self.crash: BaseException | None = None

    @property
    def is_left_running(self) -> bool:
        """Whether a tool left it running, and the root call has returned since: it is never resumed."""
        root: DurableCall = self
        while root.outer is not None:
            root = root.outer
        return root is not self and root.progress.phase == "done"

    def take_control(self, control: ExecutionControl) -> None:
        """Run under a lease, with the journal that is written under it."""
        self.control, self.journal, self.execution_id = control, control.journal, control.execution_id

    def context_of_call(self, phase: StepPhase) -> StepContext:
        """Return the context of the call as a whole, outside its steps."""
        look = (self.record.attempt, self.record.attempt > 1)
        key = keys.call_key(len(self.progress.cycles) - 1, self.progress.passes)
        return StepContext(self, "call", self.name, phase, key, lambda: look)

    def enter_call(self, phase: StepPhase) -> None:
        """Enter the hooks around the whole call, or around a pass of it."""
        current_context.set(self.context_of_call(phase))

    # Progress

    def _next_attempt(self) -> None:
        self.record = changed(self.record, status=ExecutionStatus.RUNNING, attempt=self.record.attempt + 1)

    def _reopen(self, answers: dict[str, Any] | None) -> None:
        """Record, as part of a transaction, that the call resumes, and the answers it resumes with."""
        if answers is not None:
            self.journal.insert_answers(self.record.call_id, answers)
        self.journal.reopen_call(self.record)

    def _move(self, phase: Phase, **changes: Any) -> None:
        if phase != self.progress.phase:
            move(self.execution_id, self.progress.phase, phase)  # type: ignore[arg-type]
        self._stay(phase=phase, **changes)

    def _write_traces(self) -> None:
        """Record, as part of a transaction, the trace of this attempt."""
        if self.unwritten_traces is not None:
            self.journal.write_head(self.record.call_id, [(TRACES, self.unwritten_traces)])
            self.unwritten_traces = None

    def _stay(self, **changes: Any) -> None:
        self.progress = changed(self.progress, **changes)

    # Ending

    def end(self, phase: Phase, result: AgentCallResult | OrchestratorCallResult) -> None:
        """Commit the end of the call, or that it waits for a person."""
        with self._ending(phase):
            self.control.end_call(self.record, STATUS[phase], result.to_json())

    def end_failed(self, error: Exception, result: OrchestratorCallResult | None = None) -> None:
        """Commit that the call failed: it raised an exception, or returned a failure. A resume starts from its head."""
        move(self.execution_id, self.progress.phase, "failed")  # type: ignore[arg-type]
        with self._failing():
            self.journal.insert_failure(self.record.call_id, self.record.attempt, describe(error))
            self.control.end_call(self.record, ExecutionStatus.FAILED, None if result is None else result.to_json())

    def leave(self) -> None:
        """Commit where the caller left the call, if its steps do not record that."""

    def _ending(self, phase: Phase) -> AbstractContextManager[None]:
        """Commit the progress of the call at its end, together with what the block writes."""
        raise NotImplementedError

    def _failing(self) -> AbstractContextManager[None]:
        """Commit what a call that failed leaves, together with what the block writes."""
        raise NotImplementedError

    # When a step may start

    def ticket(
        self,
        key: str,
        attempt: int,
        kind: StepKind,
        name: str,
        title: str = "",
        *,
        inside: StepContext | None = None,
        may_repeat: bool = True,
    ) -> StepTicket:
        """Return the ticket that a step of this call waits with; ``inside`` encloses the step within the call."""
        record = self.record
        return StepTicket(
            call_id=record.call_id,
            key=key,
            attempt=attempt,
            kind=kind,
            name=name,
            path=keys.path(record.scope, record.position, key),
            title=title,
            may_repeat=may_repeat,
            around=enclosing_steps(inside or self.made_in),
        )

    async def wait_for(self, ticket: StepTicket, *, starts: bool = True) -> None:
        """Wait until a step may run. If it may not, withdraw its intent: it has not started, and would otherwise be in doubt.

        Without ``starts`` it is part of a running step, which continues even when no more steps may start.
        """
        gate = self.control.gate
        with journal_guard(self, starts=False):
            try:
                if starts:
                    self.check()
                if gate is not None:
                    await gate.wait(ticket)
            except (UnwindLoop, DurableError, asyncio.CancelledError) as why:
                if ticket.kind == "node" and isinstance(why, asyncio.CancelledError):
                    raise  # its orchestrator gave up on it: it has failed
                with self.journal.transaction("turn.withdraw"):
                    self.journal.withdraw(ticket.call_id, ticket.key, ticket.attempt)
                raise

    def holding(self, ticket: StepTicket) -> AbstractContextManager[None]:
        """Hold the ticket while the step runs."""
        gate = self.control.gate
        return nullcontext() if gate is None else holding(gate, ticket)

    # Our own errors

    def keep_error(self, error: BaseException) -> None:
        """Keep an error, here and in the enclosing calls. The first one counts."""
        if isinstance(error, Exception):
            self.failure = self.failure or error
        else:
            self.crash = self.crash or error
        if self.outer is not None:
            self.outer.keep_error(error)

    def notice(self, death: BaseException) -> None:
        """Latch what ends the process, a KeyboardInterrupt for example: Strands may drop it and continue."""
        if not isinstance(death, (Exception, UnwindLoop, asyncio.CancelledError, GeneratorExit)):
            self.keep_error(death)
        if isinstance(
            death, (KeyboardInterrupt, SystemExit)
        ):  # raised in a Strands task, it would end the whole event loop
            raise UnwindLoop from death

    def fail(self, error: Exception) -> None:
        """Latch one of our own errors, and unwind."""
        self.keep_error(error)
        raise UnwindLoop

    def check(self, *, ends: bool = False) -> None:
        """Unwind if one of our own errors was latched where Strands could swallow it, or if no more steps may start.

        An execution that is left waits for a step that must not run again, and for all inside it: such a step ``ends`` first.
        """
        if self.failure is not None or self.crash is not None:
            raise UnwindLoop
        halt = self.control.halt
        if self.outer is not None:
            step = None if self.made_in is None else self.made_in.recorded
            self.outer.check(ends=ends or (step is not None and not step.may_repeat))
        elif halt is not None and not (ends and isinstance(halt, ExecutionReleasedError)):
            self.fail(halt)

    def is_cancelled(self, error: BaseException) -> bool:
        """Return True if a call ends because its execution was cancelled; the root call also records that."""
        if error is not self.control.halt or not isinstance(error, ExecutionCancelledError):
            return False
        if self.outer is None:
            self.control.cancel()
        return True

    @property
    def error(self) -> BaseException | None:
        """The latched error."""
        return self.crash or self.failure or (None if self.outer is None else self.outer.error)


class journal_guard:
    """Latch errors of our own code and unwind the loop. Interrupts belong to Strands and pass through.

    Once an error is latched no more steps start, but results of finished steps are still recorded if possible.
    """

    def __init__(self, call: DurableCall, *, starts: bool = True) -> None:
        self._call, self._starts = call, starts

    def __enter__(self) -> None:
        if self._starts:
            self._call.check()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, InterruptException):
            return
        if isinstance(error, Exception):
            self._call.fail(error)
        self._call.notice(error)
