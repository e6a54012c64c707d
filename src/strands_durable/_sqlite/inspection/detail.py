"""One execution with its calls and steps, as `strands-durable show` shows it."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..._records.calls import CallProgress
from ..._records.codec import peek
from ..._records.exceptions import TRACEBACK, summary
from ..._records.executions import ExecutionStatus
from ..._records.keys import model_key
from ..._records.spec import AgentSpec
from ..._records.steps import StepStatus, shown_changes, shown_result, shown_status, split_usage
from ..._records.views import (
    CallSummary,
    ExecutionDetail,
    Failure,
    RunSummary,
    StepState,
    StepSummary,
    Undelivered,
    number_of,
)
from ...errors import UnsupportedFeatureError
from ..blobs import read, shown
from ..checksums import refuse_incomplete_run
from ..respondents import answers_of
from .execution_rows import judging, words
from .listing import record_of
from .questions import questions_of

_CALLS = """
SELECT id, position, scope, status, attempt, input, result, started_at, taken_up_at, ended_at,
    (SELECT data FROM verified_heads h WHERE h.call = calls.id AND h.part = 'progress'), kind, member, parent
FROM verified_calls calls WHERE execution = ? AND run = ? ORDER BY id
"""
_RUNS = """
SELECT run, count(*), min(started_at), max(ended_at),
    (SELECT count(s.number) FROM calls i JOIN steps s ON s.call = i.id WHERE i.execution = c.execution AND i.run = c.run),
    (SELECT status FROM verified_calls l WHERE l.execution = c.execution AND l.run = c.run AND l.parent = 0
        ORDER BY l.id DESC LIMIT 1)
FROM verified_calls c WHERE execution = ? AND parent = 0 GROUP BY run ORDER BY run
"""
_STEPS = """
SELECT key, attempt, kind, name, title, status, started_at, ended_at, usage, result, error,
    attempt < max(attempt) OVER (PARTITION BY key), number
