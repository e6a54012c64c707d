"""An exported execution, stored again: in a file, or in memory for an engine that keeps a log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from .._journal.owner import user_name
from .._records.change_sets import ChangeSet
from .._records.codec import decode, digest
from .._records.input_hash import input_hash
from .._records.keys import checked_id
from .._records.origins import IMPORTED, ImportOrigin
from .._sqlite.database import Store
from .._sqlite.snapshot.restore import restore
from .export_checks import refuse_invalid
from .export_files import changes_in
from .replica import Replica

_ONLY_IN_FILES = {"past_heads", "past_state"}


def import_into(store: Store, export: Mapping[str, Any], execution_id: str | None) -> str:
    """Write the execution of an export into a store file, all of it or nothing; return its id."""
    changes, found = checked_changes(export, "The export", execution_id)
    restore(store, changes, execution_id=found)
    return found


def checked_changes(export: Mapping[str, Any], name: str, execution_id: str | None = None) -> tuple[ChangeSet, str]:
    """Return the rows of an export that can be stored, and the id to store them under.

    Raises:
        InvalidExportError: It has no contents, or rows that do not fit.
        FormatVersionError: A later version has written it.
        InvalidIdError: The id is not valid.
    """
    changes = changes_in(dict(export), name)
    refuse_invalid(changes, name)
    changes = _digested(changes)
    (execution,) = changes["tables"]["executions"]
    found = checked_id(execution["execution_id"] if execution_id is None else execution_id)
    return _marked(changes, execution["execution_id"], str(export.get("exported_at"))), found


def _digested(changes: ChangeSet) -> ChangeSet:
    """Return the rows with digests made here: other executions of a store share what is recorded under one."""
    tables = changes["tables"]
    configs = [{**row, "digest": digest(json.loads(row["data"]))} for row in tables.get("configs", ())]
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
    replica = Replica.new(f"export of {found}")
    replica.apply(_travelling(changes))
    with replica.transaction("import") as connection:
        connection.update("executions", {"execution_id": found}, "1")
        for call_id, text in replica.read("SELECT id, input FROM calls WHERE input IS NOT NULL"):
            connection.update("calls", {"input_hash": input_hash(replica.hash_key, decode(text))}, "id = ?", call_id)
    return replica


def _travelling(changes: ChangeSet) -> ChangeSet:
    """Return the rows that a store in memory has a place for."""
    tables = {
        table: [{name: cell for name, cell in row.items() if name != "version"} for row in rows]
        for table, rows in changes["tables"].items()
        if table not in _ONLY_IN_FILES
    }
    return {**changes, "tables": tables}
