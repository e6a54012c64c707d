"""Which executions of a store are listed, and in which order: the newest are found by an index, however many there are.

An execution changes when its status does, and with every step. Steps are not noted on it, which would cost a write each; but
only one that is RUNNING can have a step after its last change of status. So the newest of every other status come from the
index on status and time, and those that run are few and looked at one by one. Knows no Strands.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..._records.executions import ExecutionStatus
from .checksums import refuse_incomplete_list

_ALL = frozenset(ExecutionStatus)
_LAST_OF_ALL = b"\xff" * 16
"""Behind every text, as bytes are."""


def _last(view: str = "") -> str:
    return f"""
    (SELECT max(coalesce(s.ended_at, s.started_at)) FROM {view}steps s WHERE s.id =
        (SELECT max(s.id) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run))
    """


def _agent(view: str = "") -> str:
    """The plus keeps SQLite from reading all root calls there are: it takes them by their execution."""
    return f"""
    coalesce((SELECT d.agent FROM {view}dispatches d WHERE d.execution = e.id),
        (SELECT c.scope FROM {view}calls c WHERE c.execution = e.id AND +c.parent = 0 ORDER BY c.id LIMIT 1))
    """


_OF_AGENT = f"(:agent IS NULL OR {_agent()} = :agent)"
AT_REST = f"""
SELECT e.id, e.updated_at FROM executions e
WHERE e.status = :status AND e.updated_at >= :since AND {_OF_AGENT} ORDER BY e.updated_at DESC LIMIT :limit
"""
AT_WORK = f"""
SELECT e.id, max(e.updated_at, coalesce({_last()}, 0)) AS changed_at FROM executions e
WHERE e.status = :status AND changed_at >= :since AND {_OF_AGENT} ORDER BY changed_at DESC LIMIT :limit
"""
# What is damaged may have a status that is none: it sorts between two that are, and must not be missing from a list of all.
AT_ODDS = f"""
SELECT e.id, e.updated_at FROM executions e
WHERE e.status >= :low AND e.status < :high AND e.updated_at >= :since AND {_OF_AGENT}
ORDER BY e.updated_at DESC LIMIT :limit
"""
WITHOUT_LIMIT = f"""
SELECT e.id, max(e.updated_at, coalesce({_last()}, 0)) AS changed_at FROM executions e NOT INDEXED
WHERE (:statuses IS NULL OR e.status IN (SELECT value FROM json_each(:statuses))) AND (:since = 0.0 OR changed_at >= :since)
    AND {_OF_AGENT}
"""
# What is looked at to say that an execution cannot be run; of what is long, only whether it is whole.
_PROBE = "CASE WHEN {0} IS NULL OR length({0}) < 65536 THEN {0} WHEN NOT json_valid({0}) THEN '' END"


def _rows(view: str, damage: str) -> str:
    return f"""
SELECT e.id, e.execution_id, e.kind, e.status, e.run, e.created_at, e.updated_at, e.owner, e.lease_until,
    (SELECT count(*) FROM calls c WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0),
    (SELECT count(*) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run),
    coalesce({_last(view)}, 0), {_agent(view)}, d.note,
    e.cancel_asked_at IS NOT NULL AND e.status IN ('PENDING', 'RUNNING', 'SUSPENDED'),
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN d.spec END,
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN {_PROBE.format("d.given")} END,
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN (SELECT {_PROBE.format("c.input")} FROM {view}calls c
        WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0 ORDER BY c.position DESC LIMIT 1) END,
    {damage}
FROM {view}executions e LEFT JOIN {view}dispatches d ON d.execution = e.id
"""


# What is shown of executions is compared with its checksums; what they are found by, and how many rows they have, is not.
_CHECKED = _rows("verified_", "NULL")
_DAMAGED = _rows("", "'a row of it does not match its checksum'")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which executions are asked for."""

    statuses: frozenset[ExecutionStatus] = _ALL
    agent: str | None = None
    since: float | None = None
    """In seconds since the epoch."""
    limit: int | None = None


def rows_of(connection: sqlite3.Connection, asked: Listing) -> list[Any]:
    """Return the rows of the executions that are asked for."""
    if asked.limit is None:
        refuse_incomplete_list(connection)
    newest = sorted(_found(connection, asked), key=_changed_at, reverse=True)[: asked.limit]
    ids = [row_id for row_id, _ in newest]
    try:
        query = f"{_CHECKED} WHERE e.id IN (SELECT value FROM json_each(?))"
        return connection.execute(query, (json.dumps(ids),)).fetchall()
    except sqlite3.OperationalError as error:
        if not _is_damage(error):
            raise
        return [_row(connection, "e.id = ?", row_id) for row_id in ids]


def row_of(connection: sqlite3.Connection, execution_id: str) -> Any:
    """Return the row of one execution; None if it is not there."""
    return _row(connection, "e.execution_id = ?", execution_id)


def _row(connection: sqlite3.Connection, condition: str, value: Any) -> Any:
    """Return the row of one execution; one that is damaged says so in its last column."""
    try:
        return connection.execute(f"{_CHECKED} WHERE {condition}", (value,)).fetchone()
    except sqlite3.OperationalError as error:
        if not _is_damage(error):
            raise
        return connection.execute(f"{_DAMAGED} WHERE {condition}", (value,)).fetchone()


def _is_damage(error: sqlite3.OperationalError) -> bool:
    return "user-defined function" in str(error)  # the one that compares checksums


def _found(connection: sqlite3.Connection, asked: Listing) -> Iterator[tuple[int, float]]:
    """Yield id and last change of the newest of each status, as many as are asked for at most.

    Without a limit every row is read, and none is found by an index, whose entries may be damaged.
    """
    values = {"agent": asked.agent, "since": asked.since or 0.0, "limit": asked.limit}
    if asked.limit is None:
        statuses = None if asked.statuses == _ALL else json.dumps(sorted(status.value for status in asked.statuses))
        yield from connection.execute(WITHOUT_LIMIT, {**values, "statuses": statuses})
        return
    for status in sorted(asked.statuses):
        query = AT_WORK if status is ExecutionStatus.RUNNING else AT_REST
        yield from connection.execute(query, {**values, "status": status.value})
    if asked.statuses == _ALL:
        known = sorted(status.value for status in _ALL)
        for low, high in zip(["", *(f"{name}\0" for name in known)], [*known, _LAST_OF_ALL], strict=True):
            yield from connection.execute(AT_ODDS, {**values, "low": low, "high": high})


def _changed_at(found: tuple[int, Any]) -> float:
    return found[1] if isinstance(found[1], (int, float)) else 0.0
