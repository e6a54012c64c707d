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
from .._records.step_gate import Turn, taken
from .._records.steps import StepKind
from .._strands.agents import InterruptException
from ..errors import DurableError, ExecutionCancelledError
from .context import Frame, around, frame
from .control import ExecutionControl


class Abort(BaseException):
    """Unwinds Strands' loop for an error of ours: it turns exceptions into tool results, and we must not become one."""


class Latch:
    """Holds the first error of ours in a call, and in the calls inside it."""

    control: ExecutionControl
    record: CallRecord

    def __init__(self, outer: Latch | None) -> None:
        self.outer = outer
        self.made_in: Frame | None = None if outer is None else frame.get()
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

    def turn(
        self, key: str, attempt: int, kind: StepKind, name: str, title: str = "", inside: Frame | None = None
    ) -> Turn:
        """Return what asks for the turn of a step of this call; ``inside`` is what encloses it within the call."""
        record = self.record
        return Turn(
            call_id=record.call_id,
            key=key,
            attempt=attempt,
            kind=kind,
            name=name,
            path=path(record.scope, record.position, key),
            title=title,
            around=around(inside or self.made_in),
        )

    async def take(self, turn: Turn, *, starts: bool = True) -> None:
        """Wait until a step may run. If it may not, it has not begun: its intent is taken back, or it would be in doubt.

        Without ``starts`` it is a part of a step that runs, which goes on where nothing more starts.
        """
        turns = self.control.gate
        with ours(self, starts=False):
            try:
                if starts:
                    self.check()
                if turns is not None:
                    await turns.wait(turn)
            except (Abort, DurableError, asyncio.CancelledError) as why:
                if turn.kind == "node" and isinstance(why, asyncio.CancelledError):
                    raise  # its orchestrator has given it up: it has failed
                with self.journal.transaction("turn.withdraw"):
                    self.journal.withdraw(turn.call_id, turn.key, turn.attempt)
                raise

    def taken(self, turn: Turn) -> AbstractContextManager[None]:
        """Run a step whose turn it is."""
        return taken(self.control.gate, turn)

    def latch(self, error: BaseException) -> None:
        """Keep an error, here and in the calls around. The first one counts."""
        if isinstance(error, Exception):
            self.failure = self.failure or error
        else:
            self.crash = self.crash or error
        if self.outer is not None:
            self.outer.latch(error)

    def notice(self, death: BaseException) -> None:
        """Latch what ends the process, an interrupt from the keyboard for example: Strands may drop it and go on."""
        if not isinstance(death, (Exception, Abort, asyncio.CancelledError, GeneratorExit)):
            self.latch(death)
        if isinstance(
            death, (KeyboardInterrupt, SystemExit)
        ):  # from a task of Strands it would end the whole event loop
            raise Abort from death

    def fail(self, error: Exception) -> None:
        """Latch an error of ours, and unwind."""
        self.latch(error)
        raise Abort

    def check(self) -> None:
        """Unwind if an error of ours was latched where Strands could swallow it."""
        if self.failure is not None or self.crash is not None:
            raise Abort
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
def ours(latch: Latch, *, starts: bool = True) -> Iterator[None]:
    """Code of ours: its errors are latched and unwind the loop. Interrupts belong to Strands and pass.

    Once an error is latched nothing more starts, but what has run is still recorded, if that is possible.
    """
    if starts:
        latch.check()
    try:
        yield
    except InterruptException:
        raise
    except Exception as error:
        latch.fail(error)
    except BaseException as death:
        latch.notice(death)
        raise
