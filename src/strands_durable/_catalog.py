"""Executions as people look at them: read from a store, without importing Strands and without changing anything.

Looking creates no file, not even the ones that SQLite keeps beside a store in use. Texts that came from users, models and
tools are shortened, freed of control characters, and masked where they look like a secret.

Left out on purpose: results and messages. Who needs them runs the agent again: a finished call returns them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from ._blobs import shown
from ._codec import decode
from ._failure import summary
from ._keys import model_key
from ._owner import Owner
from ._records import ExecutionRecord, ExecutionStatus, Progress, StepStatus, shown_usage
from ._store import damaged, path_of, translated
from ._storefile import version_of
from ._summaries import (
    ERROR_LENGTH,
    CallSummary,
    ExecutionDetail,
    Failure,
    Question,
    StepState,
    StepSummary,
    number_of,
    short,
)
from ._sums import DamageError, read_checked, refuse_incomplete_list, refuse_incomplete_run
from .errors import BackendUnavailableError, ExecutionNotFoundError, UnsupportedFeatureError

T = TypeVar("T")
_BUSY_SECONDS = 10.0
_EXECUTIONS = """
SELECT e.id, e.execution_id, e.kind, e.status, e.run, e.created_at, e.updated_at, e.owner, e.lease_until,
    (SELECT count(*) FROM calls c WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0),
    (SELECT count(*) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run),
    coalesce(last.ended_at, last.started_at, 0),
    coalesce(d.agent, (SELECT c.scope FROM verified_calls c WHERE c.execution = e.id AND c.parent = 0 ORDER BY c.id LIMIT 1)),
    d.note, e.cancel_asked_at IS NOT NULL AND e.status IN ('PENDING', 'RUNNING', 'SUSPENDED')
FROM verified_executions e LEFT JOIN verified_dispatches d ON d.execution = e.id LEFT JOIN verified_steps last ON last.id =
    (SELECT max(s.id) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run)
"""
_CALLS = """
SELECT id, position, scope, status, attempt, input, result, started_at, taken_up_at, ended_at,
    (SELECT data FROM verified_heads h WHERE h.call = calls.id AND h.part = 'progress'), kind, member, parent
FROM verified_calls calls WHERE execution = ? AND run = ? ORDER BY id
"""
_STEPS = """
SELECT key, attempt, kind, name, title, status, started_at, ended_at, usage, error,
    attempt < max(attempt) OVER (PARTITION BY key)
FROM verified_steps WHERE call = ? ORDER BY started_at, id
"""


class Catalog:
    """What a store holds, for people. Every look is one consistent moment; nothing is kept open in between."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        scheme, separator, _ = os.fspath(store).partition("://")
        if separator and scheme != "sqlite":
            raise UnsupportedFeatureError(
                f"A {scheme}:// store", "executions are read from a SQLite file here", "Pass the path of a store file."
            )
        self.path = path_of(store)

    def executions(self) -> list[ExecutionRecord]:
        """Return all executions, the one that changed last first."""
        rows = self._look(_listed)
        return sorted(map(_execution, rows), key=lambda found: found.updated_at, reverse=True)

    def execution(self, execution_id: str) -> ExecutionDetail:
        """Return one execution with its calls and steps."""
        found = self._look(lambda connection: detail_of(connection, execution_id))
        if found is None:
            raise ExecutionNotFoundError(execution_id, str(self.path))
        return found

    def holds(self, execution_id: str) -> bool:
        """Say whether there is an execution with this id."""
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
        hint = "Pass the path of another one, or run an agent with Durability on this one first."
        raise BackendUnavailableError(str(path), "there is no store yet", hint)
    if not path.is_file():
        raise BackendUnavailableError(str(path), "it is not a file", "Pass the path of a store.")
    version_of(path)


def _at_rest(path: Path) -> tuple[int, int, int] | None:
    """Return what a store at rest can be recognized by; None while somebody has it open, or died with it open."""
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
        try:
            return query(connection)
        except sqlite3.Error as error:
            if checks.damage is None:
                raise
            raise DamageError(checks.damage) from error


def _listed(connection: sqlite3.Connection) -> list[Any]:
    refuse_incomplete_list(connection)
    return connection.execute(_EXECUTIONS).fetchall()


