"""Who owns an execution, as rows: fences, owners and heartbeats. What follows from them is decided in `lease` and `owner`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from .._journal.owner import BEAT, Beat
from .connection import Connection
from .database import Store

_RUN_AND_BEAT = f"run, {BEAT}"


_HOLDER = "SELECT fence, owner, cancel_asked_at IS NOT NULL FROM executions WHERE id = ?"


def holder(connection: Connection, row_id: int) -> tuple[int | None, str | None, int]:
    """Return the fence of an execution, its owner, and whether a cancel is asked for; no fence if it was removed."""
    return connection.execute(_HOLDER, (row_id,)).fetchone() or (None, None, 0)


def beat_of(store: Store, execution_id: str) -> Beat | None:
    """Return the owner of an execution with its last heartbeat; None if there is no owner."""
    rows = store.rows("executions", _RUN_AND_BEAT, "execution_id = ?", execution_id)
    return Beat(*rows[0][1:]) if rows and rows[0][2] is not None else None


def find(store: Store, execution_id: str) -> tuple[int, int] | None:
    """Return the number of an execution and of its current run; None if it is not there."""
    rows = store.rows("executions", "id, run", "execution_id = ?", execution_id)
    return (rows[0][0], rows[0][1]) if rows else None


def status_of(store: Store, execution_id: str) -> str | None:
    """Return the recorded status of an execution; None if it is not there."""
    rows = store.rows("executions", "status", "execution_id = ?", execution_id)
    return rows[0][0] if rows else None


def create_inline(connection: Connection, execution_id: str, owner: str, seconds: float) -> int:
    """Record a new execution that its creator owns; its fence is 1. Return its number."""
    now = time.time()
    return connection.insert(
        "executions", execution_id=execution_id, kind="inline", status="PENDING", run=0, created_at=now, updated_at=now,
        fence=1, beat=0, owner=owner, lease_until=now + seconds, lease_seconds=seconds,
    )  # fmt: skip


def add_tags(connection: Connection, row_id: int, tags: Mapping[str, str]) -> None:
    """Record the tags of a new execution."""
    for name, value in tags.items():
        connection.insert("tags", execution=row_id, name=name, value=value)


def recorded(connection: Connection, execution_id: str) -> tuple[int, Beat] | None:
    """Return the current run of an execution, and its last heartbeat; None if it is not there."""
    rows = connection.rows("executions", _RUN_AND_BEAT, "execution_id = ?", execution_id)
    return (rows[0][0], Beat(*rows[0][1:])) if rows else None


def take(connection: Connection, row_id: int, fence: int, owner: str, seconds: float) -> None:
    """Make ``owner`` the owner of an execution, under a new fence."""
    connection.execute(
        "UPDATE executions SET fence = ?, owner = ?, lease_until = ?, lease_seconds = ?, beat = beat + 1 WHERE id = ?",
        (fence, owner, time.time() + seconds, seconds, row_id),
    )


def renew(connection: Connection, row_id: int, fence: int, seconds: float) -> None:
    """Record a heartbeat of the owner under ``fence``; ``lease_until`` is shown to people and decides nothing."""
    connection.execute(
        "UPDATE executions SET lease_until = ?, beat = beat + 1 WHERE id = ? AND fence = ?",
        (time.time() + seconds, row_id, fence),
    )


def tally(store: Store) -> list[tuple[str, int, float]]:
    """Return, by status, how many executions there are and when the first of them changed last."""
    return store.read("SELECT status, count(*), min(updated_at) FROM executions GROUP BY status")


def release(connection: Connection, row_id: int, fence: int) -> None:
    """Leave an execution without an owner, unless another one has taken it."""
    abandon(connection, row_id, fence)
    connection.update("dispatches", {"is_alone": 0}, "execution = ? AND is_alone != 0", row_id)


def abandon(connection: Connection, row_id: int, fence: int) -> None:
    """Do the same without a key: no checksum covers the owner. One that ran alone counts as such until it is claimed."""
    connection.execute("UPDATE executions SET owner = NULL WHERE id = ? AND fence = ?", (row_id, fence))
