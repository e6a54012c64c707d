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
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ._blobs import shown
from ._codec import peek
from ._failure import summary
from ._keys import model_key
from ._lease import Owner
from ._records import ExecutionRecord, ExecutionStatus, Progress, StepStatus, shown_usage
from ._spec import AgentSpec
from ._store import path_of, refuse_foreign, translated
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
from ._unreadable import reading
from .errors import BackendUnavailableError, ExecutionNotFoundError, UnreadableError, UnsupportedFeatureError

T = TypeVar("T")
_BUSY_SECONDS = 10.0
# What is looked at to say that an execution cannot be run; of what is long, only whether it is whole.
_PROBE = "CASE WHEN length({0}) < 65536 THEN {0} WHEN NOT json_valid({0}) THEN '' END"
_EXECUTIONS = f"""
SELECT e.id, e.execution_id, e.kind, e.status, e.run, e.created_at, e.updated_at, e.owner, e.lease_until,
    (SELECT count(*) FROM calls c WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0),
    (SELECT count(*) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run),
    coalesce(last.ended_at, last.started_at, 0),
    coalesce(d.agent, (SELECT c.scope FROM calls c WHERE c.execution = e.id AND c.parent = 0 ORDER BY c.id LIMIT 1)),
    d.note, e.cancel_asked_at IS NOT NULL AND e.status IN ('PENDING', 'RUNNING', 'SUSPENDED'),
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN d.spec END,
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN {_PROBE.format("d.given")} END,
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN (SELECT {_PROBE.format("c.input")} FROM calls c
        WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0 ORDER BY c.position DESC LIMIT 1) END
FROM executions e LEFT JOIN dispatches d ON d.execution = e.id LEFT JOIN steps last ON last.id =
    (SELECT max(s.id) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run)
"""
_CALLS = """
SELECT id, position, scope, status, attempt, input, result, started_at, taken_up_at, ended_at,
    (SELECT data FROM heads h WHERE h.call = calls.id AND h.part = 'progress'), kind, member, parent
FROM calls WHERE execution = ? AND run = ? ORDER BY id
"""
_STEPS = """
SELECT key, attempt, kind, name, title, status, started_at, ended_at, usage, error,
    attempt < max(attempt) OVER (PARTITION BY key)
FROM steps WHERE call = ? ORDER BY started_at, id
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
        rows = self._look(lambda connection: connection.execute(_EXECUTIONS).fetchall())
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
    refuse_foreign(path)


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
        connection.execute("BEGIN")
        connection.text_factory = _text
        return query(connection)


def _text(data: bytes) -> str | bytes:
    """A text that is damaged stays bytes, which are no JSON and no name: it must not hide the rest of the store."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _execution(row: Any) -> ExecutionRecord:
    """Return what ``ls`` shows of an execution; what cannot be read of it is said, and is no reason to show nothing."""
    damage: list[str] = []
    with _judging(damage):
        return _readable(row)
    execution_id, kind, status, run, created_at, updated_at = row[1:7]
    return ExecutionRecord(
        execution_id=_words(execution_id),
        kind=_words(kind),
        status=ExecutionStatus(status) if status in list(ExecutionStatus) else ExecutionStatus.FAILED,
        run=run if isinstance(run, int) else 0,
        calls=row[9],
        steps=row[10],
        owner=None,
        created_at=_number(created_at),
        updated_at=_number(updated_at),
        agent=None if row[12] is None else _words(row[12]),
        unreadable=damage[0],
    )


@contextmanager
def _judging(reasons: list[str]) -> Iterator[None]:
    """Read something that may be damaged; then the reason is added to the list."""
    try:
        with reading():
            yield
    except UnreadableError as error:
        reasons.append(short(error.reason, ERROR_LENGTH))


def _words(found: Any) -> str:
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def _number(found: Any) -> float:
    return float(found) if isinstance(found, (int, float)) else 0.0


@lru_cache(maxsize=64)
def _read_spec(text: str) -> AgentSpec:
    """Executions of one agent have one spec: it is read once."""
    return AgentSpec.from_json(peek(shown(text)))


