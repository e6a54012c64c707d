"""What people and programs see of an execution: plain frozen data. Imports neither Strands nor a store.

Values are JSON data as recorded; large bytes are replaced by their size. Nothing is shortened or masked here: code that
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
from .origins import Origin
from .printable import masked_beginning, masked_text, one_line
from .questions import default_answer
from .spec import AgentSpec
from .steps import ShownStatus, StepKind

StepState = Literal[
    "running", "done", "error", "failed", "in doubt", "waiting for a person", "answered", "not storable", "discarded"
]
"""A step's status, combined with what became of its call. error: done, with an error result for the model."""

INPUT_LENGTH, ERROR_LENGTH = 160, 300
_LOOKED_AT = 4
_STEP_KEY = re.compile(r"(?P<ordinal>\d+)/(?:model|(?P<index>\d+):.*)~(?P<retry>\d+)", re.DOTALL)
_DIRECT_CALLS = re.compile(r"(?:/(?:before|running|after):direct\.[^/]*#\d+)+$")
_EFFECT_KEY = re.compile(r"(?P<enclosing>.*)/(?:before|running|after):", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """One attempt of one step: its input, its outcome and its usage."""

    key: str
    number: str
    """``2`` for the second model call, ``2.0`` for the first tool of its answer."""
    kind: StepKind
    name: str
    title: str
    """The input as recorded with the step, shortened."""
    input: Any
    """A tool's input; None for a model call, whose input is the conversation."""
    status: ShownStatus
    state: StepState
    attempt: int
    started_at: float | None
    """None for a running model call: its start is part of the head, which has no timestamp."""
    ended_at: float | None
    usage: dict[str, int] | None
    result: Any
    """A tool's result, or a model's message with its stop reason; None before its end."""
    error: str | None
    state_changes: dict[str, Any] | None = None
    """What a tool changed, as ``{"state": {"set": {path: value}, "deleted": [path]}}``; None if it changed nothing.
    Changes of the invocation state are under ``invocation_state``. A path has dots between its keys; no part is empty."""
    ordinal: int | None = None
    """How many steps of the execution had ended with it: its ``number`` in a stream, and what `ExecutionHandle.fork` takes.
    None before its end."""
    traceback: str | None = None
    """Where its error was raised, without secrets and without the values of variables; None if none is on record."""

    @property
    def in_doubt(self) -> bool:
        """True if it is unknown whether this attempt took effect."""
        return self.state == "in doubt"

    @property
    def duration_seconds(self) -> float | None:
        """How long it took; None until it has ended."""
        return None if self.ended_at is None or self.started_at is None else self.ended_at - self.started_at

    @property
    def label(self) -> str:
        """The step's name in a timeline: ``model 2``, ``2.0 book_hotel``."""
        return _label(self.kind, self.name, self.number)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The error that one attempt of a call failed with."""

    attempt: int
    error: str
    at: float
    traceback: str | None = None
    """Where it was raised, without secrets and without the values of variables; None if none is on record."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question that a suspended call waits for a person to answer."""

    interrupt_id: str
    name: str
    reason: Any
    answers: str | None
    """The answers that it accepts, if it is one of ours about a step in doubt; None if it accepts any."""
    expires_at: float | None = None
    """When it is answered with its default answer, in seconds since the epoch; None: never."""

    @property
    def default(self) -> Any:
        """The answer at its deadline: ``default`` of its reason, or false."""
        return default_answer(self.reason)


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """A question of some execution that waits for a person to answer."""

    execution_id: str
    agent: str | None
    question: Question
    asked_at: float
    """Since when it waits, in seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer to a question, who gave it and when."""

    interrupt_id: str
    name: str | None
    """The question's name; None if the script itself answered."""
    answer: Any
    by: str | None
    """Who answered: the ``by`` of `respond`, else user@host; None if the script itself answered."""
    at: float
    is_taken: bool
    """True if the call has used it; False while the call waits for a worker or for its script."""


@dataclass(frozen=True, kw_only=True)
class CallSummary:
    """One call of an agent, a graph or a swarm, with its steps."""

    kind: CallKind
    position: int
    scope: str
    member: str
    """What is called: an agent's id at the root, the name of a tool or the id of a node inside a call."""
    depth: int
    """0 for a root call, 1 for a call inside it, and so on."""
    input: Any
    is_redacted: bool
    """True if a redaction has overwritten the input, which is None then."""
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
    """Why part of it cannot be read, if so; the other fields hold what could be read."""


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
class Undelivered:
    """A notification of an execution that its receiver has not taken."""

    event: str
    at: float
    tries: int
    error: str | None
    """Why the last try failed; None before the first."""
    gave_up_at: float | None
    """When it was given up; None while it is tried again."""


@dataclass(frozen=True, kw_only=True)
class ExecutionDetail:
    """One execution with the calls of one of its runs, the current one unless another was asked for."""

    execution: ExecutionRecord
    run: int
    runs: tuple[RunSummary, ...]
    """All that have begun, the earliest first."""
    calls: tuple[CallSummary, ...]
    spec: AgentSpec | None = None
    """The agent that was dispatched, with the nodes and edges of a Graph; None for an inline execution."""
    undelivered: tuple[Undelivered, ...] = ()
    """Notifications that wait to be delivered, or were given up."""

    @property
    def origin(self) -> Origin | None:
        """What the execution was forked from; None if it is no fork."""
        return self.execution.origin

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
    """Return a step's number for people; a hook's retry is marked, a recorded effect has the number of its enclosing step."""
    if kind == "node":
        return str(visit_of(key) + 1)
    effect = _EFFECT_KEY.match(key) if kind == "effect" else None
    match = _STEP_KEY.fullmatch(_DIRECT_CALLS.sub("", effect["enclosing"]) if effect else key)
    if match is None:
        return "call"
    number = str(int(match["ordinal"])) + (f".{int(match['index'])}" if match["index"] else "")
    return number if match["retry"] == "0" else f"{number} retry {match['retry']}"


def short(value: Any, length: int = INPUT_LENGTH) -> str:
    """Return one printable line for ``value``, with anything that looks like a secret masked."""
    if value is None:
        return ""
    beginning, is_cut = masked_beginning(value, _LOOKED_AT * length)
    if not isinstance(beginning, str):  # masked again: names may be secrets, too
        beginning = masked_text(json.dumps(beginning, default=str, skipkeys=True, ensure_ascii=False))
    text = one_line(beginning)
    return text if len(text) <= length and not is_cut else f"{text[: length - 1]}…"
