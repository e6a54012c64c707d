"""What an agent did, as text that can be compared: what it sent to its models, and what came of it, step by step.

Random ids and clocks are left out. What differs between two runs is a unified diff for each step, the first one first.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..._journal.messages import read
from ..._records.calls import CallRecord
from ..._records.exceptions import summary
from ..._records.executions import ExecutionStatus
from ..._records.keys import is_model_key
from ..._records.outcomes import AgentCallResult, OrchestratorCallResult, VisitOutcome
from ..._records.steps import StepRecord
from .recording import RecordedCall, RecordedRun

S = ExecutionStatus
_MOST_LINES = 60
_CONTEXT = 2


@dataclass(frozen=True)
class Section:
    """A part of a transcript."""

    title: str
    at: float
    """When it happened, for the order."""
    lines: list[str]
    is_end: bool = False
    """Whether it shows how a call ended: a run that is cut off has no such part."""


def transcript(run: RecordedRun, played: set[str] | None = None, roots: set[int] | None = None) -> dict[str, Section]:
    """Return the parts of a run by their place.

    With ``played``, without what tools did that were not run; with ``roots``, only of these calls and those inside them.
    """
    found: dict[str, Section] = {}
    for call in run.calls:
        is_inside = any(call.scope.startswith(f"{place}/running@") for place in played or ())
        if not is_inside and (roots is None or call.root_id in roots):
            found.update(_of_agent(run, call) if call.record.kind == "agent" else _of_orchestrator(run, call))
    return found


def differences(recorded: dict[str, Section], now: dict[str, Section], *, is_cut: bool) -> list[str]:
    """Return a readable difference for each part that is not the same, the first one first.

    With ``is_cut``, the run now has stopped before its end: what is missing from there on is no difference.
    """
    places = [
        place for place in {**recorded, **now} if not (is_cut and (place not in now or _ends(place, recorded, now)))
    ]
    places.sort(key=lambda place: recorded[place].at if place in recorded else now[place].at + 1e12)
    found: list[str] = []
    for place in places:
        before, after = (run[place].lines if place in run else [] for run in (recorded, now))
        if before != after:
            found.append(f"{(recorded.get(place) or now[place]).title}\n{_diff(before, after)}")
    return list(dict.fromkeys(found))


def _ends(place: str, *runs: dict[str, Section]) -> bool:
    return any(place in run and run[place].is_end for run in runs)


def _diff(before: list[str], after: list[str]) -> str:
    lines = list(difflib.unified_diff(before, after, "recorded", "now", n=_CONTEXT, lineterm=""))
    more = len(lines) - _MOST_LINES
    return "\n".join(lines[:_MOST_LINES] + ([f"... {more} more lines"] if more > 0 else []))


# Agents


def _of_agent(run: RecordedRun, call: RecordedCall) -> Iterator[tuple[str, Section]]:
    record, journal, name = call.record, run.journal, _name(call)
    yield f"{call.place} input", Section(f"{name}: input", record.started_at, lines_of(record.input))
    answers = {step.key: step for step in call.steps if is_model_key(step.key) and step.status == "done"}
    last: Any = None
    for key, step in answers.items():
        config = None if step.config_id is None else journal.config(step.config_id)
        if config != last:
            title = f"{name}: model, system prompt and tools from model call {int(key[:6])} on"
            yield f"{call.place} {key} config", Section(title, step.started_at, lines_of(config))
        last = config
    yield (
        f"{call.place} calls",
        Section(
            f"{name}: number of model calls", record.ended_at or record.started_at, [str(len(answers))], is_end=True
        ),
    )
    yield from _messages(run, call, name)
    for step in call.steps:
        if step.kind == "tool":
            title = f"{name}: tool {step.name!r} of model call {int(step.key[:6])}"
            yield f"{call.place} {step.key}", Section(title, step.started_at, [f"{step.name} {step.title}"])
    yield from _ending(run, call, name)


def _messages(run: RecordedRun, call: RecordedCall, name: str) -> Iterator[tuple[str, Section]]:
    """Yield the messages of a conversation, once for all calls that share it: those before each answer, and the last ones."""
    record, journal = call.record, run.journal
    if record.lineage not in (0, record.call_id):
        return
    steps = {step.step_id: (each, step) for each in run.calls for step in each.steps}
    rows = journal.store.rows("messages", "seq, data", "lineage = ? ORDER BY seq", record.lineage)
    collected: list[str] = []
    for seq, data in rows:
        answered = _answered_by(data, steps)
        if answered is not None:
            its_call, step = answered
            title = f"{_name(its_call)}: messages before model call {int(step.key[:6])}"
            yield f"{its_call.place} {step.key} messages", Section(title, step.started_at, collected)
            collected = []
        collected = [*collected, *lines_of(_comparable(read(journal, record.lineage, [[seq, seq]])[0]))]
    title = f"{name}: messages at the end"
    yield f"{call.place} messages", Section(title, _end_of(run, record), collected, is_end=True)


def _answered_by(data: str, steps: dict[int, Any]) -> Any:
    form = json.loads(data)
    return steps.get(form["step"]) if "step" in form else None


def _comparable(message: Any) -> Any:
    """Return a message without figures and without ids, some of which Strands makes at random."""
    return {"role": message["role"], "content": [_without_id(block) for block in message["content"]]}


def _without_id(block: Any) -> Any:
    return {
        kind: {name: item for name, item in value.items() if name != "toolUseId"} if isinstance(value, dict) else value
        for kind, value in block.items()
    }


def _end_of(run: RecordedRun, record: CallRecord) -> float:
    ends = [
        each.record.ended_at or each.record.started_at for each in run.calls if each.record.lineage == record.lineage
    ]
    return max(ends, default=record.started_at)


def _ending(run: RecordedRun, call: RecordedCall, name: str) -> Iterator[tuple[str, Section]]:
    record, at = call.record, call.record.ended_at or call.record.started_at
    result = AgentCallResult.from_json(record.result)
    told = {
        "status": record.status.value,
        "stop_reason": result.stop_reason,
        "structured_output": result.structured_output,
        "request_state": result.state,
        "questions": _questions(result.interrupts),
        "error": _failure(run, record),
    }
    yield f"{call.place} result", Section(f"{name}: result", at, lines_of(told), is_end=True)
    if record.lineage:
        state = run.journal.state(record.call_id)
        yield f"{call.place} state", Section(f"{name}: state at the end", at, lines_of(state), is_end=True)
        progress, _ = run.journal.head(record.call_id)
        seen = [f"messages {first} to {last}" for first, last in progress.ranges]
        yield f"{call.place} seen", Section(f"{name}: messages in sight at the end", at, seen, is_end=True)


def _failure(run: RecordedRun, record: CallRecord) -> str | None:
    return summary(run.journal.last_failure(record.call_id)) if record.status is S.FAILED else None


def _questions(interrupts: Any) -> list[Any]:
    return [{"name": found["name"], "reason": found["reason"]} for found in interrupts or ()]


# Orchestrators


def _of_orchestrator(run: RecordedRun, call: RecordedCall) -> Iterator[tuple[str, Section]]:
    record, name = call.record, _name(call)
    yield f"{call.place} input", Section(f"{name}: input", record.started_at, lines_of(record.input))
    topology = run.journal.config(record.config_id) if record.config_id else None
    yield f"{call.place} topology", Section(f"{name}: nodes and edges", record.started_at, lines_of(topology))
    visits = {step.key: step for step in call.steps if step.kind == "node"}
    for step in visits.values():
        yield f"{call.place} {step.key}", Section(f"{name}: {step.key}", _ended(step), [_visit(step)], is_end=True)
    result = OrchestratorCallResult.from_json(record.result)
    told = {"status": result.status, "questions": _questions(result.interrupts), "error": _failure(run, record)}
    at = record.ended_at or record.started_at
    yield f"{call.place} result", Section(f"{name}: result", at, lines_of(told), is_end=True)


def _ended(step: StepRecord) -> float:
    return step.ended_at or step.started_at


def _visit(step: StepRecord) -> str:
    status = VisitOutcome.from_json(step.result if isinstance(step.result, dict) else None).status
    return f"{step.name} {status or step.status}"


# Text


def _name(call: RecordedCall) -> str:
    root = f"call {call.record.position + 1}"
    return root if not call.scope else f"{root}, {call.record.member} in {call.scope.rpartition('/')[2]}"


def lines_of(value: Any, indent: str = "") -> list[str]:
    """Return a value as lines; a text of several lines has one for each."""
    if isinstance(value, dict) and value:
        return [line for key in sorted(value, key=str) for line in _labelled(f"{indent}{key}:", value[key], indent)]
    if isinstance(value, (list, tuple)) and value:
        return [line for item in value for line in _labelled(f"{indent}-", item, indent)]
    text = value if isinstance(value, str) else repr(value)
    return [f"{indent}{line}" for line in text.splitlines() or [""]]


def _labelled(label: str, value: Any, indent: str) -> list[str]:
    is_short = not isinstance(value, (dict, list, tuple)) or not value
    text = value if isinstance(value, str) else repr(value)
    if is_short and "\n" not in text:
        return [f"{label} {text}"]
    return [label, *lines_of(value, f"{indent}  ")]
