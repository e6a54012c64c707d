"""Which executions of a store are listed, and in which order: the newest are found by an index, however many there are.

An execution changes when its status does, and with every step. Steps are not noted on it, which would cost a write each; but
only one that is RUNNING can have a step after its last change of status. So the newest of every other status come from the
index on status and time, and those that run are few and looked at one by one. A page begins in the index where the one before
has ended.

Tags and the beginning of an id have indexes of their own. Where those find few executions, only these are looked at; where they
find many, the newest of them are among the newest of all, which are gone through. Knows no Strands.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from ..._journal.rows import span
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.listing import ALL, Cursor, Listing
from ..._records.origins import IMPORTED, PART
from ..checksums import refuse_incomplete_list
from .execution_rows import execution_of
from .totals import FAILED_TOOL, totals_of

_LAST_OF_ALL = b"\xff" * 16
"""Behind every number and every text, as bytes are."""
_FEW = 2_000


def _last(view: str = "") -> str:
    return f"""
    (SELECT max(coalesce(s.ended_at, s.started_at)) FROM {view}steps s WHERE s.id =
        (SELECT max(s.id) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run))
    """


def agent_of(view: str = "") -> str:
    """Return an expression for the agent of an execution ``e``.

    The plus keeps SQLite from reading all root calls there are: it takes them by their execution.
    """
    return f"""
    coalesce((SELECT d.agent FROM {view}dispatches d WHERE d.execution = e.id),
        (SELECT c.scope FROM {view}calls c WHERE c.execution = e.id AND +c.parent = 0 ORDER BY c.id LIMIT 1))
    """


def _origins(view: str) -> str:
    """Return an expression for where an execution ``e`` comes from: parts of the head of its first call, by their names."""
    return f"""
    (SELECT json_group_object(h.part, h.data) FROM {view}heads h WHERE h.part IN ('{PART}', '{IMPORTED}') AND h.call =
        (SELECT c.id FROM calls c WHERE c.execution = e.id AND c.run = 0 AND +c.parent = 0 ORDER BY c.id LIMIT 1))
    """


_WITH_STEPS = f"max(e.updated_at, coalesce({_last()}, 0))"
_CHANGED = f"CASE e.status WHEN 'RUNNING' THEN {_WITH_STEPS} ELSE e.updated_at END"
_WANTED = f"""
(:agent IS NULL OR {agent_of()} = :agent)
    AND (:search_low IS NULL OR (+e.execution_id >= :search_low AND +e.execution_id < :search_high))
    AND (:tags = '{{}}' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) w WHERE NOT EXISTS
        (SELECT 1 FROM tags t WHERE t.execution = e.id AND t.name = w.key AND t.value = w.value)))
    AND (NOT :with_errors OR EXISTS (SELECT 1 FROM calls c CROSS JOIN steps s ON s.call = c.id
        WHERE c.execution = e.id AND c.run = e.run AND {FAILED_TOOL}))
"""


def _between(changed_at: str) -> str:
    return f"""{changed_at} >= :since AND {changed_at} <= :until
    AND ({changed_at} < :until OR +e.execution_id > :after) AND {_WANTED}"""


AT_REST = f"""
SELECT e.id, e.updated_at, e.execution_id FROM executions e
WHERE e.status = :status AND {_between("e.updated_at")} ORDER BY e.updated_at DESC, +e.execution_id LIMIT :limit
"""
AT_WORK = f"""
SELECT e.id, {_WITH_STEPS} AS changed_at, e.execution_id FROM executions e
WHERE e.status = :status AND {_between("changed_at")} ORDER BY changed_at DESC, +e.execution_id LIMIT :limit
"""
# What is damaged may have a status that is none: it sorts between two that are, and must not be missing from a list of all.
AT_ODDS = f"""
SELECT e.id, e.updated_at, e.execution_id FROM executions e
WHERE e.status >= :low AND e.status < :high AND {_between("e.updated_at")}
ORDER BY e.updated_at DESC, +e.execution_id LIMIT :limit
"""
_OF_STATUS = "(:statuses IS NULL OR e.status IN (SELECT value FROM json_each(:statuses)))"
WITHOUT_LIMIT = f"""
SELECT e.id, {_CHANGED} AS changed_at, e.execution_id FROM executions e NOT INDEXED
WHERE {_OF_STATUS} AND (:since = 0.0 AND typeof(:until) = 'blob' OR {_between("changed_at")}) AND {_WANTED}
"""
AMONG_FEW = f"""
SELECT e.id, {_CHANGED} AS changed_at, e.execution_id
FROM executions e WHERE e.id IN (SELECT value FROM json_each(:ids)) AND {_OF_STATUS} AND {_between("changed_at")}
"""
# What is looked at to say that an execution cannot be run; of what is long, only whether it is whole.
_PROBE = "CASE WHEN {0} IS NULL OR length({0}) < 65536 THEN {0} WHEN NOT json_valid({0}) THEN '' END"


def _rows(view: str, damage: str) -> str:
    return f"""
SELECT e.id, e.execution_id, e.kind, e.status, e.run, e.created_at, e.updated_at, e.owner, e.lease_until,
    (SELECT count(*) FROM calls c WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0),
    (SELECT count(s.number) FROM calls c JOIN steps s ON s.call = c.id WHERE c.execution = e.id AND c.run = e.run),
    coalesce({_last(view)}, 0), {agent_of(view)}, d.note,
    e.cancel_asked_at IS NOT NULL AND e.status IN ('PENDING', 'RUNNING', 'SUSPENDED'),
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN d.spec END,
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN {_PROBE.format("d.given")} END,
    CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN (SELECT {_PROBE.format("c.input")} FROM {view}calls c
        WHERE c.execution = e.id AND c.run = e.run AND c.parent = 0 ORDER BY c.position DESC LIMIT 1) END,
    (SELECT json_group_object(t.name, t.value) FROM {view}tags t WHERE t.execution = e.id),
    EXISTS (SELECT 1 FROM holds h WHERE h.execution = e.id),
    (SELECT f.at FROM {view}emptied f WHERE f.execution = e.id),
    {_origins(view)}, {damage}
