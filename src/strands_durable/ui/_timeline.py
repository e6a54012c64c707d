"""An execution as rows with bars: a lane for each call, and in it a row for each step, with a bar for each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._records.keys import path
from .._records.views import CallSummary, ExecutionDetail, StepSummary
from .._records.waits import Span, seconds_in, spans_of
from ._time_axis import Pause, TimeAxis
from ._wording import brief, line, slug, took

_LEAST_WIDTH = 0.5
_ASKING = ("waiting for a person", "answered")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One attempt of a step, or the life of a call."""

    x: float
    width: float
    state: str
    title: str


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """All attempts of one step."""

    place: str
    """Identifies the step within its execution."""
    label: str
    hint: str
    kind: str
    state: str
    attempts: int
    bars: tuple[Bar, ...]
    took: str
    tokens: str


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One call, and the rows of its steps."""

    anchor: str
    kind: str
    member: str
    depth: int
    status: str
    took: str
    tokens: str
    bar: Bar
    rows: tuple[StepRow, ...]


@dataclass(frozen=True, kw_only=True)
class DrawnPause:
    """A pause, and what was waited for."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A moment on the axis."""

    x: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What the template draws."""

    lanes: tuple[Lane, ...]
    pauses: tuple[DrawnPause, ...]
    ticks: tuple[Tick, ...]


def timeline_of(detail: ExecutionDetail, now: float) -> Timeline:
    """Return the timeline of an execution."""
    waits, waited = list(_waits(detail, now)), waits_of(detail)
    spans = [span for step in detail.steps if (span := _span(step, now)) is not None]
    axis = TimeAxis([*spans, *((end, end) for _, end in waits)])
    return Timeline(
        lanes=tuple(_lane(call, index, axis, now, waited) for index, call in enumerate(detail.calls)),
        pauses=tuple(DrawnPause(x=pause.x, width=pause.width, text=_why(pause, waits)) for pause in axis.pauses),
        ticks=tuple(Tick(x=x, text=_elapsed(seconds)) for seconds, x in axis.ticks()),
    )


def _elapsed(seconds: float) -> str:
    """Return the label of a tick, which is a round number of seconds or of tenths."""
    return took(seconds) if seconds >= 100 else f"{round(seconds, 2):g} s"


def step_place(call: CallSummary, step: StepSummary) -> str:
    """Return what identifies a step within its execution."""
    return path(call.scope, call.position, step.key)


def grouped(call: CallSummary) -> dict[str, list[StepSummary]]:
    """Return the attempts of each step of a call, by key."""
    found: dict[str, list[StepSummary]] = {}
    for step in call.steps:
        found.setdefault(step.key, []).append(step)
    return found


def tokens_of(steps: list[StepSummary] | tuple[StepSummary, ...]) -> tuple[int, int]:
    """Return the input and output tokens of all attempts."""
    usages = [step.usage for step in steps if step.usage and step.kind == "model"]
    return sum(each.get("inputTokens", 0) for each in usages), sum(each.get("outputTokens", 0) for each in usages)


def _span(step: StepSummary, now: float) -> tuple[float, float] | None:
    """Return when a step was running; of one in doubt only its start is known."""
    if step.started_at is None:
        return (now, now) if step.state == "running" else None
    if step.ended_at is not None:
        return step.started_at, max(step.started_at, step.ended_at)
    return step.started_at, now if step.state == "running" else step.started_at


def _waits(detail: ExecutionDetail, now: float) -> Iterator[tuple[float, float]]:
    """Yield from when to when steps have waited for a person."""
    for call in detail.calls:
        for attempts in grouped(call).values():
            for index, step in enumerate(attempts):
                if step.state in _ASKING and step.ended_at is not None:
                    later = attempts[index + 1].started_at if index + 1 < len(attempts) else None
                    yield step.ended_at, now if later is None else later


def _why(pause: Pause, waits: list[tuple[float, float]]) -> str:
    long = took(pause.end - pause.start)
    slack = 0.5
    is_person = any(start - slack <= pause.start and pause.end <= end + slack for start, end in waits)
    return f"{long}, waiting for a person" if is_person else f"{long}, nothing was running"


def _lane(call: CallSummary, index: int, axis: TimeAxis, now: float, waited: list[Span]) -> Lane:
    ended = call.ended_at if call.ended_at is not None else now
    start = axis.at(call.started_at)
    spent, made = tokens_of(call.steps)
    return Lane(
        anchor=f"call-{index}",
        kind=call.kind,
        member=line(call.member),
        depth=call.depth,
        status=call.status.value,
        took=_took(call.started_at, ended, waited),
        tokens=f"{spent}/{made}" if spent or made else "",
        bar=_bar(start, axis.at(ended), slug(call.status.value), f"{line(call.member)}: {call.status.value}"),
        rows=tuple(_row(call, attempts, axis, now) for attempts in grouped(call).values()),
    )


def _took(began: float, ended: float, waited: list[Span]) -> str:
    """Return how long a call took, and how long people took besides."""
    beside = seconds_in(waited, began, ended)
    return took(ended - began - beside) + (f" (waited {took(beside)})" if beside >= 0.05 else "")


def waits_of(detail: ExecutionDetail) -> list[Span]:
    """Return from when to when a run has waited for the answers that it got."""
    answered = [(each.at, call.started_at) for call in detail.calls if call.depth == 0 for each in call.answers]
    return spans_of(answered, (step.ended_at for step in detail.steps if step.ended_at is not None))


def _row(call: CallSummary, attempts: list[StepSummary], axis: TimeAxis, now: float) -> StepRow:
    last = attempts[-1]
    spent, made = tokens_of(attempts)
    return StepRow(
        place=step_place(call, last),
        label=line(last.label),
        hint=brief(last.title) if last.title else "",
        kind=last.kind,
        state=last.state,
        attempts=last.attempt,
        bars=tuple(_bars(attempts, axis, now)),
        took=took(last.duration_seconds),
        tokens=f"{spent}/{made}" if spent or made else "",
    )


def _bars(attempts: list[StepSummary], axis: TimeAxis, now: float) -> Iterator[Bar]:
    """Yield a bar for each attempt; what is in doubt may have lasted until the next one, as may the wait for a person."""
    for step, later in zip(attempts, [*attempts[1:], None], strict=True):
        start, end = _span(step, now) or (axis.end, axis.end)
        following = axis.end if later is None or later.started_at is None else later.started_at
        if step.state in _ASKING:
            said = "waiting for a person" if later is None else "until a person answered"
            yield _bar(axis.at(end), axis.at(following), "wait", f"{took(following - end)} {said}")
        note = f"attempt {step.attempt}, {step.state}" if step.attempt > 1 else step.state
        long = took(step.duration_seconds)
        last = following if step.in_doubt else end
        yield _bar(axis.at(start), axis.at(last), slug(step.state), f"{note}, {long}" if long else note)


def _bar(start: float, end: float, state: str, title: str) -> Bar:
    width = max(_LEAST_WIDTH, end - start)
    x = min(start, 100.0 - width)
    return Bar(x=round(x, 2), width=round(width, 2), state=state, title=title)
