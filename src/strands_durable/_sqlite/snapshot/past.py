"""The rows of an execution as they were when a number of its steps had ended.

A file keeps what heads were before they changed. The moment is the last one at which exactly that many steps had ended, so that
everything is there that the next step to end could find. What had begun by then and has no end is left out: a run that starts
from there starts it again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from ..._records.calls import CallProgress
from ..._records.change_sets import Row
from ..._records.executions import ExecutionStatus
from ..._records.keys import is_model_key, model_key
from ...errors import ForkError
from .. import deadlines, respondents
from .stored_rows import StoredRows

S = ExecutionStatus
Last = Literal["last"]
LAST: Last = "last"
"""The last finished step of the current run; its beginning, if none has finished."""
_ENDED = (S.FAILED.value, S.CANCELLED.value)
_FORGOTTEN = "How its calls stood then is not in the store any more, or was not recorded by the version that ran it."


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """When a number of steps had ended."""

    execution_id: str
    number: int
    first: int
    """How many had ended when the run began."""
    ended_at: float
    """When the last of them had."""
    until: float
    """When the next one did; infinite if it has not."""

    def failure(self, reason: str, hint: str = "") -> ForkError:
        """Return the error for a step from which there is nothing to make."""
        return ForkError(self.execution_id, reason, hint)


def as_of(rows: StoredRows, execution_id: str, at: int | Last) -> dict[str, list[Row]]:
    """Return the rows of the current run as they were when ``at`` steps had ended, or its last one had."""
    rows.refuse_incomplete()
    calls = rows.calls(rows.run)
    steps = rows.of_calls("steps", calls)
    moment = _moment(execution_id, at, steps, rows.numbers_before(), is_last_only=not rows.keeps_past)
    heads = _then(rows, "heads", "past_heads", calls, moment)
    progress = {row["call"]: CallProgress(**json.loads(row["data"])) for row in heads if row["part"] == "progress"}
    _refuse_forgotten(steps, progress, moment)
    kept = [row for row in calls if row["id"] in progress or not row["lineage"]]
    ended = [row for row in steps if row.get("number") is not None and row["number"] <= moment.number]
    if not kept:
        raise moment.failure("it has not begun", "Fork it once a step has ended.")
    ids = {row["id"] for row in kept}
    found = {
        "steps": ended,
        "heads": [row for row in heads if row["call"] in ids],
        "state": [row for row in _then(rows, "state", "past_state", calls, moment) if row["call"] in ids],
        "answers": [row for row in rows.of_calls("answers", kept) if row["at"] < moment.until],
        "replies": rows.of_calls("replies", kept) if moment.until == float("inf") else [],
        "messages": _seen(rows, kept, heads),
    }
    if rows.with_past:
        for table in ("past_heads", "past_state"):
            found[table] = [row for row in rows.of_calls(table, kept) if row["until"] <= moment.number]
    last = max((row["position"] for row in kept if row["parent"] == 0), default=0)
    then = [_call_then(row, progress.get(row["id"]), moment, is_last=row["position"] == last) for row in kept]
    status_of = {row["id"]: row["status"] for row in then}
    found["failures"] = [row for row in rows.of_calls("failures", kept) if _had_failed(row, status_of, moment)]
    parts = (_head_then(row, status_of[row["call"]], found) for row in found["heads"])
    found["heads"] = [row for row in parts if row is not None]
    return rows.of_moment(then, found)


def _moment(execution_id: str, at: int | Last, steps: list[Row], first: int, *, is_last_only: bool) -> _Moment:
    ends = {row["number"]: row["ended_at"] for row in steps if row.get("number") is not None}
    last = max(ends, default=first)
    number = last if at == LAST else first if at == 0 else at
    if at not in (0, LAST) and number not in ends:
        raise _unknown(execution_id, number, first, last)
    if is_last_only and number != last:
        reason = f"its engine does not keep step {number} apart from later ones"
        raise ForkError(execution_id, reason, f"Only the last finished step, {last}, can be forked there.")
    until = min((ended_at for other, ended_at in ends.items() if other > number), default=float("inf"))
    return _Moment(execution_id=execution_id, number=number, first=first, ended_at=ends.get(number, 0.0), until=until)


def _unknown(execution_id: str, at: int, first: int, last: int) -> ForkError:
    if 0 < at <= first:
        reason = f"step {at} belongs to an earlier run, and only the current one can be forked"
    else:
        reason = f"it has no finished step {at}"
    known = f"{first + 1} to {last}" if last > first else "none"
    return ForkError(execution_id, reason, f"Finished steps: {known}; 0 is the beginning.")


def _then(rows: StoredRows, table: str, past: str, calls: list[Row], moment: _Moment) -> list[Row]:
    """Return the rows of a table that were there then: those that have not changed since, and what others were."""
    here = rows.of_calls(table, calls)
    if not rows.keeps_past:
        return here
    found = [row for row in here if row.get("version", 0) <= moment.number]
    for row in rows.of_calls(past, calls):
        if row["since"] <= moment.number < row["until"]:
            found.append({name: cell for name, cell in row.items() if name not in ("since", "until")})
            found[-1]["version"] = row["since"]
    return rows.unversioned(found)


def _refuse_forgotten(steps: list[Row], progress: dict[int, CallProgress], moment: _Moment) -> None:
    """Raise if a head of that time is missing, or one that is there is of a later time."""
    for row in steps:
        number, where = row.get("number"), progress.get(row["call"])
        is_before = number is not None and number <= moment.number
        is_ahead = where is not None and not is_before and _is_behind(row, where)
        if (is_before and where is None) or is_ahead:
            raise moment.failure(f"the store has no record of step {moment.number} as a whole", _FORGOTTEN)


def _is_behind(step: Row, where: CallProgress) -> bool:
    """Return True if a head was written after a step had ended."""
    if step["kind"] == "node":
        return where.phase == "done" and step.get("number") is not None
    if step["kind"] != "model" or not is_model_key(step["key"]) or step["status"] != "done":
        return False
    return int(step["key"].split("/", 1)[0]) <= where.ordinal


def _seen(rows: StoredRows, calls: list[Row], heads: list[Row]) -> list[Row]:
    """Return the messages up to the last one that a call had seen; later ones came later."""
    lineage_of, last = {row["id"]: row["lineage"] for row in calls}, dict[int, int]()
    ranges = [(row["lineage"], json.loads(row["base"])) for row in calls]
    ranges += [
        (lineage_of[row["call"]], json.loads(row["data"]).get("ranges", []))
        for row in heads
        if row["part"] in ("progress", "closing") and row["call"] in lineage_of
    ]
    for lineage, found in ranges:
        last[lineage] = max([last.get(lineage, -1), *(bounds[1] for bounds in found)])
    return [row for row in rows.messages(last) if row["seq"] <= last[row["lineage"]]]


def _call_then(row: Row, progress: CallProgress | None, moment: _Moment, *, is_last: bool) -> Row:
    """Return the row of a call as it was: with its end if it had ended by then, otherwise as one that runs."""
    if progress is None:
        return _unended(row, S.PENDING)
    if progress.phase == "done":
        return row
    ended_at = row.get("ended_at", float("inf"))
    if not (is_last or row["parent"]) and row["status"] in _ENDED and ended_at < moment.until:
        return row  # another root call has followed it
    if progress.phase == "waiting" and _still_asks(row, ended_at, moment):
        return {**row, "status": S.SUSPENDED.value}
    if progress.phase == "waiting" and row["parent"] == 0:
        reason = f"it waited for a person after step {moment.number}, and what it asked is not on record any more"
        raise moment.failure(reason, "Fork it one step earlier: it asks again.")
    if row["parent"] and row["status"] == S.FAILED.value and ended_at <= moment.ended_at:
        return row
    return _unended(row, S.RUNNING)


def _still_asks(row: Row, ended_at: float, moment: _Moment) -> bool:
    """Return True if the result of a call holds what it asked then: it still waits, or was cancelled while it did."""
    if row.get("result") is None:
        return False
    is_last = moment.until == float("inf")
    return (row["status"] == S.SUSPENDED.value and ended_at < moment.until) or (
        row["status"] == S.CANCELLED.value and is_last
    )


def _had_failed(failure: Row, status_of: dict[int, str], moment: _Moment) -> bool:
    """Return True if a call had failed so by then; what a call that runs failed with after that step came later."""
    is_over = status_of[failure["call"]] in (S.FAILED.value, S.COMPLETED.value)
    return is_over or bool(failure["at"] <= moment.ended_at)


def _unended(row: Row, status: ExecutionStatus) -> Row:
    kept = {name: cell for name, cell in row.items() if name not in ("result", "ended_at")}
    return {**kept, "status": status.value}


def _head_then(row: Row, status: str, found: dict[str, list[Row]]) -> Row | None:
    """Return a part of a head as it is of use to a call of a status; None for one that is about what came later."""
    if row["part"] == "closing":
        return row if status == S.FAILED.value else None
    if row["part"] == deadlines.PART:
        return row if status == S.SUSPENDED.value else None
    if row["part"] == respondents.PART:
        known = {each["interrupt_id"] for table in ("answers", "replies") for each in found[table]}
        noted = {name: cell for name, cell in json.loads(row["data"]).items() if name in known}
        return {**row, "data": json.dumps(noted)} if noted else None
    if row["part"] == "progress" and status == S.RUNNING.value:
        return {**row, "data": _unasked(json.loads(row["data"]), row["call"], found["steps"])}
    return row


def _unasked(progress: dict[str, Any], call_id: int, steps: list[Row]) -> str:
    """Return a progress whose model call, if it has neither an answer nor an error, was not made: it is not in doubt."""
    where = CallProgress(**progress)
    key = model_key(where.ordinal + 1, where.retry)
    made = [row["attempt"] for row in steps if row["call"] == call_id and row["key"] == key]
    if where.resume == "model" and where.attempt > max(made, default=0):
        progress = {**progress, "waits": True}
    return json.dumps(progress)
