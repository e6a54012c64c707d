"""Turns: an engine that keeps the journal elsewhere decides when a step may run.

On a file, a commit is all that is needed before a step. An engine that is given the rows has to have them before the step
begins, and wants to know when it has ended: it gives out turns. Knows no Strands and no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from .steps import StepKind


@dataclass(frozen=True, kw_only=True)
class StepTicket:
    """A step that is about to run: all that was committed before must outlive this process first."""

    call_id: int
    key: str
    attempt: int
    kind: StepKind
    name: str
    path: str
    """Names the step within its execution."""
    title: str = ""
    """A short form of its input, for people."""
    until: float = 0.0
    """Nothing runs in this turn: it is to come at this time, in seconds since the epoch."""
    may_repeat: bool = True
    """Whether the step simply runs again if it is in doubt; else it matters to know that it has not begun."""
    around: tuple[tuple[int, str], ...] = ()
    """The steps that it is inside of, by call and key: they cannot end before it."""


class StepGate(Protocol):
    """Whoever gives out turns."""

    async def wait(self, ticket: StepTicket) -> None:
        """Return when the step may run; raise an error of ours if it may not."""

    async def pause(self, until: float, what: str, around: tuple[tuple[int, str], ...]) -> None:
        """Return at a time, in seconds since the epoch, for which no process need be kept awake; raise as `wait` does."""

    def end(self, ticket: StepTicket) -> None:
        """Take note that the step has ended, and that what came out is committed."""


@contextmanager
def holding(gate: StepGate | None, ticket: StepTicket) -> Iterator[None]:
    """Give a turn back when the step has ended, however it did."""
    try:
        yield
    finally:
        if gate is not None:
            gate.end(ticket)
