"""Executions as people look at them: read from a store, without importing Strands and without changing anything.

Looking creates no file, not even the ones that SQLite keeps beside a store in use. What is read is given as it is recorded;
what prints it makes it safe to print.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..._records.calls import CallProgress
from ..._records.codec import peek
from ..._records.exceptions import summary
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.keys import model_key
from ..._records.questions import answers_to
from ..._records.steps import StepStatus, shown_result, split_usage
from ..._records.views import (
    CallSummary,
    ExecutionDetail,
    Failure,
    Question,
    RunSummary,
    StepState,
    StepSummary,
    number_of,
)
from ...errors import BackendUnavailableError, ExecutionNotFoundError, UnsupportedFeatureError
from .blobs import shown
from .checksums import DamageError, read_checked, refuse_incomplete_run
from .database import damaged, is_damage, path_of, translated
from .execution_rows import execution_of, judging, words
from .listing import Listing, row_of, rows_of
from .respondents import answers_of
from .store_file import version_of

T = TypeVar("T")
_BUSY_SECONDS = 10.0
_CALLS = """
SELECT id, position, scope, status, attempt, input, result, started_at, taken_up_at, ended_at,
    (SELECT data FROM verified_heads h WHERE h.call = calls.id AND h.part = 'progress'), kind, member, parent
FROM verified_calls calls WHERE execution = ? AND run = ? ORDER BY id
"""
_RUNS = """
SELECT run, count(*), min(started_at), max(ended_at),
    (SELECT count(*) FROM calls i JOIN steps s ON s.call = i.id WHERE i.execution = c.execution AND i.run = c.run),
    (SELECT status FROM verified_calls l WHERE l.execution = c.execution AND l.run = c.run AND l.parent = 0
        ORDER BY l.id DESC LIMIT 1)
FROM verified_calls c WHERE execution = ? AND parent = 0 GROUP BY run ORDER BY run
"""
_STEPS = """
SELECT key, attempt, kind, name, title, status, started_at, ended_at, usage, result, error,
    attempt < max(attempt) OVER (PARTITION BY key)
