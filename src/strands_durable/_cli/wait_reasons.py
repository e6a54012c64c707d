"""What executions wait for (a person, a worker that has their agent, or their script), and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .._dispatch.ports import DurableBackend
from .._records.executions import NO_AGENT, OTHER_VERSION, ExecutionRecord, ExecutionStatus
from .._records.printable import masked_text, one_line, printable
from .._records.views import Question, short
from .hints import is_dispatched
from .json_view import execution_json, questions_json
from .options import BackendTarget

S = ExecutionStatus
_WHOM = {
    "person": "a person",
    "worker": "a worker",
    "agent": "a worker that has its agent",
    "version": "a worker with its version of the agent",
    "script": "its script",
}
_FUNCTION = {
    "worker": "the function",
    "agent": "a function that has its agent",
    "version": "a function with its version of the agent",
}
"""Where the engine invokes functions instead."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """An execution that has not ended and that no process is running."""

    record: ExecutionRecord
    waits_for: Literal["person", "worker", "agent", "version", "script"]
    reason: str
    questions: tuple[Question, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as ``ls --waiting --json`` prints it."""
        more = {"waits_for": self.waits_for, "reason": self.reason, "questions": questions_json(self.questions)}
        return {**execution_json(self.record), **more}


async def waits(backend: DurableBackend, filters: dict[str, Any], limit: int | None) -> list[Wait]:
    """Return the waiting executions, the most recently changed first; ``filters`` are those of `DurableBackend.list`."""
    resting = await backend.list(**filters, status=[S.PENDING, S.SUSPENDED], limit=limit)
    running = await backend.list(**filters, status=S.RUNNING)
    unfinished = sorted((*resting, *running), key=lambda record: record.updated_at, reverse=True)
    waiting = [record for record in unfinished if record.owner is None]
    return [await _wait(backend, record) for record in waiting[:limit]]


async def _wait(backend: DurableBackend, record: ExecutionRecord) -> Wait:
    questions: tuple[Question, ...] = ()
    if record.status is S.SUSPENDED:
        detail = await (await backend.get(record.execution_id)).detail()
        questions = tuple(question for call in detail.calls if call.depth == 0 for question in call.questions)
    if questions:
        return Wait(
            record=record, waits_for="person", reason="it asked a question that has no answer yet", questions=questions
        )
    if not is_dispatched(record):
        return Wait(
            record=record, waits_for="script", reason="it was started inline; run its script again to resume it"
        )
    if record.note is None:
        reason = f"no worker with agent {record.agent!r} has claimed it"
        return Wait(record=record, waits_for="worker", reason=reason if backend.invoker is None else backend.invoker)
    first = record.note.partition("\n")[0]
    is_other = OTHER_VERSION in first
    return Wait(
        record=record,
        waits_for="agent" if first.startswith(NO_AGENT) else "version" if is_other else "worker",
        reason=record.note,
    )


def lines_of(wait: Wait, place: BackendTarget, ago: str) -> list[str]:
    """Return the lines that are printed for a waiting execution."""
    record = wait.record
    agent = one_line(record.agent or "unknown")
    whom = (_WHOM if place.invoker is None else {**_WHOM, **_FUNCTION})[wait.waits_for]
    lines = [f"{one_line(record.execution_id)}  {agent}  {record.status.value}  waits for {whom}  ({ago})"]
    if not wait.questions:
        return lines + [f"    {line}" for line in printable(masked_text(wait.reason)).splitlines()]
    for question in wait.questions:
        reason = short(question.reason)
        lines.append(f"    {one_line(question.name)}" + (f": {reason}" if reason else ""))
        lines += [f"      answers: {question.answers}"] if question.answers else []
        lines.append(f"      interrupt_id: {one_line(question.interrupt_id)}")
    return [*lines, f"    next: {place.command(f'respond {record.execution_id}')}"]
