"""How the rows of an export stand to each other: numbers, runs, calls inside calls, and statuses that fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .._records.change_sets import ChangeSet, Row, rows_of
from .._records.executions import ExecutionStatus
from .export_columns import MisfitError

S = ExecutionStatus
_OPEN = (S.PENDING.value, S.RUNNING.value, S.SUSPENDED.value)
_UNIQUE = (
    ("calls", ("execution", "run", "parent", "place", "position")),
    ("steps", ("call", "key", "attempt")),
    ("failures", ("rowid",)),
)
"""Columns that no two rows share, besides the keys of the tables."""


def refuse_disorder(changes: ChangeSet) -> None:
    """Raise `MisfitError` unless the rows, each of which fits its table, can be those of one execution."""
    _refuse_twins(changes)
    _refuse_numbers(rows_of(changes, "steps"))
    _refuse_relations(rows_of(changes, "calls"))
    (execution,) = rows_of(changes, "executions")
    _refuse_runs(execution, rows_of(changes, "calls"))
    _refuse_status(execution, rows_of(changes, "calls"))


def _refuse_twins(changes: ChangeSet) -> None:
    for table, names in _UNIQUE:
        keys = [tuple(row[name] for name in names) for row in rows_of(changes, table) if names[0] in row]
        (twin, count), *_ = [*Counter(keys).most_common(1), (None, 0)]
        if count > 1:
            raise MisfitError(f"{count} rows of {table!r} have the same {', '.join(names)}: {twin}")


def _refuse_numbers(steps: list[Row]) -> None:
    """Refuse numbers of finished steps that are not their order: a fork and a stream name steps by them."""
    numbers = Counter(row["number"] for row in steps if row.get("number") is not None)
    wrong = next((number for number, count in numbers.items() if count > 1 or number < 1), None)
    if wrong is not None:
        raise MisfitError(f"several steps, or none, can have the number {wrong}")


def _refuse_relations(calls: list[Row]) -> None:
    """Refuse calls that refer to later ones: a call begins after the one that it is in, and after one whose log it shares."""
    known = {row["id"]: row for row in calls}
    for row in calls:
        if row["parent"] >= row["id"] or row["lineage"] > row["id"] or (row.get("state_of") or 0) >= row["id"]:
            raise MisfitError(f"call {row['id']} refers to a call that began after it")
        if row["parent"] and known[row["parent"]]["run"] != row["run"]:
            raise MisfitError(f"call {row['id']} is in another run than the call that it is in")


def _refuse_runs(execution: Row, calls: list[Row]) -> None:
    """Refuse runs that are missing: each begins when the one before has ended, and only the last may have no call yet."""
    runs = {row["run"] for row in calls if row["parent"] == 0}
    if runs and max(runs) != len(runs) - 1:
        raise MisfitError(f"its calls are of run {max(runs)}, and there are {len(runs)} runs")
    if execution["run"] not in {max(len(runs) - 1, 0), len(runs)}:
        raise MisfitError(f"it is in run {execution['run']}, and has calls of {len(runs)} runs")


def _refuse_status(execution: Row, calls: list[Row]) -> None:
    """Refuse a status of the execution that is not that of its calls; one that is queued may have calls of any status."""
    status, here = execution["status"], [row for row in calls if row["run"] == execution["run"]]
    last: Any = max((row for row in here if row["parent"] == 0), key=lambda row: int(row["position"]), default=None)
    if status == S.CANCELLED.value:
        fits = not any(row["status"] in _OPEN for row in here)
    else:
        fits = last is None or status in (S.PENDING.value, last["status"])
    if not fits:
        raise MisfitError(f"it is {status}, and its last call is {last['status'] if last else 'missing'}")
