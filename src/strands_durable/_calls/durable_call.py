"""Errors of ours on their way out: latched where Strands could swallow them, raised from our own frame.

Strands turns an exception inside a tool into a result for the model, one inside a node into a failed node, and drops what is
no Exception in a parallel tool. An error of ours must become none of these: it is latched on the call and on every call
around it, nothing more starts, and the root call raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from .._journal.sqlite.journal import Journal
from .._records.calls import CallRecord
from .._records.keys import path
from .._records.step_gate import StepTicket, holding
from .._records.steps import StepKind
from .._strands.agents import InterruptException
from ..errors import DurableError, ExecutionCancelledError
from .context import StepContext, current_context, enclosing_steps


class UnwindLoop(BaseException):
    """Unwinds Strands' loop for an error of ours: it turns exceptions into tool results, and we must not become one."""


class DurableCall:
    """Holds the first error of ours in a call, and in the calls inside it."""

    journal: Journal
    record: CallRecord

    def __init__(self, outer: DurableCall | None) -> None:
        self.outer = outer
        self.made_in: StepContext | None = None if outer is None else current_context.get()
        """The step or hook of the outer call that made this one."""
        self.failure: Exception | None = None
        self.crash: BaseException | None = None

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
            path=path(record.scope, record.position, key),
            title=title,
            may_repeat=may_repeat,
            around=enclosing_steps(inside or self.made_in),
        )

    async def wait_for(self, ticket: StepTicket, *, starts: bool = True) -> None:
        """Wait until a step may run. If it may not, it has not begun: its intent is taken back, or it would be in doubt.

        Without ``starts`` it is a part of a step that runs, which goes on where nothing more starts.
        """
        gate = self.journal.lease.gate
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
        return holding(self.journal.lease.gate, ticket)

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
        elif self.journal.lease.halt is not None:
            self.fail(self.journal.lease.halt)

    def is_cancelled(self, error: BaseException) -> bool:
        """Say whether a call ends because its execution was cancelled; with the root call that is recorded."""
        halt = self.journal.lease.halt
        if error is not halt or not isinstance(error, ExecutionCancelledError):
            return False
        if self.outer is None:
            with self.journal.transaction("call.cancelled"):
                self.journal.cancel()
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