def _execution(row: Any) -> ExecutionRecord:
    _, execution_id, kind, status, run, created_at, updated_at, owner, lease_until, calls, steps, last, *rest = row
    agent, note, is_cancelling = rest
    return ExecutionRecord(
        execution_id=execution_id,
        kind=kind,
        status=ExecutionStatus(status),
        run=run,
        calls=calls,
        steps=steps,
        owner=_living(owner, lease_until),
        created_at=created_at,
        updated_at=max(updated_at, last),
        agent=agent,
        note=note,
        is_cancelling=bool(is_cancelling),
    )


def _living(owner: str | None, lease_until: float) -> str | None:
    """Return the owner if it seems to be alive.

    One look cannot tell whether an owner elsewhere still beats: here its lease is compared with the clock of this machine.
    This is good enough to be shown; nobody is replaced by it.
    """
    if owner is None:
        return None
    found = Owner.parse(owner)
    is_alive = found.is_at_work() or (time.time() < lease_until and not found.is_gone())
    return str(found) if is_alive else None


def detail_of(connection: sqlite3.Connection, execution_id: str) -> ExecutionDetail | None:
    """Return one execution with its calls and steps; None if it is not there."""
    row = connection.execute(f"{_EXECUTIONS} WHERE e.execution_id = ?", (execution_id,)).fetchone()
    if row is None:
        return None
    execution = _execution(row)
    refuse_incomplete_run(connection, row[0], execution.run)
    is_owned = execution.owner is not None
    calls = connection.execute(_CALLS, (row[0], execution.run)).fetchall()
    found = tuple(_call(connection, row, depth, is_owned) for row, depth in _in_tree(calls))
    return ExecutionDetail(execution=execution, calls=found)


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
    known = ExecutionStatus(status)
    alive_since = taken_up_at if is_owned and known is ExecutionStatus.RUNNING else float("inf")
    outcome = {} if result is None else decode(shown(result))
    where = Progress() if progress is None else Progress(**json.loads(progress))
    steps = [_step(step, known, alive_since) for step in connection.execute(_STEPS, (call_id,))]
    if known is ExecutionStatus.RUNNING:
        steps += _model_under_way(where, steps, is_owned=is_owned)
    return CallSummary(
        kind=kind,
        position=position,
        scope=scope,
        member=short(member),
        depth=depth,
        input="(redacted)" if given is None else short(decode(shown(given))),
        status=known,
        phase=where.phase,
        attempt=attempt,
        stop_reason=outcome.get("stop_reason") or outcome.get("status"),
        started_at=started_at,
        ended_at=ended_at,
        failures=_failures(connection, call_id),
        questions=_questions(connection, call_id, outcome) if known is ExecutionStatus.SUSPENDED else (),
        steps=tuple(steps),
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
        Question(interrupt_id=found["id"], name=short(found["name"]), reason=short(found.get("reason")))
        for found in outcome.get("interrupts") or ()
        if found["id"] not in answered
    )


def _step(row: Any, call: ExecutionStatus, alive_since: float) -> StepSummary:
    key, attempt, kind, name, title, status, started_at, ended_at, usage, error, is_superseded = row
    return StepSummary(
        key=key,
        number=number_of(key, kind),
        kind=kind,
        name=short(name),
        input=short(title),
        status=status,
        state=_state(status, error is not None, call, bool(is_superseded), started_at < alive_since),
        attempt=attempt,
        started_at=started_at,
        ended_at=ended_at,
        usage=None if usage is None else shown_usage(json.loads(usage)),
        error=None if error is None else _error(error),
    )


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


def _model_under_way(where: Progress, steps: list[StepSummary], *, is_owned: bool) -> list[StepSummary]:
    """Return the model call that the head tells of: it has no row before it has an answer."""
    number = str(where.ordinal + 1)
    answered = any(step.kind == "model" and step.number == number and step.attempt >= where.attempt for step in steps)
    if answered or where.attempt == 0 or (where.phase, where.resume) != ("model", "model"):
        return []
    under_way = StepSummary(
        key=model_key(where.ordinal + 1, 0),
        number=number,
        kind="model",
        name="model",
        input="",
        status="started",
        state="running" if is_owned else "in doubt",
        attempt=where.attempt,
        started_at=None,
        ended_at=None,
        usage=None,
        error=None,
    )
    return [under_way]


def _error(recorded: str) -> str:
    record = decode(shown(recorded))
    text = record["text"] if record["type"] == "ToolResult" else summary(record)
    return short(text, ERROR_LENGTH)
