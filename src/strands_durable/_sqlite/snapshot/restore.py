"""Writing an execution from a change set into a store file, under an id that is free there.

Numbers of rows belong to a file: everything gets new ones, and whatever refers to a row follows. Calls refer to calls and
configurations, steps to both; a message to the steps and the input that it came from; the result of a node to the call inside
it. Large bytes that the file has are not written again.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from ..._records.change_sets import ChangeSet, Row, rows_of, upgrade
from ..._records.codec import decode
from ..._records.input_hash import input_hash
from ..._records.json_text import writer
from ..._records.keys import checked_id
from ...errors import ExecutionExistsError
from .. import blobs
from ..connection import Connection
from ..database import Store
from . import names

_OF_CALLS = ("failures", "answers", "replies", "heads", "state", "past_heads", "past_state")
_dump = writer()


def restore(store: Store, changes: ChangeSet, *, execution_id: str, is_foreign: bool = True) -> None:
    """Write an execution into a store file, in one transaction; in the one that is open, if there is one.

    Args:
        store: A file. A store in memory takes a change set by `Replica.apply`.
        changes: All rows of one execution, of any format; see `snapshot`.
        execution_id: The id that it gets.
        is_foreign: Whether it comes from another store: the hashes of inputs are then made with the key of this one. An
            input that was redacted cannot be hashed again, and matches no input any more.

    Raises:
        ExecutionExistsError: The store has an execution with this id.
    """
    checked_id(execution_id)
    if store.connection.in_transaction:
        _Restoring(store, upgrade(changes), execution_id, is_foreign).write()
        return
    with store.transaction("restore"):
        _Restoring(store, upgrade(changes), execution_id, is_foreign).write()


class _Restoring:
    """One execution on its way into a file."""

    def __init__(self, store: Store, changes: ChangeSet, execution_id: str, is_foreign: bool) -> None:
        self._store, self._changes, self._execution_id, self._is_foreign = store, changes, execution_id, is_foreign
        self._connection: Connection = store.connection
        self._calls: dict[int, int] = {0: 0}
        self._steps: dict[int, int] = {}
        self._configs: dict[int, int] = {0: 0}

    def write(self) -> None:
        """Write all rows."""
        connection = self._connection
        if connection.execute("SELECT 1 FROM executions WHERE execution_id = ?", (self._execution_id,)).fetchone():
            raise ExecutionExistsError(self._execution_id, str(self._store.path))
        given = {
            row["digest"]: connection.store_bytes(base64.b64decode(row["data"]["b"])) for row in self._rows("blobs")
        }
        if self._is_foreign and connection.seal is not None:
            tables = names.inside(connection, self._changes["tables"], given)
            self._changes = {**self._changes, "tables": tables}
        (execution,) = self._rows("executions")
        number = connection.insert(
            "executions", **{**_without(execution, "id"), "execution_id": self._execution_id, "owner": None}
        )
        for table in ("dispatches", "tags"):
            for row in self._rows(table):
                connection.insert(table, **{**row, "execution": number})
        self._write_configs()
        self._write_calls(number)
        self._write_steps()
        self._write_messages()
        self._write_parts()

    def _rows(self, table: str) -> list[Row]:
        return rows_of(self._changes, table)

    def _write_configs(self) -> None:
        for row in self._rows("configs"):
            found = self._connection.execute("SELECT id FROM configs WHERE digest = ?", (row["digest"],)).fetchone()
            number = found[0] if found else self._connection.insert("configs", **_without(row, "id"))
            self._configs[row["id"]] = int(number)

    def _write_calls(self, execution: int) -> None:
        rows = sorted(self._rows("calls"), key=lambda row: int(row["id"]))
        first = self._connection.next_id("calls")
        self._calls.update({row["id"]: first + place for place, row in enumerate(rows)})
        for row in rows:
            state_of = row.get("state_of")
            self._connection.insert(
                "calls",
                **{
                    **row,
                    "id": self._calls[row["id"]],
                    "execution": execution,
                    "parent": self._calls[row["parent"]],
                    "lineage": self._calls[row["lineage"]],
                    "state_of": None if state_of is None else self._calls[state_of],
                    "config": self._configs[row["config"]],
                    "input_hash": self._hash(row),
                    "kept": 0,  # counted as its rows are written
                },
            )

    def _hash(self, row: Row) -> str:
        if not self._is_foreign or row.get("input") is None:
            return str(row["input_hash"])
        ((text,),) = blobs.expanded(self._connection, [(row["input"],)])
        return input_hash(self._store.hash_key, decode(text))

    def _write_steps(self) -> None:
        rows = sorted(self._rows("steps"), key=lambda row: int(row["id"]))
        first = self._connection.next_id("steps")
        self._steps.update({row["id"]: first + place for place, row in enumerate(rows)})
        for row in rows:
            changed: Row = {"id": self._steps[row["id"]], "call": self._calls[row["call"]]}
            if row.get("config") is not None:
                changed["config"] = self._configs[row["config"]]
            if row["kind"] == "node" and row.get("result") is not None:
                changed["result"] = self._visit(row["result"])
            self._connection.insert("steps", **{**row, **changed})

    def _visit(self, text: str) -> str:
        """Return the recorded outcome of a node's visit, which names the call inside it."""
        found = json.loads(text)
        return _dump({**found, "call": self._calls[found["call"]]}) if found.get("call") is not None else text

    def _write_messages(self) -> None:
        for row in self._rows("messages"):
            data = self._message(json.loads(row["data"]), row["data"])
            self._connection.insert("messages", lineage=self._calls[row["lineage"]], seq=row["seq"], data=data)

    def _message(self, form: dict[str, Any], text: str) -> str:
        """Return the recorded form of a message, which names steps or a call, or is the message itself."""
        if "step" in form:
            return _dump({**form, "step": self._steps[form["step"]]})
        if "input" in form:
            return _dump({**form, "input": self._calls[form["input"]]})
        if "blocks" in form:
            blocks = [self._steps[block] if isinstance(block, int) else block for block in form["blocks"]]
            return _dump({**form, "blocks": blocks})
        return text

    def _write_parts(self) -> None:
        """Write what belongs to calls. A head without a version is one of now: nothing is known of what it was before."""
        last = max((row.get("number") or 0 for row in self._rows("steps")), default=0)
        for table in _OF_CALLS:
            for row in self._rows(table):
                more = {"version": row.get("version", last)} if table in ("heads", "state") else {}
                cells = {**_without(row, "rowid"), **more, "call": self._calls[row["call"]]}
                self._connection.insert(table, **cells)


def _without(row: Row, name: str) -> Row:
    return {column: cell for column, cell in row.items() if column != name}
