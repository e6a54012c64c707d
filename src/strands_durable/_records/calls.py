"""A recorded call, as plain frozen data: its input, its address in the execution, its progress and its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from operator import ne
from typing import Any, Literal

from .executions import ExecutionStatus
from .json_text import writer

CallKind = Literal["agent", "graph", "swarm"]


@dataclass(frozen=True, kw_only=True)
class CallMaker:
    """Which agent or orchestrator made a call, as far as finding the object needs it."""

    parent: int
    member: str


@dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One call of an agent or orchestrator: its input, its address in the execution, and its end, if it has ended."""

    call_id: int
    parent: int
    """The call that made this one in one of its steps; 0 for a root call."""
    place: str
    """Where in the parent it was made; empty for a root call."""
    kind: CallKind
    member: str
    """The agent's name within the parent: the name of a tool, the id of a node."""
    lineage: int
    run: int
    position: int
    scope: str
    status: ExecutionStatus
    attempt: int
    input: Any
    input_hash: str
    redacted: bool
    base: list[list[int]]
    config_id: int
    result: Any = None
    started_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class CallAddress:
    """Identifies a call within its execution: the parent call, the place in it, and the ordinal at that place."""

    parent: int
    place: str
    position: int
    member: str
    scope: str
    """The path of the enclosing steps, beginning with the agent at the root."""


@dataclass(frozen=True, kw_only=True)
class CallProgress:
    """The part of a head (the checkpoint of a call) that changes with every step."""

    phase: str = "ready"
    """The call's phase, including waiting, done and failed."""
    resume: str = "ready"
    """The phase in which it resumes: ready, model or tools."""
    ordinal: int = 0
    """How many model answers are part of the conversation."""
    retry: int = 0
    """How many answers to the current model call a hook has sent back."""
    attempt: int = 0
    """The attempt number of the current model call; above 1 after a crash or an error inside it."""
    waits: bool = False
    """True if that attempt has certainly not begun: its process left the execution before the step gate let it start."""
    cycles: list[int] = field(default_factory=lambda: [0])
    """Finished cycles of the loop, for the call and for each answered continuation of it (a leg)."""
    passes: int = 0
    """How many more passes over the loop a hook has asked for at the end of one, in this leg."""
    forced: Any = None
    """The tool choice that structured output forces on the model after it has ended without structured output."""
    in_loop: dict[str, list[int]] = field(default_factory=dict)
    """Runs and successes of each tool that is not a step, as of the last model call."""
    ranges: list[list[int]] = field(default_factory=list)
    """The visible messages, as inclusive ranges of the log."""

    def to_text(self) -> str:
        """Return the recorded form, without fields that have their initial value."""
        fields = vars(self)
        return _dump(dict(compress(fields.items(), map(ne, fields.values(), _INITIAL))))


_dump = writer()
_INITIAL = [*vars(CallProgress()).values()]
"""In the order of the fields, which every record has."""
