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

from ._records import ExecutionStatus

_ALL = frozenset(ExecutionStatus)
_LAST_OF_ALL = b"\xff" * 16
"""Behind every text, as bytes are."""
_LAST = """
    (SELECT max(coalesce(s.ended_at, s.started_at)) FROM steps s WHERE s.id =
        (SELECT max(s.id) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run))
"""
# The plus keeps SQLite from reading all root calls there are: it takes them by their execution.
_AGENT = """
    coalesce((SELECT d.agent FROM dispatches d WHERE d.execution = e.id),
        (SELECT c.scope FROM calls c WHERE c.execution = e.id AND +c.parent = 0 ORDER BY c.id LIMIT 1))
"""
_OF_AGENT = f"(:agent IS NULL OR {_AGENT} = :agent)"
AT_REST = f"""
SELECT e.id, e.updated_at FROM executions e
WHERE e.status = :status AND e.updated_at >= :since AND {_OF_AGENT} ORDER BY e.updated_at DESC LIMIT :limit
"""
AT_WORK = f"""
SELECT e.id, max(e.updated_at, coalesce({_LAST}, 0)) AS changed_at FROM executions e
WHERE e.status = :status AND changed_at >= :since AND {_OF_AGENT} ORDER BY changed_at DESC LIMIT :limit
"""
# What is damaged may have a status that is none: it sorts between two that are, and must not be missing from a list of all.
AT_ODDS = f"""
SELECT e.id, e.updated_at FROM executions e
WHERE e.status >= :low AND e.status < :high AND e.updated_at >= :since AND {_OF_AGENT}
ORDER BY e.updated_at DESC LIMIT :limit
"""
_EXECUTIONS = f"""
SELECT e.id, e.execution_id, e.kind, e.status, e.run, e.created_at, e.updated_at, e.owner, e.lease_until,
    (SELECT count(*) FROM calls c WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0),
    (SELECT count(*) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run),
    coalesce({_LAST}, 0), {_AGENT}, d.note,
    e.cancel_asked_at IS NOT NULL AND e.status IN ('PENDING', 'RUNNING', 'SUSPENDED')
FROM executions e LEFT JOIN dispatches d ON d.execution = e.id
"""


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
    newest = sorted(_found(connection, asked), key=_changed_at, reverse=True)[: asked.limit]
    ids = json.dumps([row_id for row_id, _ in newest])
    query = f"{_EXECUTIONS} WHERE e.id IN (SELECT value FROM json_each(?))"
    return connection.execute(query, (ids,)).fetchall()


def row_of(connection: sqlite3.Connection, execution_id: str) -> Any:
    """Return the row of one execution; None if it is not there."""
    return connection.execute(f"{_EXECUTIONS} WHERE e.execution_id = ?", (execution_id,)).fetchone()


def _found(connection: sqlite3.Connection, asked: Listing) -> Iterator[tuple[int, float]]:
    """Yield id and last change of the newest of each status, as many as are asked for at most."""
    values = {"agent": asked.agent, "since": asked.since or 0.0, "limit": -1 if asked.limit is None else asked.limit}
    for status in sorted(asked.statuses):
        query = AT_WORK if status is ExecutionStatus.RUNNING else AT_REST
        yield from connection.execute(query, {**values, "status": status.value})
    if asked.statuses == _ALL:
        known = sorted(status.value for status in _ALL)
        for low, high in zip(["", *(f"{name}\0" for name in known)], [*known, _LAST_OF_ALL], strict=True):
            yield from connection.execute(AT_ODDS, {**values, "low": low, "high": high})


def _changed_at(found: tuple[int, Any]) -> float:
    return found[1] if isinstance(found[1], (int, float)) else 0.0
