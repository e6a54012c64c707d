"""Checks of an export before any of it is written: its rows fit the tables, and refer only to each other.

A file may come from anywhere, and may have been edited. What passes here can be stored, shown and resumed; that it is
what an agent has really done cannot be checked.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, get_args

from .._records.change_sets import ChangeSet, Row, rows_of
from .._records.executions import ExecutionStatus
from .._records.keys import checked_id
from .._records.steps import StepStatus
from .._sqlite import blobs
from .._sqlite.tables import Table, tables
from ..errors import InvalidExportError, InvalidIdError
from .export_columns import MisfitError
from .export_files import FORMS
from .export_forms import is_count
from .export_order import refuse_disorder
from .export_values import refuse_values

_OF_EXECUTIONS = {status.value for status in ExecutionStatus}
_STATUSES = {"executions": _OF_EXECUTIONS, "calls": _OF_EXECUTIONS, "steps": set(get_args(StepStatus))}
_LAST_TIME = 253_000_000_000
"""A time of the year 9987, in seconds since the epoch: a clock of any time zone can show what is before."""
_KINDS = {
    "executions": {"inline", "dispatched"},
    "calls": {"agent", "graph", "swarm"},
    "steps": {"model", "tool", "node", "effect"},
}
_NONE = 0
"""In the place of a number that is not known yet: the conversation of a call that has not begun."""
_REFERENCES = (
    ("dispatches", "execution", "executions"), ("tags", "execution", "executions"), ("calls", "execution", "executions"),
    ("calls", "parent", "calls"), ("calls", "lineage", "calls"), ("calls", "state_of", "calls"), ("calls", "config", "configs"),
    ("steps", "call", "calls"), ("steps", "config", "configs"), ("failures", "call", "calls"), ("answers", "call", "calls"),
    ("replies", "call", "calls"), ("heads", "call", "calls"), ("state", "call", "calls"), ("past_heads", "call", "calls"),
    ("past_state", "call", "calls"), ("messages", "lineage", "calls"),
)  # fmt: skip
"""Columns with the number of a row, and the table of that row."""


def refuse_invalid(changes: ChangeSet, name: str) -> None:
    """Raise `InvalidExportError` unless the rows are one execution that can be stored.

    Args:
        changes: All rows of the execution.
        name: The name of the file, for errors.
    """
    try:
        _refuse_misfits(changes)
        _refuse_unknown_references(changes)
        refuse_disorder(changes)
        refuse_values(changes)
        _refuse_unknown_messages(changes)
        _refuse_missing_bytes(changes)
    except MisfitError as error:
        raise InvalidExportError(name, str(error)) from None


def _refuse_misfits(changes: ChangeSet) -> None:
    for table, rows in changes["tables"].items():
        shape, keys = tables()[table], set()
        for number, row in enumerate(rows, 1):
            where = f"row {number} of {table!r}"
            _refuse_cells(where, table, shape, row)
            key = tuple(row.get(name) for name in shape.key)
            if key in keys and shape.key != ("rowid",):
                raise MisfitError(f"{where} has the same key as another one")
            keys.add(key)
    executions = rows_of(changes, "executions")
    if len(executions) != 1:
        raise MisfitError(f"it has {len(executions)} executions instead of one")
    try:
        checked_id(executions[0].get("execution_id"))
    except InvalidIdError as error:
        raise MisfitError(str(error)) from None


def _refuse_cells(where: str, table: str, shape: Table, row: Row) -> None:
    for column in shape.columns:
        cell = row.get(column, shape.defaults[column])
        if cell is None and column not in shape.required:
            continue
        if not _fits(shape, column, cell):
            raise MisfitError(f"{where} has no fitting {column!r}: {str(cell)[:40]!r}")
        if column in FORMS.get(table, ()) and not _is_json(cell):
            raise MisfitError(f"{where} has a {column!r} that is not JSON")
    if row.get("status") not in _STATUSES.get(table, {row.get("status")}):
        raise MisfitError(f"{where} has an unknown status: {row['status'][:40]!r}")
    if row.get("kind") not in _KINDS.get(table, {row.get("kind")}):
        raise MisfitError(f"{where} has an unknown kind: {row['kind'][:40]!r}")


def _fits(shape: Table, column: str, cell: Any) -> bool:
    if column in shape.integers:
        return is_count(cell)
    if column in shape.reals:
        return type(cell) in (int, float) and 0 <= cell < _LAST_TIME
    if column in shape.blobs:
        return isinstance(cell, dict) and cell.keys() == {"b"} and isinstance(cell["b"], str)
    return isinstance(cell, str) and _is_storable(cell)


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only JSON can hold, escaped
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(text: str) -> None:
    raise ValueError(text)  # NaN and the like, which SQLite does not take for JSON


def _refuse_unknown_references(changes: ChangeSet) -> None:
    known = {table: {row["id"] for row in rows_of(changes, table)} for table in ("executions", "calls", "configs")}
    for table, column, other in _REFERENCES:
        for row in rows_of(changes, table):
            found = row.get(column)
            if found is not None and found != _NONE and found not in known[other]:
                raise MisfitError(f"a row of {table!r} refers to {other[:-1]} {found}, which is not in the file")


def _refuse_unknown_messages(changes: ChangeSet) -> None:
    """Refuse calls that refer to messages which are not there."""
    known = {(row["lineage"], row["seq"]) for row in rows_of(changes, "messages")}
    bases = [(row["id"], row["base"]) for row in rows_of(changes, "calls")]
    lineages = {row["id"]: row["lineage"] for row in rows_of(changes, "calls")}
    heads = rows_of(changes, "heads")  # a fork may have lost messages that only an earlier head had in sight
    found = [(row["call"], json.loads(row["data"])) for row in heads if row["part"] in ("progress", "closing")]
    ranges = [(call_id, head.get("ranges", [])) for call_id, head in found]
    for call_id, bounds in [*((call_id, json.loads(text)) for call_id, text in bases), *ranges]:
        for first, last in bounds:
            span = range(first, last + 1)
            if len(span) > len(known) or any((lineages[call_id], seq) not in known for seq in span):
                raise MisfitError(f"call {call_id} refers to messages that are not in the file")


def _refuse_missing_bytes(changes: ChangeSet) -> None:
    known = set()
    for row in rows_of(changes, "blobs"):
        try:
            data = base64.b64decode(row["data"]["b"], validate=True)
        except (binascii.Error, ValueError):
            raise MisfitError(f"the bytes {row['digest'][:12]} are not base64") from None
        if blobs.digest_of(data) != row["digest"]:
            raise MisfitError(f"the bytes {row['digest'][:12]} do not match their digest")
        known.add(row["digest"])
    missing = next((digest for digest in _digests(changes) if digest not in known), None)
    if missing is not None:
        raise MisfitError(f"bytes that a row refers to ({missing[:12]}) are not in the file")


def _digests(changes: ChangeSet) -> Iterator[str]:
    for table, column in blobs.PLACES:
        for row in rows_of(changes, table):
            yield from blobs.digests_in(row.get(column) or "")