FROM verified_steps WHERE call = ? ORDER BY started_at, id
"""


class Catalog:
    """What a store holds, for people. Every look is one consistent moment; nothing is kept open in between."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        scheme, separator, _ = os.fspath(store).partition("://")
        if separator and scheme != "sqlite":
            raise UnsupportedFeatureError(
                f"A {scheme}:// store", "only a SQLite file can be read here", "Pass the path of a store file."
            )
        self.path = path_of(store)

    def executions(self, asked: Listing | None = None) -> list[ExecutionRecord]:
        """Return executions, the one that changed last first: all of them, or those that were asked for."""
        rows = self._look(lambda connection: rows_of(connection, asked or Listing()))
        return sorted(map(execution_of, rows), key=lambda found: found.updated_at, reverse=True)

    def execution(self, execution_id: str, run: int | None = None) -> ExecutionDetail:
        """Return one execution with its calls and steps, of its current run or of an earlier one.

        Of one whose rows are damaged, return what can be said of it without them, and why it cannot be read.
        """
        try:
            found = self._look(lambda connection: detail_of(connection, execution_id, run))
        except BackendUnavailableError as error:
            if not is_damage(error):
                raise
            reason = error.reason
            found = self._look(lambda connection: _without_calls(connection, execution_id, reason))
        if found is None:
            raise ExecutionNotFoundError(execution_id, str(self.path))
        return found

    def holds(self, execution_id: str) -> bool:
        """Return True if there is an execution with this id."""
        query = "SELECT 1 FROM executions WHERE execution_id = ?"
        return bool(self._look(lambda connection: connection.execute(query, (execution_id,)).fetchall()))

    def _look(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._looked(query)
        except sqlite3.Error as error:
            raise translated(self.path, error, _BUSY_SECONDS) from error
        except UnicodeDecodeError as error:  # in a name of the schema, which SQLite itself does not look at
            raise damaged(self.path, str(error)) from error
        except OSError as error:
            raise BackendUnavailableError(str(self.path), error.strerror or str(error)) from error

    def _looked(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Read a store at rest as the plain file it is, and make sure afterwards that it still was at rest."""
        refuse_unreadable(self.path)
        at_rest = _at_rest(self.path)
        if at_rest is not None:
            try:
                found = _read(self.path, "mode=ro&immutable=1", query)
            except sqlite3.Error:
                if _at_rest(self.path) == at_rest:
                    raise
            else:
                if _at_rest(self.path) == at_rest:
                    return found
        return _read(self.path, "mode=ro", query)


def refuse_unreadable(path: Path) -> None:
    """Raise if there is nothing at ``path`` to look at: most likely the path is wrong."""
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        hint = "Pass the path of an existing store, or run an agent with Durability on this path first."
        raise BackendUnavailableError(str(path), "the store does not exist yet", hint)
    if not path.is_file():
        raise BackendUnavailableError(str(path), "it is not a file", "Pass the path of a store.")
    version_of(path)


def _at_rest(path: Path) -> tuple[int, int, int] | None:
    """Return what a store at rest can be recognized by; None while a process has it open, or died with it open."""
    if any(os.path.exists(f"{path}{suffix}") for suffix in ("-wal", "-journal")):
        return None
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path, mode: str, query: Callable[[sqlite3.Connection], T]) -> T:
    with closing(
        sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    ) as connection:
        checks = read_checked(connection)
        connection.execute("BEGIN")
        connection.text_factory = _text
        try:
            return query(connection)
        except sqlite3.Error as error:
            if checks.damage is None and "user-defined function" not in str(error):
                raise
            raise DamageError(checks.damage or "a row holds bytes that are not text") from error


def _text(data: bytes) -> str | bytes:
    """A text that is damaged stays bytes, which are no JSON and no name: it must not hide the rest of the store."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def detail_of(connection: sqlite3.Connection, execution_id: str, run: int | None = None) -> ExecutionDetail | None:
    """Return one execution with its calls and steps; None if it is not there."""
    row = row_of(connection, execution_id)
    if row is None:
        return None
    execution, runs = execution_of(row), _runs(connection, row[0])
    shown_run = execution.run if run is None else run
    if run is not None and run not in {found.run for found in runs}:
        raise UnsupportedFeatureError(
            f"Run {run} of execution {execution_id!r}",
            f"the execution has runs {', '.join(str(each.run) for each in runs)}",
        )
    refuse_incomplete_run(connection, row[0], shown_run)
    is_owned = execution.owner is not None and shown_run == execution.run
    calls = connection.execute(_CALLS, (row[0], shown_run)).fetchall()
    found = tuple(_call(connection, row, depth, is_owned) for row, depth in _in_tree(calls))
    reasons = [reason for reason in (execution.unreadable, *(call.unreadable for call in found)) if reason is not None]
    execution = replace(execution, unreadable=reasons[0] if reasons else None)
    return ExecutionDetail(execution=execution, run=shown_run, runs=runs, calls=found)


def _without_calls(connection: sqlite3.Connection, execution_id: str, reason: str) -> ExecutionDetail | None:
    row = row_of(connection, execution_id)
    if row is None:
        return None
    execution = replace(execution_of(row), unreadable=reason)
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
        questions=_questions(connection, call_id, outcome) if known is ExecutionStatus.SUSPENDED else (),
        answers=answers_of(connection, call_id),
        structured_output=outcome.get("structured_output"),
        steps=tuple(steps),
        unreadable=damage[0] if damage else None,
    )


def _failures(connection: sqlite3.Connection, call_id: int) -> tuple[Failure, ...]:
    rows = connection.execute("SELECT attempt, error, at FROM verified_failures WHERE call = ? ORDER BY at", (call_id,))
    return tuple(Failure(attempt=attempt, error=_error(error), at=at) for attempt, error, at in rows)


def _questions(connection: sqlite3.Connection, call_id: int, outcome: dict[str, Any]) -> tuple[Question, ...]:
    """Return what a call waits for; an answer that it has not taken up yet is an answer."""
    answered = {
        row[0] for row in connection.execute("SELECT interrupt_id FROM verified_replies WHERE call = ?", (call_id,))
    }
    return tuple(
        Question(
            interrupt_id=found["id"],
            name=found["name"],
            reason=found.get("reason"),
            answers=answers_to(found["name"]),
        )
        for found in outcome.get("interrupts") or ()
        if found["id"] not in answered
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
    key, attempt, kind, name, title, status, started_at, ended_at, usage, result, error, is_superseded = row
    return StepSummary(
        key=key,
        number=number_of(key, kind),
        kind=kind,
        name=name,
        title=title,
        input=_input(kind, key, title, inputs),
        status=status,
        state=_state(status, error is not None, call, bool(is_superseded), started_at < alive_since),
        attempt=attempt,
        started_at=started_at,
        ended_at=ended_at,
        usage=_usage(usage),
        result=shown_result(kind, _value(result)),
        error=None if error is None else _error(error),
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
    if answered or where.attempt == 0 or (where.phase, where.resume) != ("model", "model"):
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
        return None if recorded is None else json.loads(shown(recorded))
    except ValueError:
        return f"<{len(recorded or '')} characters that cannot be read>"


def _error(recorded: str) -> str:
    damage: list[str] = []
    with judging(damage):
        record = peek(shown(recorded))
        text: str = record["text"] if record["type"] == "ToolResult" else summary(record)
        return text
    return f"(unreadable: {damage[0]})"