FROM {view}executions e LEFT JOIN {view}dispatches d ON d.execution = e.id
"""


# What is shown of executions is compared with its checksums; what they are found by, and how many rows they have, is not.
_CHECKED = _rows("verified_", "NULL")
_DAMAGED = _rows("", "'a row of it is damaged'")


def records_of(connection: sqlite3.Connection, asked: Listing) -> list[ExecutionRecord]:
    """Return the executions that are asked for, the most recently changed first."""
    rows = rows_of(connection, asked)
    totals = totals_of(connection, [row[0] for row in rows])
    records = [execution_of(row, totals.get(row[0])) for row in rows]
    return sorted(records, key=lambda found: Cursor(found.updated_at, found.execution_id).rank)


def record_of(
    connection: sqlite3.Connection, execution_id: str, *, is_alive: bool = False
) -> tuple[int, ExecutionRecord] | None:
    """Return the row number of one execution, and what a list shows of it; None if it is not there.

    With ``is_alive``, its recorded owner runs, whatever can be seen of it from here.
    """
    row = _row(connection, "e.execution_id = ?", execution_id)
    if row is None:
        return None
    return row[0], execution_of(row, totals_of(connection, [row[0]]).get(row[0]), is_alive=is_alive)


def rows_of(connection: sqlite3.Connection, asked: Listing) -> list[Any]:
    """Return the rows of the executions that are asked for."""
    if asked.limit is None:
        refuse_incomplete_list(connection)
    newest = sorted(_found(connection, asked), key=_rank)[: asked.limit]
    ids = [row_id for row_id, *_ in newest]
    try:
        query = f"{_CHECKED} WHERE e.id IN (SELECT value FROM json_each(?))"
        return connection.execute(query, (json.dumps(ids),)).fetchall()
    except sqlite3.OperationalError as error:
        if not is_damage(error):
            raise
        return [_row(connection, "e.id = ?", row_id) for row_id in ids]


def _row(connection: sqlite3.Connection, condition: str, value: Any) -> Any:
    """Return the row of one execution; one that is damaged says so in its last column."""
    try:
        return connection.execute(f"{_CHECKED} WHERE {condition}", (value,)).fetchone()
    except sqlite3.OperationalError as error:
        if not is_damage(error):
            raise
        return connection.execute(f"{_DAMAGED} WHERE {condition}", (value,)).fetchone()


def is_damage(error: sqlite3.OperationalError) -> bool:
    """Return whether a query has met a row that is not as it was written."""
    return "user-defined function" in str(error)  # one that compares checksums, or decrypts


def values_of(asked: Listing) -> dict[str, Any]:
    """Return what the queries above are given."""
    low, high = span(asked.search) if asked.search else (None, None)
    return {
        "agent": asked.agent,
        "since": asked.since or 0.0,
        "until": _LAST_OF_ALL if asked.before is None else asked.before.updated_at,
        "after": "" if asked.before is None else asked.before.execution_id,
        "search_low": low,
        "search_high": high,
        "tags": json.dumps(dict(asked.tags)),
        "limit": asked.limit,
        "with_errors": asked.with_errors,
        "statuses": None if asked.statuses == ALL else json.dumps(sorted(status.value for status in asked.statuses)),
    }


def _found(connection: sqlite3.Connection, asked: Listing) -> Iterator[tuple[int, float, str]]:
    """Yield number, last change and id of the newest of each status, as many as are asked for at most.

    Without a limit every row is read, and none is found by an index, whose entries may be damaged.
    """
    values = values_of(asked)
    if asked.limit is None:
        yield from connection.execute(WITHOUT_LIMIT, values)
        return
    few = _few(connection, asked)
    if few is not None:
        yield from connection.execute(AMONG_FEW, {**values, "ids": json.dumps(few)})
        return
    for status in sorted(asked.statuses):
        query = AT_WORK if status is ExecutionStatus.RUNNING else AT_REST
        yield from connection.execute(query, {**values, "status": status.value})
    if asked.statuses == ALL:
        known = sorted(status.value for status in ALL)
        for low, high in zip(["", *(f"{name}\0" for name in known)], [*known, _LAST_OF_ALL], strict=True):
            yield from connection.execute(AT_ODDS, {**values, "low": low, "high": high})


def _few(connection: sqlite3.Connection, asked: Listing) -> list[int] | None:
    """Return the executions that a tag or the beginning of the id leaves, if they are few."""
    queries = [
        ("SELECT execution FROM tags WHERE name = ? AND value = ? LIMIT ?", (name, value, _FEW + 1))
        for name, value in asked.tags.items()
    ]
    if asked.search:
        query = "SELECT id FROM executions WHERE execution_id >= ? AND execution_id < ? LIMIT ?"
        queries.append((query, (*span(asked.search), _FEW + 1)))
    for query, values in queries:
        found = [row_id for (row_id,) in connection.execute(query, values)]
        if len(found) <= _FEW:
            return found
    return None


def _rank(found: tuple[int, Any, Any]) -> tuple[float, str]:
    _, changed_at, execution_id = found
    return Cursor(changed_at if isinstance(changed_at, (int, float)) else 0.0, str(execution_id)).rank
