"""Where the running code stands: the step, or the hook beside a step, that encloses it.

Carried by a context variable, which reaches async tools, sync tools in threads, and whatever they call. The variable is set
only while the agent's own code runs, never across a yield to the consumer of a stream.
"""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ._call import Call

StepPhase = Literal["before", "running", "after"]


@dataclass(frozen=True, kw_only=True)
class CurrentStep:
    """The step that the calling code belongs to."""

    execution_id: str
    key: str
    kind: Literal["model", "tool", "call"]
    name: str
    phase: StepPhase
    """``running`` inside the step itself, ``before`` and ``after`` in the hooks around it."""
    attempt: int
    """More than 1 after a crash or a retry inside this step."""
    idempotency_key: str
    """The same for every attempt of this step: hand it to payment and booking APIs."""
    replaying: bool
    """True in hooks around a step whose result comes from the journal."""


@dataclass(eq=False)
class Frame:
    """What encloses the running code, with the book-keeping that `current_step` does not show."""

    view: CurrentStep
    call: Call
    local_key: str
    occurrences: Counter[str] = field(default_factory=Counter)
    changes: dict[str, str | None] = field(default_factory=dict)
    """State keys written by this step: recorded values, None for deleted."""


frame: ContextVar[Frame | None] = ContextVar("strands_durable_frame", default=None)
enclosing: ContextVar[Call | None] = ContextVar("strands_durable_call", default=None)


def current_step() -> CurrentStep | None:
    """Return the step that encloses the caller, or None outside of a durable call."""
    found = frame.get()
    return found.view if found is not None else None
