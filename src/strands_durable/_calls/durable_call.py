"""What calls of agents and of orchestrators have in common: where they stand, how they end, how errors of ours get out.

Strands turns an exception inside a tool into a result for the model, one inside a node into a failed node, and drops what is
no Exception in a parallel tool. An error of ours must become none of these: it is latched on the call and on every call
around it, nothing more starts, and the root call raises it from our own frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strands import Agent

from .._journal.sqlite.journal import Journal
from .._records import keys
from .._records.calls import CallProgress, CallRecord
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
from .context import StepContext, StepPhase, current_context, enclosing_steps
from .control import ExecutionControl

if TYPE_CHECKING:
    from .head import Head
    from .local_execution import LocalExecution


class UnwindLoop(BaseException):
    """Unwinds Strands' loop for an error of ours: it turns exceptions into tool results, and we must not become one."""


@dataclass(frozen=True)
class CallContext:
    """Where a call is made: the execution, this process's part in it, the options that hold, and the call around it."""

    control: ExecutionControl
    local: LocalExecution
    options: Options
    outer: DurableCall | None = None

    @property
    def journal(self) -> Journal:
        """What is recorded of the execution."""
        return self.control.journal

    @property
    def is_in_node(self) -> bool:
        """Whether the call is that of a node: its invocation state is shared with other nodes."""
        return self.outer is not None and self.outer.adapter is not None


class DurableCall:
    """One call under way in this process. It holds the first error of ours in it, and in the calls inside it."""

    agent: Agent | None = None
    adapter: OrchestratorAdapter | None = None
    """What an orchestrator is reached by; None in a call of an agent."""
    head: Head | None = None

    def __init__(self, context: CallContext, record: CallRecord, progress: CallProgress, name: str) -> None:
        self.control, self.local, self.options = context.control, context.local, context.options
        self.outer, self.is_in_node = context.outer, context.is_in_node
        self.record, self.progress, self.name = record, progress, name
        self.is_open = False
        """True while it runs here."""
        self.invocation_state: dict[str, Any] | None = None
        self.made_in: StepContext | None = None if context.outer is None else current_context.get()
        """The step or hook of the outer call that made this one."""
        self.failure: Exception | None = None
        self.crash: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """The journal of the execution that it belongs to."""
        return self.control.journal

    @property
    def execution_id(self) -> str:
        """The execution that it belongs to."""
        return self.control.execution_id

    def context_of_call(self, phase: StepPhase) -> StepContext:
        """Return what stands for the call as a whole, beside its steps."""
        look = (self.record.attempt, self.record.attempt > 1)
        key = keys.call_key(len(self.progress.cycles) - 1, self.progress.passes)
        return StepContext(self, "call", self.name, phase, key, lambda: look)

    def enter_call(self, phase: StepPhase) -> None:
        """Stand in the hooks around the whole call, or around a pass of it."""
        current_context.set(self.context_of_call(phase))

    # Where it stands

    def _next_attempt(self) -> None:
        self.record = replace(self.record, status=ExecutionStatus.RUNNING, attempt=self.record.attempt + 1)

    def _reopen(self, answers: dict[str, Any] | None) -> None:
        """Record that the call resumes, as part of a transaction, and the answers that it resumes with."""
        if answers is not None:
            self.journal.insert_answers(self.record.call_id, answers)
        self.journal.reopen_call(self.record)

    def _move(self, phase: Phase, **changes: Any) -> None:
        if phase != self.progress.phase:
            move(self.execution_id, self.progress.phase, phase)  # type: ignore[arg-type]
        self._stay(phase=phase, **changes)

    def _stay(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)

    # How it ends

    def end(self, phase: Phase, result: AgentCallResult | OrchestratorCallResult) -> None:
        """Commit the end of the call, or that it waits for a person."""
        with self._ending(phase):
            self.control.end_call(self.record, STATUS[phase], result.to_json())

    def end_failed(self, error: Exception, result: OrchestratorCallResult | None = None) -> None:
        """Commit that the call failed: an exception left it, or it returned that it failed. It is resumed from its head."""
        move(self.execution_id, self.progress.phase, "failed")  # type: ignore[arg-type]
        with self._failing():
            self.journal.insert_failure(self.record.call_id, self.record.attempt, describe(error))
            self.control.end_call(self.record, ExecutionStatus.FAILED, None if result is None else result.to_json())

    def leave(self) -> None:
        """Commit where the caller left the call, if that is not in its steps."""

    def _ending(self, phase: Phase) -> AbstractContextManager[None]:
        """Commit where the call stands at its end, together with what the block writes."""
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
        """Return what asks for the turn of a step of this call; ``inside`` is what encloses it within the call."""
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
        """Wait until a step may run. If it may not, it has not begun: its intent is taken back, or it would be in doubt.

        Without ``starts`` it is a part of a step that runs, which goes on where nothing more starts.
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
                    raise  # its orchestrator has given it up: it has failed
                with self.journal.transaction("turn.withdraw"):
                    self.journal.withdraw(ticket.call_id, ticket.key, ticket.attempt)
                raise

    def holding(self, ticket: StepTicket) -> AbstractContextManager[None]:
        """Run a step whose turn it is."""
        return holding(self.control.gate, ticket)

    # Errors of ours

    def keep_error(self, error: BaseException) -> None:
        """Keep an error, here and in the calls around. The first one counts."""
        if isinstance(error, Exception):
            self.failure = self.failure or error
        else:
            self.crash = self.crash or error
        if self.outer is not None:
            self.outer.keep_error(error)

    def notice(self, death: BaseException) -> None:
        """Latch what ends the process, an interrupt from the keyboard for example: Strands may drop it and go on."""
        if not isinstance(death, (Exception, UnwindLoop, asyncio.CancelledError, GeneratorExit)):
            self.keep_error(death)
        if isinstance(
            death, (KeyboardInterrupt, SystemExit)
        ):  # from a task of Strands it would end the whole event loop
            raise UnwindLoop from death

    def fail(self, error: Exception) -> None:
        """Latch an error of ours, and unwind."""
        self.keep_error(error)
        raise UnwindLoop

    def check(self) -> None:
        """Unwind if an error of ours was latched where Strands could swallow it."""
        if self.failure is not None or self.crash is not None:
            raise UnwindLoop
        if self.outer is not None:
            self.outer.check()
        elif self.control.halt is not None:
            self.fail(self.control.halt)

    def is_cancelled(self, error: BaseException) -> bool:
        """Say whether a call ends because its execution was cancelled; with the root call that is recorded."""
        if error is not self.control.halt or not isinstance(error, ExecutionCancelledError):
            return False
        if self.outer is None:
            self.control.cancel()
        return True

    @property
    def error(self) -> BaseException | None:
        """What was latched."""
        return self.crash or self.failure or (None if self.outer is None else self.outer.error)


@contextmanager
def journal_guard(call: DurableCall, *, starts: bool = True) -> Iterator[None]:
    """Code of ours: its errors are latched and unwind the loop. Interrupts belong to Strands and pass.

    Once an error is latched nothing more starts, but what has run is still recorded, if that is possible.
    """
    if starts:
        call.check()
    try:
        yield
    except InterruptException:
        raise
    except Exception as error:
        call.fail(error)
    except BaseException as death:
        call.notice(death)
        raise