FROM verified_steps WHERE call = ? ORDER BY started_at, id
"""


def detail_of(
    connection: sqlite3.Connection, execution_id: str, run: int | None = None, *, is_alive: bool = False
) -> ExecutionDetail | None:
    """Return one execution with its calls and steps; None if it is not there.

    With ``is_alive``, its recorded owner runs, whatever can be seen of it from here.
    """
    listed = record_of(connection, execution_id, is_alive=is_alive)
    if listed is None:
        return None
    row_id, execution = listed
    runs = _runs(connection, row_id)
    shown_run = execution.run if run is None else run
    if run is not None and run not in {found.run for found in runs}:
        raise UnsupportedFeatureError(
            f"Run {run} of execution {execution_id!r}",
            f"the execution has runs {', '.join(str(each.run) for each in runs)}",
        )
    refuse_incomplete_run(connection, row_id, shown_run)
    is_owned = execution.owner is not None and shown_run == execution.run
    calls = connection.execute(_CALLS, (row_id, shown_run)).fetchall()
    found = tuple(_call(connection, row, depth, is_owned) for row, depth in _in_tree(calls))
    reasons = [reason for reason in (execution.unreadable, *(call.unreadable for call in found)) if reason is not None]
    execution = replace(execution, unreadable=reasons[0] if reasons else None)
    if execution.contents_removed_at is not None:
        found = tuple(replace(call, answers=()) for call in found)
    return ExecutionDetail(
        execution=execution,
        run=shown_run,
        runs=runs,
        calls=found,
        spec=_spec(connection, row_id),
        undelivered=_undelivered(connection, row_id),
    )


def _spec(connection: sqlite3.Connection, row_id: int) -> AgentSpec | None:
    row = connection.execute("SELECT spec FROM verified_dispatches WHERE execution = ?", (row_id,)).fetchone()
    with judging([]):
        return None if row is None or row[0] is None else AgentSpec.from_json(json.loads(shown(row[0])))
    return None


def _undelivered(connection: sqlite3.Connection, row_id: int) -> tuple[Undelivered, ...]:
    query = "SELECT status, at, tries, error, gave_up_at FROM verified_notices WHERE execution = ? ORDER BY at"
    return tuple(
        Undelivered(event=status.lower(), at=at, tries=tries, error=error, gave_up_at=gave_up_at)
        for status, at, tries, error, gave_up_at in connection.execute(query, (row_id,))
    )


def without_calls(connection: sqlite3.Connection, execution_id: str, reason: str) -> ExecutionDetail | None:
    """Return what can be said of an execution whose calls cannot be read; None if it is not there."""
    found = record_of(connection, execution_id)
    if found is None:
        return None
    execution = replace(found[1], unreadable=reason)
    return ExecutionDetail(execution=execution, run=execution.run, runs=(), calls=())


def _runs(connection: sqlite3.Connection, row_id: int) -> tuple[RunSummary, ...]:
    return tuple(
        RunSummary(
            run=run, status=ExecutionStatus(status), calls=calls, steps=steps, started_at=started_at, ended_at=ended_at
        )
        for run, calls, started_at, ended_at, steps, status in connection.execute(_RUNS, (row_id,))
    )


def _in_tree(calls: list[Any]) -> Iterator[tuple[Any, int]]:
    """Yield each call with its depth, a call inside another right after it."""
    inside: dict[int, list[Any]] = defaultdict(list)
    for row in calls:
        inside[row[-1]].append(row)
    ahead = [(row, 0) for row in reversed(inside[0])]
    while ahead:
        row, depth = ahead.pop()
        yield row, depth
        ahead += [(inner, depth + 1) for inner in reversed(inside[row[0]])]


def _call(connection: sqlite3.Connection, row: Any, depth: int, is_owned: bool) -> CallSummary:
    call_id, position, scope, status, attempt, given, result, started_at, taken_up_at, ended_at, progress, *rest = row
    kind, member, _ = rest
    known, outcome, where = ExecutionStatus.FAILED, {}, CallProgress()
    steps: list[StepSummary] = []
    damage: list[str] = []
    with judging(damage):
        known = ExecutionStatus(status)
    with judging(damage):
        outcome = {} if result is None else dict(json.loads(shown(result)))
    with judging(damage):
        where = CallProgress() if progress is None else CallProgress(**json.loads(progress))
    with judging(damage):
        peek(shown(given or "null"))
    alive_since = taken_up_at if is_owned and known is ExecutionStatus.RUNNING else float("inf")
    with judging(damage):
        rows = connection.execute(_STEPS, (call_id,)).fetchall()
        inputs = _tool_inputs(rows)
        steps = [_step(step, known, alive_since, inputs) for step in rows]
        if known is ExecutionStatus.RUNNING:
            steps += _running_model(where, steps, is_owned=is_owned)
    return CallSummary(
        kind=kind,
        position=position,
        scope=words(scope),
        member=words(member),
        depth=depth,
        input=_value(given),
        is_redacted=given is None,
        status=known,
        phase=where.phase,
        attempt=attempt,
        stop_reason=outcome.get("stop_reason") or outcome.get("status"),
        started_at=started_at,
        ended_at=ended_at,
        failures=_failures(connection, call_id),
        questions=questions_of(connection, call_id, outcome) if known is ExecutionStatus.SUSPENDED else (),
        answers=answers_of(connection, call_id),
        structured_output=outcome.get("structured_output"),
        steps=tuple(steps),
        unreadable=damage[0] if damage else None,
    )


def _failures(connection: sqlite3.Connection, call_id: int) -> tuple[Failure, ...]:
    rows = connection.execute("SELECT attempt, error, at FROM verified_failures WHERE call = ? ORDER BY at", (call_id,))
    return tuple(
        Failure(attempt=attempt, error=_error(error), at=at, traceback=_traceback(error)) for attempt, error, at in rows
    )


def _tool_inputs(rows: list[Any]) -> dict[str, Any]:
    """Return the inputs of tool calls by the beginning of their key: they stand in the answers that asked for them."""
    found: dict[str, Any] = {}
    for key, _, kind, _, _, status, _, _, _, result, *_ in rows:
        if kind == "model" and status == "done" and result is not None:
            answer = _value(result)
            message = answer.get("message") if isinstance(answer, dict) else None
            content = (message or {}).get("content") or ()
            uses = ((index, block["toolUse"]) for index, block in enumerate(content) if "toolUse" in block)
            found.update({f"{key.partition('/')[0]}/{index:03d}:": use.get("input") for index, use in uses})
    return found


def _input(kind: str, key: str, title: str, inputs: dict[str, Any]) -> Any:
    """Return what a step was called with: as recorded with the step, or as asked for where that is longer than a title."""
    try:
        return json.loads(title) if title else None
    except ValueError:
        asked = inputs.get(key.partition(":")[0] + ":") if kind == "tool" else None
        text = json.dumps(asked, ensure_ascii=False, default=str)
        return asked if text.startswith(title.removesuffix("…")) else title  # else a hook has changed it


def _step(row: Any, call: ExecutionStatus, alive_since: float, inputs: dict[str, Any]) -> StepSummary:
    key, attempt, kind, name, title, status, started_at, ended_at, usage, result, error, *rest = row
    is_superseded, number = rest
    value = _value(result)
    return StepSummary(
        key=key,
        number=number_of(key, kind),
        kind=kind,
        name=name,
        title=title,
        input=_input(kind, key, title, inputs),
        status=shown_status(status, has_error=error is not None),
        state=_state(status, error is not None, call, bool(is_superseded), started_at < alive_since),
        attempt=attempt,
        started_at=started_at,
        ended_at=ended_at,
        usage=_usage(usage),
        result=shown_result(kind, value),
        error=None if error is None else _error(error),
        state_changes=shown_changes(kind, value),
        ordinal=number,
        traceback=None if error is None else _traceback(error),
    )


def _usage(recorded: str | None) -> dict[str, int] | None:
    with judging([]):
        return None if recorded is None else split_usage(json.loads(recorded))[0]  # the file may have an earlier format
    return None


def _state(
    status: StepStatus, has_error: bool, call: ExecutionStatus, is_superseded: bool, is_left_behind: bool
) -> StepState:
    """Say what became of a step. What has started is in doubt when another attempt followed, or when its owner is no more."""
    if status == "started":
        return "in doubt" if is_superseded or is_left_behind else "running"
    if status == "interrupted":
        is_open = call is ExecutionStatus.SUSPENDED and not is_superseded
        return "waiting for a person" if is_open else "answered"
    if status == "done":
        return "error" if has_error else "done"
    return "not storable" if status == "unstorable" else status


def _running_model(where: CallProgress, steps: list[StepSummary], *, is_owned: bool) -> list[StepSummary]:
    """Return the model call that the head records: it has no row before it has an answer."""
    number = str(where.ordinal + 1)
    answered = any(step.kind == "model" and step.number == number and step.attempt >= where.attempt for step in steps)
    if answered or where.attempt == 0 or where.waits or (where.phase, where.resume) != ("model", "model"):
        return []
    under_way = StepSummary(
        key=model_key(where.ordinal + 1, 0),
        number=number,
        kind="model",
        name="model",
        title="",
        input=None,
        status="started",
        state="running" if is_owned else "in doubt",
        attempt=where.attempt,
        started_at=None,
        ended_at=None,
        usage=None,
        result=None,
        error=None,
    )
    return [under_way]


def _value(recorded: str | None) -> Any:
    """Return a recorded value as JSON data, with a few words in place of large bytes, or of what cannot be read."""
    try:
        return None if recorded is None else read(recorded)
    except ValueError:
        return f"<{len(recorded or '')} characters that cannot be read>"


def _error(recorded: str) -> str:
    damage: list[str] = []
    with judging(damage):
        record = peek(shown(recorded))
        text: str = record["text"] if record["type"] == "ToolResult" else summary(record)
        return text
    return f"(unreadable: {damage[0]})"


def _traceback(recorded: str) -> str | None:
    with judging([]):
        found = peek(shown(recorded)).get(TRACEBACK)
        return found if isinstance(found, str) else None
    return None
