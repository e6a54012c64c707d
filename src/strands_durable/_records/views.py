"""What people and programs see of an execution: plain frozen data. Knows no Strands and no store.

Values are JSON data as they are recorded; large bytes are named by their number. Nothing is shortened or masked here: what
prints foreign text uses `short` or `printable`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from .calls import CallKind
from .executions import ExecutionRecord, ExecutionStatus
from .keys import visit_of
from .printable import masked, masked_text, one_line
from .steps import StepKind, StepStatus

StepState = Literal[
    "running", "done", "error", "failed", "in doubt", "waiting for a person", "answered", "not storable", "discarded"
]
"""A step's status in the light of what became of its call. error: done, and its result tells the model of an error."""

INPUT_LENGTH, ERROR_LENGTH = 160, 300
_LOOKED_AT = 4
_STEP_KEY = re.compile(r"(?P<ordinal>\d+)/(?:model|(?P<index>\d+):.*)~(?P<retry>\d+)", re.DOTALL)
_EFFECT_KEY = re.compile(r"(?P<enclosing>.*)/(?:before|running|after):", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """One attempt of one step: what it was, what became of it, what it cost."""

    key: str
    number: str
    """``2`` for the second model call, ``2.0`` for the first tool of its answer."""
    kind: StepKind
    name: str
    title: str
    """The input as recorded with the step, shortened."""
    input: Any
    """What a tool was called with; None for a model call, whose input is the conversation."""
    status: StepStatus
    state: StepState
    attempt: int
    started_at: float | None
    """None for a model call under way: its start is part of the head, which has no clock."""
    ended_at: float | None
    usage: dict[str, int] | None
    result: Any
    """What it gave: a tool's result, a model's message with its stop reason; None before its end."""
    error: str | None

    @property
    def in_doubt(self) -> bool:
        """Whether nobody can say if this attempt took effect."""
        return self.state == "in doubt"

    @property
    def duration_seconds(self) -> float | None:
        """How long it took, once it has ended."""
        return None if self.ended_at is None or self.started_at is None else self.ended_at - self.started_at

    @property
    def label(self) -> str:
        """The step's name in a timeline: ``model 2``, ``2.0 book_hotel``."""
        return _label(self.kind, self.name, self.number)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What one attempt of a call failed with."""

    attempt: int
    error: str
    at: float


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a suspended call waits for a person to answer."""

    interrupt_id: str
    name: str
    reason: Any
    answers: str | None
    """Which answers it takes, if it is one of ours about a step in doubt; None if it takes any."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What was answered to a question, by whom and when."""

    interrupt_id: str
    name: str | None
    """The question's; None where the script itself answered."""
    answer: Any
    by: str | None
    """Who answered: as given to `respond`, else user@host; None where the script itself answered."""
    at: float
    is_taken: bool
    """Whether the call has taken it up; False while it waits for a worker or for its script."""


@dataclass(frozen=True, kw_only=True)
class CallSummary:
    """One call of an agent, a graph or a swarm: where it stands, and its steps."""

    kind: CallKind
    position: int
    scope: str
    member: str
    """What is called: an agent's id at the root, the name of a tool or the id of a node inside."""
    depth: int
    """0 for a root call, 1 for a call inside it, and so on."""
    input: Any
    is_redacted: bool
    """Whether the input was overwritten by a redaction; it is None then."""
    status: ExecutionStatus
    phase: str
    attempt: int
    stop_reason: str | None
    started_at: float
    ended_at: float | None
    failures: tuple[Failure, ...]
    questions: tuple[Question, ...]
    answers: tuple[Answered, ...]
    structured_output: Any
    steps: tuple[StepSummary, ...]
    unreadable: str | None = None
    """Why something of it cannot be read, if so; the other fields tell what could be."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run of an execution that was started over under its id."""

    run: int
    status: ExecutionStatus
    calls: int
    steps: int
    started_at: float
    ended_at: float | None


@dataclass(frozen=True, kw_only=True)
class ExecutionDetail:
    """One execution with the calls of one of its runs, the current one unless another was asked for."""

    execution: ExecutionRecord
    run: int
    runs: tuple[RunSummary, ...]
    """All that have begun, the first one first."""
    calls: tuple[CallSummary, ...]

    @property
    def steps(self) -> tuple[StepSummary, ...]:
        """The steps of all calls."""
        return tuple(step for call in self.calls for step in call.steps)


def label_of(kind: StepKind, name: str, key: str) -> str:
    """Return a step's name in a timeline, by its key."""
    return _label(kind, name, number_of(key, kind))


def _label(kind: StepKind, name: str, number: str) -> str:
    if kind == "model":
        return f"model {number}"
    if kind == "node":
        return name if number == "1" else f"{name} (visit {number})"
    return f"{number} > {name}" if kind == "effect" else f"{number} {name}"


def number_of(key: str, kind: StepKind) -> str:
    """Return a step's place for people; a hook's retry is marked, a recorded effect has the place of what encloses it."""
    if kind == "node":
        return str(visit_of(key) + 1)
    effect = _EFFECT_KEY.match(key) if kind == "effect" else None
    found = _STEP_KEY.fullmatch(effect["enclosing"] if effect else key)
    if found is None:
        return "call"
    number = str(int(found["ordinal"])) + (f".{int(found['index'])}" if found["index"] else "")
    return number if found["retry"] == "0" else f"{number} retry {found['retry']}"


def short(value: Any, length: int = INPUT_LENGTH) -> str:
    """Return one printable line that stands for ``value``, without what looks like a secret."""
    if not isinstance(value, str):
        value = "" if value is None else json.dumps(masked(value), default=str, skipkeys=True, ensure_ascii=False)
    text = one_line(masked_text(value[: _LOOKED_AT * length]))
    return text if len(text) <= length else text[: length - 1] + "…"
