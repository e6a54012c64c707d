"""The finished tool calls of a whole run, in the order in which they ended, and the calls of agents that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..._records import keys
from ..._records.calls import CallKind
from ..._records.outcomes import ModelAnswer, ToolOutcome
from ..._records.steps import StepRecord
from .journal import Journal


@dataclass(frozen=True, kw_only=True)
class MadeBy:
    """The call of an agent or orchestrator in which something was done, as far as finding its object needs it."""

    call_id: int
    parent: int
    kind: CallKind
    member: str


@dataclass(frozen=True, kw_only=True)
class ToolRow:
    """A tool call that has succeeded."""

    step_id: int
    call_id: int
    key: str
    name: str


_STEPS = """
SELECT s.id, s.call, s.key, s.name FROM calls c JOIN steps s ON s.call = c.id
WHERE c.execution = ? AND c.run = ? AND s.kind = 'tool' AND s.status = 'done' AND s.error IS NULL AND s.loop IS NULL
ORDER BY s.number
"""
"""Without an error, and the tool itself has run: neither a middleware nor a person has given the result in its place."""


def finished_tools(journal: Journal) -> list[ToolRow]:
    """Return the tool calls of the current run that have succeeded, without their results."""
    rows = journal.store.read(_STEPS, journal.lease.row_id, journal.run)
    return [ToolRow(step_id=row[0], call_id=row[1], key=row[2], name=row[3]) for row in rows]


def calls_of_run(journal: Journal) -> dict[int, MadeBy]:
    """Return the calls of the current run by their ids."""
    sql = "SELECT id, parent, kind, member FROM calls WHERE execution = ? AND run = ?"
    rows = journal.store.read(sql, journal.lease.row_id, journal.run)
    return {row[0]: MadeBy(call_id=row[0], parent=row[1], kind=row[2], member=row[3]) for row in rows}


def input_of(journal: Journal, row: ToolRow, step: StepRecord) -> Any:
    """Return the input of a finished tool call; None if nothing knows it any more.

    A call that was to be made again has it in its outcome. Else it is in the answer that asked for the call.
    """
    if step.result is None:
        return None
    rerun = ToolOutcome.from_json(step.result).rerun
    if rerun is not None:
        return rerun["input"]
    ordinal, index = keys.place_of(row.key)
    answers = [found for found in journal.latest(row.call_id, f"{ordinal:06d}/model~").values() if found.result]
    for found in reversed(answers):
        content = ModelAnswer.from_json(found.result).message["content"]
        if found.status == "done" and index < len(content) and "toolUse" in content[index]:
            return content[index]["toolUse"]["input"]
    return None
