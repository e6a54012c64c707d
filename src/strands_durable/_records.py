"""What is recorded, as plain frozen data: the vocabulary of the journal, the CLI and every engine. Knows no Strands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

ACCEPTED = "accepted_drift"
"""Among what a dispatched execution was given: who accepted another version of its agent, when, and which one took it up."""
NO_AGENT, OTHER_VERSION = "no agent ", " was dispatched as "
"""In a note: the worker that left the execution has no such agent, or another version of it."""
_BESIDE_USAGE = ("leg", "cycle", "latencyMs")


class ExecutionStatus(StrEnum):
    """What an execution or one of its calls is doing, as anybody may see it."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


CallKind = Literal["agent", "graph", "swarm"]
StepKind = Literal["model", "tool", "effect", "node"]
StepStatus = Literal["started", "done", "failed", "interrupted", "unstorable", "discarded"]
"""started: no result yet, in doubt if its owner is gone. failed: an attempt that ended in an error and may be followed by
another. interrupted: waits for a person. unstorable: it ran, but its result has no recorded form. discarded: a model answer
given up after a change of the agent."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One attempt of one step."""

    step_id: int
    key: str
    attempt: int
    kind: StepKind
    name: str
    status: StepStatus
    title: str = ""
    result: Any = None
    error: Any = None
    usage: dict[str, int] | None = None
    config_id: int | None = None
    started_at: float = 0.0
    ended_at: float | None = None


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
class Seat:
    """Where a call stands: in which call, where in it, and the how many-th there."""

    parent: int
    place: str
    position: int
    member: str
    scope: str
    """The path of what encloses it: the agent at the root, and the steps from there on."""


@dataclass(frozen=True, kw_only=True)
class Progress:
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


@dataclass(frozen=True, kw_only=True)
class ExecutionRecord:
    """One durable run, as `ls` shows it."""

    execution_id: str
    kind: str
    status: ExecutionStatus
    run: int
    calls: int
    steps: int
    owner: str | None
    created_at: float
    updated_at: float
    agent: str | None = None
    """The name of a dispatched agent; of an inline one the id."""
    note: str | None = None
    """Why a dispatched execution waits, if a worker has left it."""
    is_cancelling: bool = False
    """Somebody has asked to cancel it, and its owner has not stopped yet."""
    unreadable: str | None = None
    """Why it cannot be read, if it cannot: no worker runs it, and `rm` removes it. The other fields tell what could be read."""


def shown_usage(recorded: dict[str, int] | None) -> dict[str, int] | None:
    """Return what a step cost; beside it, the place in the loop is recorded, and that is not for readers."""
    return None if recorded is None else {name: count for name, count in recorded.items() if name not in _BESIDE_USAGE}


def shown_result(kind: StepKind, recorded: Any) -> Any:
    """Return what a step gave; beside a tool's result, what it changed is recorded, and that is not for readers."""
    return recorded.get("result", recorded) if kind == "tool" and isinstance(recorded, dict) else recorded


def answers_in(prompt: Any) -> dict[str, Any] | None:
    """Return the answers if ``prompt`` is a list of them."""
    if (
        not isinstance(prompt, list)
        or not prompt
        or not all(isinstance(b, dict) and "interruptResponse" in b for b in prompt)
    ):
        return None
    return {block["interruptResponse"]["interruptId"]: block["interruptResponse"]["response"] for block in prompt}
