"""Dispatched executions, as rows: what was asked for, what waits for a worker, and who may take it.

Every method that writes belongs into a transaction of the store. The rules are those of `_dispatch.requests` and
`_dispatch.queue`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from typing import Any

from .._journal.owner import BEAT, Beat
from ..errors import CipherError
from . import ownership
from .connection import Connection
from .database import Store

EXECUTION = "id, execution_id, run, fence, owner, cancel_asked_at"
DISPATCH = "agent, fingerprint, spec, given, is_suspected, is_alone, deaths, tries"

_VERSION = """
d.agent || ' ' || d.fingerprint || ' '
    || coalesce(CASE WHEN json_valid(d.spec) THEN json_extract(d.spec, '$.arguments') END, '')
"""
# Nothing is put off for as long as a minute: what seems to be was put off before the clock was set back.
_FREE = """
SELECT e.id FROM executions e JOIN dispatches d ON d.execution = e.id
WHERE e.status IN ('PENDING', 'RUNNING') AND d.not_before NOT BETWEEN :now AND :now + 60
    AND e.id NOT IN (SELECT value FROM json_each(:held)) AND e.id NOT IN (SELECT value FROM json_each(:aside))
    AND (e.owner IS NULL OR e.owner = :me OR e.id IN (SELECT value FROM json_each(:dead)))
    AND {suspicion}
    AND (:refused = '[]' OR {version} NOT IN (SELECT value FROM json_each(:refused)))
    AND (:only IS NULL OR e.execution_id IN (SELECT value FROM json_each(:only)))
ORDER BY e.id LIMIT :limit
"""
_OTHERS = _FREE.format(version=_VERSION, suspicion="NOT d.is_suspected AND (e.owner IS NULL OR e.owner = :me)")
_SUSPECTS = _FREE.format(
    version=_VERSION,
    suspicion="e.id IN (SELECT execution FROM dispatches WHERE is_suspected"
    " UNION SELECT id FROM executions WHERE owner IS NOT NULL AND owner <> :me)",
)
_UNNOTED = f"""
SELECT d.execution, {_VERSION} FROM executions e JOIN dispatches d ON d.execution = e.id
WHERE e.status IN ('PENDING', 'RUNNING') AND d.note IS NULL
    AND (e.owner IS NULL OR e.id IN (SELECT value FROM json_each(?))) AND {_VERSION} IN (SELECT value FROM json_each(?))