def _readable(row: Any) -> ExecutionRecord:
    _, execution_id, kind, status, run, created_at, updated_at, owner, lease_until, calls, steps, last, *rest = row
    agent, note, is_cancelling, spec, given, prompt = rest
    if owner is not None:
        Owner.parse(owner)
    if spec is not None:
        _read_spec(spec)
    for text in (given, prompt):
        if text is not None:
            peek(shown(text))
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
    """Return the owner if it counts as alive, by the rule that the next owner would go by."""
    if owner is None or time.time() >= lease_until:
        return None
    found = Owner.parse(owner)
    return None if found.is_gone() else str(found)


def detail_of(connection: sqlite3.Connection, execution_id: str) -> ExecutionDetail | None:
    """Return one execution with its calls and steps; None if it is not there."""
    row = connection.execute(f"{_EXECUTIONS} WHERE e.execution_id = ?", (execution_id,)).fetchone()
    if row is None:
        return None
    execution = _execution(row)
    is_owned = execution.owner is not None
    calls = connection.execute(_CALLS, (row[0], execution.run)).fetchall()
    found = tuple(_call(connection, row, depth, is_owned) for row, depth in _in_tree(calls))
    reasons = [reason for reason in (execution.unreadable, *(call.unreadable for call in found)) if reason is not None]
    return ExecutionDetail(execution=replace(execution, unreadable=reasons[0] if reasons else None), calls=found)


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
    known, outcome, where, told = ExecutionStatus.FAILED, {}, Progress(), "(unreadable)"
    steps: list[StepSummary] = []
    damage: list[str] = []
    with _judging(damage):
        known = ExecutionStatus(status)
    with _judging(damage):
        outcome = {} if result is None else dict(peek(shown(result)))
    with _judging(damage):
        where = Progress() if progress is None else Progress(**json.loads(progress))
    with _judging(damage):
        told = "(redacted)" if given is None else short(peek(shown(given)))
    alive_since = taken_up_at if is_owned and known is ExecutionStatus.RUNNING else float("inf")
    with _judging(damage):
        steps = [_step(step, known, alive_since) for step in connection.execute(_STEPS, (call_id,))]
        if known is ExecutionStatus.RUNNING:
            steps += _model_under_way(where, steps, is_owned=is_owned)
    return CallSummary(
        kind=kind,
        position=position,
        scope=_words(scope),
        member=short(_words(member)),
        depth=depth,
        input=told,
        status=known,
        phase=where.phase,
        attempt=attempt,
        stop_reason=outcome.get("stop_reason") or outcome.get("status"),
        started_at=started_at,
        ended_at=ended_at,
        failures=_failures(connection, call_id),
        questions=_questions(connection, call_id, outcome) if known is ExecutionStatus.SUSPENDED else (),
        steps=tuple(steps),
        unreadable=damage[0] if damage else None,
    )


def _failures(connection: sqlite3.Connection, call_id: int) -> tuple[Failure, ...]:
    rows = connection.execute("SELECT attempt, error, at FROM failures WHERE call = ? ORDER BY at", (call_id,))
    return tuple(Failure(attempt=attempt, error=_error(error), at=at) for attempt, error, at in rows)


def _questions(connection: sqlite3.Connection, call_id: int, outcome: dict[str, Any]) -> tuple[Question, ...]:
    """Return what a call waits for; an answer that it has not taken up yet is an answer."""
    answered = {row[0] for row in connection.execute("SELECT interrupt_id FROM replies WHERE call = ?", (call_id,))}
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
        usage=_usage(usage),
        error=None if error is None else _error(error),
    )


def _usage(recorded: str | None) -> dict[str, int] | None:
    with _judging([]):
        return None if recorded is None else shown_usage(json.loads(recorded))
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
    damage: list[str] = []
    with _judging(damage):
        record = peek(shown(recorded))
        text = record["text"] if record["type"] == "ToolResult" else summary(record)
        return short(text, ERROR_LENGTH)
    return f"(unreadable: {damage[0]})"
