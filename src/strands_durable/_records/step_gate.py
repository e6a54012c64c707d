"""The step gate: an engine that stores the journal elsewhere decides when a step may run.

On a file, a commit is all that is needed before a step. An engine that receives the rows must have stored them before the
step begins, and needs to know when it has ended. Imports neither Strands nor an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from .steps import StepKind


class StepTicket(NamedTuple):  # made for every step: a dataclass takes four times as long
    """A step that is about to run: everything committed before it must be durable first."""

    call_id: int
    key: str
    attempt: int
    kind: StepKind
    name: str
    path: str
    """Identifies the step within its execution."""
    title: str = ""
    """A short form of its input, for people."""
    until: float = 0.0
    """If set, no step runs: this is a timer that fires at this time, in seconds since the epoch."""
    may_repeat: bool = True
    """Whether the step simply runs again if it is in doubt; else it matters to know that it has not begun."""
    around: tuple[tuple[int, str], ...] = ()
    """The enclosing steps, by call and key: they cannot end before it."""


class StepGate(Protocol):
    """Decides when a step may start; implemented by engines that store the journal elsewhere."""

    async def wait(self, ticket: StepTicket) -> None:
        """Return when the step may run; raise a `DurableError` if it may not."""

    async def pause(self, until: float, what: str, around: tuple[tuple[int, str], ...]) -> None:
        """Return at ``until``, in seconds since the epoch; no process need stay alive for it. Raise as `wait` does."""

    def end(self, ticket: StepTicket) -> None:
        """Note that the step has ended and that its outcome is committed."""

    def note(self) -> None:
        """Note that something was committed between steps that must not wait for the next of them."""


@contextmanager
def holding(gate: StepGate, ticket: StepTicket) -> Iterator[None]:
    """Return the ticket when the step has ended, with or without an error."""
    try:
        yield
    finally:
        gate.end(ticket)