"""


class Dispatches:
    """The dispatched executions of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def _connection(self) -> Connection:
        return self._store.connection

    def _opening(self, query: str) -> str:
        """Return a query for versions that decrypts the spec, if it is encrypted.

        One that cannot be opened is nothing, as one that is no JSON: why is found out when its row is read.
        """
        connection = self._connection
        if connection.seal is None:
            return query

        def spec_of(row_id: int, spec: Any) -> Any:
            try:
                return connection.opened("dispatches", "spec", (row_id,), spec)
            except CipherError:
                return None

        connection.create_function("spec_of", 2, spec_of)
        return query.replace("d.spec", "spec_of(d.execution, d.spec)")

    # Asking for executions

    def find(self, execution_id: str) -> int | None:
        """Return the number of an execution, dispatched or not; None if it is not there."""
        found = ownership.find(self._store, execution_id)
        return None if found is None else found[0]

    def create(
        self, execution_id: str, now: float, *, dispatch: dict[str, Any], call: dict[str, Any], tags: dict[str, str]
    ) -> None:
        """Record an execution that waits for a worker: what runs it, its root call, and its tags."""
        row_id = self._connection.insert(
            "executions", execution_id=execution_id, kind="dispatched", status="PENDING", run=0, created_at=now,
            updated_at=now, fence=0, beat=0, lease_until=0,
        )  # fmt: skip
        self._connection.insert("dispatches", execution=row_id, **dispatch)
        self._connection.insert(
            "calls", execution=row_id, run=0, parent=0, place="", position=0, lineage=0, status="PENDING", attempt=1,
            base="[]", config=0, started_at=now, taken_up_at=now, **call,
        )  # fmt: skip
        ownership.add_tags(self._connection, row_id, tags)

    def request(self, row_id: int) -> tuple[str, str, str] | None:
        """Return agent, spec and arguments in their recorded forms; None for an inline execution."""
        rows = self._store.rows("dispatches", "agent, spec, given", "execution = ?", row_id)
        return rows[0] if rows else None

    def is_dispatched(self, row_id: int) -> bool:
        """Return True for a dispatched execution, False for an inline one."""
        return bool(self._store.read("SELECT 1 FROM dispatches WHERE execution = ?", row_id))

    def note_of(self, execution_id: str) -> str | None:
        """Return why workers have left an execution; None if none has."""
        where = "execution = (SELECT id FROM executions WHERE execution_id = ?)"
        rows = self._store.rows("dispatches", "note", where, execution_id)
        return rows[0][0] if rows and rows[0][0] else None

    def add_reply(self, call_id: int, interrupt_id: str, answer: str, now: float) -> None:
        """Record an answer that no run of the call has used yet."""
        self._connection.insert("replies", call=call_id, interrupt_id=interrupt_id, answer=answer, at=now)

    def replace_spec(self, row_id: int, fingerprint: str, spec: str, given: str) -> None:
        """Record another version of the agent."""
        changes = {"fingerprint": fingerprint, "spec": spec, "given": given}
        self._connection.update("dispatches", changes, "execution = ?", row_id)

    def forget_delays(self, row_id: int) -> None:
        """Offer an execution to workers at once, without the note of the one that left it."""
        self._connection.update("dispatches", {"note": None, "not_before": 0}, "execution = ?", row_id)

    def ask_to_cancel(self, row_id: int, now: float) -> None:
        """Record that a cancellation was requested; the first request counts."""
        changes = {"cancel_asked_at": now}
        self._connection.update("executions", changes, "id = ? AND cancel_asked_at IS NULL", row_id)

    def evict(self, row_id: int) -> None:
        """Leave an execution without an owner, and without a fence that an earlier owner knows."""
        self._connection.execute("UPDATE executions SET fence = fence + 1, owner = NULL WHERE id = ?", (row_id,))

    def requeue(self, row_id: int, run: int) -> None:
        """Offer an execution to workers again, as if none had failed on it.

        An owner that has not released its lease is about to record a tool's result, and keeps its fence. A call that failed
        before it began, since its agent could not be built, has no head to resume from and begins again.
        """
        connection = self._connection
        connection.execute("UPDATE executions SET fence = fence + (owner IS NULL) WHERE id = ?", (row_id,))
        connection.update("executions", {"cancel_asked_at": None}, "id = ?", row_id)
        where = "execution = ? AND run = ? AND parent = 0 AND status = 'FAILED' AND lineage = 0"
        for call_id, attempt in connection.rows("calls", "id, attempt", where, row_id, run):
            changes = {"status": "PENDING", "attempt": attempt + 1, "ended_at": None}
            connection.update("calls", changes, "id = ?", call_id)
        cleared = {"is_suspected": 0, "is_alone": 0, "deaths": 0, "tries": 0, "not_before": 0, "note": None}
        connection.update("dispatches", cleared, "execution = ?", row_id)

    # Waiting for a worker

    def free(self, values: dict[str, Any], *, suspected: bool) -> list[int]:
        """Return the numbers of executions that a worker may take, the oldest first."""
        rows = self._store.read_named(self._opening(_SUSPECTS if suspected else _OTHERS), values)
        return [row_id for (row_id,) in rows]

    def row(self, row_id: int) -> tuple[Any, ...] | None:
        """Return the columns `EXECUTION` and `DISPATCH` of an execution, and its version; None if it is gone."""
        executions = self._store.rows("executions", EXECUTION, "id = ?", row_id)
        dispatches = self._store.rows("dispatches", DISPATCH, "execution = ?", row_id)
        if not executions or not dispatches:
            return None
        query = self._opening(f"SELECT {_VERSION} FROM dispatches d WHERE d.execution = ?")
        version = self._store.read(query, row_id)[0][0]
        return (*executions[0], *dispatches[0], version)

    def only(self) -> int:
        """Return the number of the one execution of a store in memory."""
        return int(self._store.read("SELECT id FROM executions")[0][0])

    def standing(self) -> tuple[str, int, float, str | None]:
        """Return id, number of steps, earliest start and note of the one execution of a store in memory."""
        found: tuple[str, int, float, str | None] = self._store.read(
            "SELECT execution_id, (SELECT count(*) FROM steps), d.not_before, d.note"
            " FROM executions e JOIN dispatches d ON d.execution = e.id"
        )[0]
        return found

    def name_of(self, row_id: int) -> str | None:
        """Return the id of an execution whose row may be damaged."""
        rows = self._store.read("SELECT CAST(execution_id AS BLOB) FROM executions WHERE id = ?", row_id)
        return rows[0][0].decode("utf-8", "replace") if rows else None

    def beats(self) -> list[Beat]:
        """Return the owners of all executions that have one."""
        columns = BEAT.replace("owner", "CAST(owner AS BLOB)")  # a damaged one may be no text
        rows = self._store.read(f"SELECT {columns} FROM executions WHERE owner IS NOT NULL")
        return [Beat(row_id, owner.decode("utf-8", "replace"), *rest) for row_id, owner, *rest in rows]

    def beat_of(self, row_id: int) -> Beat:
        """Return the owner of an execution with its last heartbeat."""
        return Beat(*self._store.row("executions", BEAT, "id = ?", row_id))

    def claim(self, row_id: int, fence: int, owner: str, seconds: float) -> bool:
        """Make ``owner`` the owner of an execution under the next fence; False if it is not as it was under ``fence``."""
        taken = self._connection.execute(
            "UPDATE executions SET fence = fence + 1, owner = ?, lease_until = ?, lease_seconds = ?, beat = beat + 1"
            " WHERE id = ? AND fence = ? AND status IN ('PENDING', 'RUNNING')",
            (owner, time.time() + seconds, seconds, row_id, fence),
        ).rowcount
        return bool(taken)

    def suspect(self, row_id: int, *, is_suspected: bool, alone: bool, deaths: int) -> None:
        """Record whether an execution may be what kills its workers, and how many it has."""
        changes = {"is_suspected": is_suspected, "is_alone": alone, "deaths": deaths, "note": None}
        self._connection.update("dispatches", changes, "execution = ?", row_id)

    def clear_suspicion(self, row_id: int) -> None:
        """Record that an execution kills no worker."""
        self._connection.update("dispatches", {"is_suspected": 0, "is_alone": 0, "deaths": 0}, "execution = ?", row_id)

    def forget_owner(self) -> None:
        """Leave the one execution of a store in memory without an owner that could be dead."""
        self._connection.execute("UPDATE executions SET owner = NULL, lease_until = 0")
        self._connection.update("dispatches", {"is_alone": 0}, "1")

    def put_off(self, row_id: int, seconds: float, note: str) -> None:
        """Offer an execution to workers after a delay."""
        ((tries,),) = self._connection.rows("dispatches", "tries", "execution = ?", row_id)
        changes = {"tries": tries + 1, "not_before": time.time() + seconds, "note": note}
        self._connection.update("dispatches", changes, "execution = ?", row_id)

    def note(self, row_id: int, note: str) -> None:
        """Record why an execution waits."""
        self._connection.update("dispatches", {"note": note}, "execution = ?", row_id)

    def note_unnoted(self, notes: Iterable[tuple[int, str]]) -> None:
        """Record why executions wait, where nothing is noted yet."""
        for row_id, note in notes:
            self._connection.update("dispatches", {"note": note}, "execution = ? AND note IS NULL", row_id)

    def unnoted(self, versions: Collection[str], dead: list[int]) -> list[tuple[int, str]]:
        """Return the executions of these versions that wait without a note, each with its version."""
        return self._store.read(self._opening(_UNNOTED), json.dumps(dead), json.dumps(list(versions)))

    def over(self, execution_ids: Collection[str]) -> set[str]:
        """Return which of these executions have completed or were cancelled."""
        rows = self._store.read(
            "SELECT execution_id FROM executions WHERE execution_id IN (SELECT value FROM json_each(?))"
            " AND status IN ('COMPLETED', 'CANCELLED')",
            json.dumps(list(execution_ids)),
        )
        return {execution_id for (execution_id,) in rows}

    def cancelled(self, row_ids: Collection[int]) -> list[int]:
        """Return which of these executions are to be cancelled."""
        rows = self._store.read(
            "SELECT id FROM executions WHERE id IN (SELECT value FROM json_each(?)) AND cancel_asked_at IS NOT NULL",
            json.dumps(list(row_ids)),
        )
        return [row_id for (row_id,) in rows]
