"""What a damaged store has lost of each execution, and whether that can still be resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..._records.verification import DamagedExecution, Problem
from .index import Index

_ASIDE = {"past_heads", "past_state", "failures", "chunks", "tags", "notices", "uses", "holds", "passes"}
"""Tables that no resume reads."""
_WORDS = {
    "executions": "its status and times", "dispatches": "what it was dispatched with", "heads": "where its calls are",
    "state": "state of its agents", "messages": "messages of its conversation", "calls": "the record of a call",
    "answers": "answers of people", "replies": "answers of people", "failures": "what it failed with", "tags": "its tags",
    "past_heads": "what a fork at an earlier step needs", "past_state": "what a fork at an earlier step needs",
    "chunks": "text that was streamed", "notices": "reports that were to be delivered", "blobs": "large bytes, such as images",
    "configs": "what its agents were made of",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row that is not as it was written."""

    table: str
    execution: int | None
    cells: dict[str, Any]


def damaged_executions(index: Index, problems: Iterable[Problem], bad: Iterable[Row]) -> tuple[DamagedExecution, ...]:
    """Return each execution that a problem is about, in the order of their ids."""
    by_id: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        if problem.execution_id is not None:
            by_id[problem.execution_id].append(problem)
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in bad:
        execution_id = index.id_of(row.execution)
        if execution_id is not None:
            rows[execution_id].append(row)
    statuses = {index.id_of(row_id): known.status for row_id, known in index.executions.items()}
    return tuple(
        _damaged(index, execution_id, str(statuses[execution_id]), by_id[execution_id], rows[execution_id])
        for execution_id in sorted(by_id)
    )


def _damaged(
    index: Index, execution_id: str, status: str, problems: list[Problem], rows: list[Row]
) -> DamagedExecution:
    return DamagedExecution(
        execution_id=execution_id,
        status=status,
        problems=tuple(problems),
        lost=tuple(_lost(problems, rows)),
        can_resume=None if status in ("COMPLETED", "CANCELLED") else not _is_needed(index, problems, rows),
    )


def _is_needed(index: Index, problems: list[Problem], rows: list[Row]) -> bool:
    """Return whether a resume reads something that is damaged."""
    counted = {"count"}  # a count that is wrong is noticed by a resume, which then stops
    if any(problem.check not in ("checksum", "cipher", "bytes", *counted) for problem in problems):
        return True
    if any(problem.check in counted and problem.table in ("calls", "executions") for problem in problems):
        return True
    return any(row.table not in _ASIDE and (row.table != "steps" or _is_cited(index, row)) for row in rows)


def _is_cited(index: Index, row: Row) -> bool:
    """Return whether a step is part of the conversation, or may be of the current turn."""
    cited = {step for steps in index.cited.values() for step in steps}
    return row.cells.get("id") in cited or row.cells.get("status") not in ("failed", "discarded")


def _lost(problems: list[Problem], rows: list[Row]) -> Iterator[str]:
    numbers = sorted({row.cells["number"] for row in rows if row.table == "steps" and _is_number(row.cells["number"])})
    for first, last in _runs(numbers):
        yield f"step {first} cannot be read" if first == last else f"steps {first} to {last} cannot be read"
    if any(row.table == "steps" and not _is_number(row.cells["number"]) for row in rows):
        yield "a step that had not ended cannot be read"
    tables = {row.table for row in rows} | {problem.table for problem in problems if problem.check == "reference"}
    for words in dict.fromkeys(_WORDS[table] for table in _WORDS if table in tables):
        yield f"{words} cannot be read"


def _is_number(found: Any) -> bool:
    return isinstance(found, int)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of numbers that follow each other: first and last."""
    begin = None
    for place, number in enumerate(numbers):
        begin = number if begin is None else begin
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            yield begin, number
            begin = None
