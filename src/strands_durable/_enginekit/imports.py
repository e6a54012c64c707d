"""An exported execution, stored again: in a file, or in memory for an engine that keeps a log."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .._journal.owner import user_name
from .._journal.unreadable import DAMAGE
from .._records.change_sets import ChangeSet
from .._records.codec import decode, digest
from .._records.input_hash import input_hash
from .._records.keys import checked_id
from .._records.origins import IMPORTED, ImportOrigin
from .._sqlite.database import Store
from .._sqlite.snapshot.restore import restore
from ..errors import DurableError, FormatVersionError, InvalidExportError
from .export_checks import refuse_invalid
from .export_files import changes_in
from .export_reading import refuse_unreadable
from .replica import Replica

_ONLY_IN_FILES = {"past_heads", "past_state"}


def import_into(store: Store, export: Mapping[str, Any], execution_id: str | None) -> str:
    """Write the execution of an export into a store file, all of it or nothing; return its id."""
    changes, found = checked_changes(export, "The export", execution_id)
    restore(store, changes, execution_id=found)
    return found


def checked_changes(export: Mapping[str, Any], name: str, execution_id: str | None = None) -> tuple[ChangeSet, str]:
    """Return the rows of an export that can be stored, shown and resumed, and the id to store them under.

    Raises:
        InvalidExportError: It has no contents, or rows that do not fit.
        FormatVersionError: A later version has written it.
        InvalidIdError: The id is not valid.
    """
    if execution_id is not None:
        checked_id(execution_id)
    with _refusing(name):
        changes = changes_in(dict(export), name)
        refuse_invalid(changes, name)
        changes = _digested(changes, name)
        (execution,) = changes["tables"]["executions"]
        recorded = execution["execution_id"]
        if export["execution_id"] != recorded:
            raise InvalidExportError(name, f"its rows are those of {recorded!r}, not of its execution_id")
        refuse_unreadable(_replica(changes, recorded), name)
        return _marked(changes, recorded, str(export.get("exported_at"))), execution_id or recorded


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Let whatever is wrong with an export that no check has named be an `InvalidExportError`, too."""
    try:
        yield
    except (InvalidExportError, FormatVersionError):
        raise
    except (*DAMAGE, DurableError, RecursionError, sqlite3.Error) as error:
        raise InvalidExportError(name, f"it cannot be read ({type(error).__name__}: {error})") from error


def _digested(changes: ChangeSet, name: str) -> ChangeSet:
    """Return the rows with digests made here: other executions of a store share what is recorded under one."""
    tables = changes["tables"]
    configs = [{**row, "digest": digest(json.loads(row["data"]))} for row in tables.get("configs", ())]
    if len({row["digest"] for row in configs}) < len(configs):
        raise InvalidExportError(name, "two of its configurations are the same")
    return {**changes, "tables": {**tables, "configs": configs}} if configs else changes


def _marked(changes: ChangeSet, execution_id: str, exported_at: str) -> ChangeSet:
    """Return the rows with a note of the import at the first call, beside that of a fork."""
    tables = changes["tables"]
    roots = [row["id"] for row in tables.get("calls", ()) if row["parent"] == 0 and row["run"] == 0]
    if not roots:
        return changes
    note = ImportOrigin(execution_id=execution_id, exported_at=exported_at, imported_at=time.time(), by=user_name())
    row = {"call": min(roots), "part": IMPORTED, "data": note.to_text()}
    return {**changes, "tables": {**tables, "heads": [*tables.get("heads", ()), row]}}


def replica_of(export: Mapping[str, Any], name: str = "The export", execution_id: str | None = None) -> Replica:
    """Return the execution of an export in memory; raise as `checked_changes` does."""
    changes, found = checked_changes(export, name, execution_id)
    replica = _replica(changes, found)
    with replica.transaction("import") as connection:
        for call_id, text in replica.read("SELECT id, input FROM calls WHERE input IS NOT NULL"):
            connection.update("calls", {"input_hash": input_hash(replica.hash_key, decode(text))}, "id = ?", call_id)
    return replica


def _replica(changes: ChangeSet, execution_id: str) -> Replica:
    """Return rows in memory, under an id; inputs have no hashes yet."""
    replica = Replica.new(f"export of {execution_id}")
    replica.apply(_travelling(changes))
    with replica.transaction("import") as connection:
        connection.update("executions", {"execution_id": execution_id}, "1")
    return replica


def _travelling(changes: ChangeSet) -> ChangeSet:
    """Return the rows that a store in memory has a place for."""
    tables = {
        table: [{name: cell for name, cell in row.items() if name != "version"} for row in rows]
        for table, rows in changes["tables"].items()
        if table not in _ONLY_IN_FILES
    }
    return {**changes, "tables": tables}
