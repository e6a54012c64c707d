"""Holds: marks on executions that neither retention nor a removal may pass."""

from __future__ import annotations

import time

from ..._journal.owner import user_name
from ...errors import ExecutionHeldError, ExecutionNotFoundError
from .. import ownership
from ..connection import Connection
from ..database import Store


def hold(store: Store, execution_id: str) -> None:
    """Mark an execution; one that is marked stays as it is."""
    row_id = _found(store, execution_id)
    with store.transaction("hold") as connection:
        if not is_held(connection, row_id):
            _refuse_removed(connection, row_id, execution_id, store)
            connection.insert("holds", execution=row_id, at=time.time(), by=user_name())


def release(store: Store, execution_id: str) -> None:
    """Take the mark off an execution, if there is one."""
    row_id = _found(store, execution_id)
    with store.transaction("release") as connection:
        connection.delete("holds", "execution = ?", row_id)


def refuse_held(connection: Connection, row_id: int, execution_id: str) -> None:
    """Raise if an execution is held; a mark that is damaged counts."""
    if is_held(connection, row_id):
        raise ExecutionHeldError(execution_id)


def is_held(connection: Connection, row_id: int) -> bool:
    """Return whether an execution is held."""
    return connection.execute("SELECT 1 FROM holds WHERE execution = ?", (row_id,)).fetchone() is not None


def _found(store: Store, execution_id: str) -> int:
    found = ownership.find(store, execution_id)
    if found is None:
        raise ExecutionNotFoundError(execution_id, str(store.path))
    return found[0]


def _refuse_removed(connection: Connection, row_id: int, execution_id: str, store: Store) -> None:
    """Raise if the execution was removed a moment ago."""
    if connection.execute("SELECT 1 FROM executions WHERE id = ?", (row_id,)).fetchone() is None:
        raise ExecutionNotFoundError(execution_id, str(store.path))
