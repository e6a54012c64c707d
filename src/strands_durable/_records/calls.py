"""A recorded call, as plain frozen data: what it was given, where it stands in its execution, and how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from .executions import ExecutionStatus

CallKind = Literal["agent", "graph", "swarm"]


@dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One call of an agent or orchestrator: its input, where it stands, and its end if it has one."""

    call_id: int
    parent: int
    """The call that made this one in one of its steps; 0 for a root call."""
    place: str
    """Where in its parent it was made; empty for a root call."""
    kind: CallKind
    member: str
    """What its agent is called within the parent: the name of a tool, the id of a node."""
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
    """Where a call stands: in which call, where in it, and the how many-th there."""

    parent: int
    place: str
    position: int
    member: str
    scope: str
    """The path of what encloses it: the agent at the root, and the steps from there on."""


@dataclass(frozen=True, kw_only=True)
class CallProgress:
    """The part of a head that changes with every step: where the call stands."""

    phase: str = "ready"
    """Where the call is, including waiting, done and failed."""
    resume: str = "ready"
    """Where it goes on: ready, model or tools."""
    ordinal: int = 0
    """Model answers that are part of the conversation."""
    retry: int = 0
    """Answers to the model call under way that a hook sent back."""
    attempt: int = 0
    """Which try the model call under way is; more than one after a crash or an error inside it."""
    waits: bool = False
    """True if that try surely has not begun: its turn had not come when its process left the execution."""
    cycles: list[int] = field(default_factory=lambda: [0])
    """Finished cycles of the loop, for the call and for each answered continuation of it (a leg)."""
    passes: int = 0
    """Passes over the loop that a hook asked for at the end of one, in this leg."""
    forced: Any = None
    """The tool choice that structured output forces on the model, once the model has ended without giving one."""
    in_loop: dict[str, list[int]] = field(default_factory=dict)
    """Runs and successes of each tool that is no step, as of the last model call."""
    ranges: list[list[int]] = field(default_factory=list)
    """The messages in sight, as inclusive ranges of the log."""

    def to_text(self) -> str:
        """Return the recorded form."""
        fields = {name: value for name, value in vars(self).items() if name != "waits" or value}
        return json.dumps(fields, separators=(",", ":"))
