"""Checks of an export before any of it is written: its rows fit the tables, and refer only to each other.

A file may come from anywhere, and may have been edited. What passes here can be stored, shown and resumed; that it is
what an agent has really done cannot be checked.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from .._records.calls import CallProgress
from .._records.change_sets import ChangeSet, Row, rows_of
from .._records.executions import ExecutionStatus
from .._records.keys import checked_id
from .._records.spec import AgentSpec
from .._sqlite import blobs
from .._sqlite.tables import Table, tables
from ..errors import InvalidExportError, InvalidIdError
from .export_columns import MisfitError
from .export_files import FORMS
from .export_order import refuse_disorder

T = TypeVar("T")
_STATUSES = frozenset(status.value for status in ExecutionStatus)
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
        _refuse_unknown_sources(changes)
        _refuse_unreadable_parts(changes)
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
    if table in ("executions", "calls") and row["status"] not in _STATUSES:
        raise MisfitError(f"{where} has an unknown status: {row['status'][:40]!r}")
    if row.get("kind") not in _KINDS.get(table, {row.get("kind")}):
        raise MisfitError(f"{where} has an unknown kind: {row['kind'][:40]!r}")


def _fits(shape: Table, column: str, cell: Any) -> bool:
    if column in shape.integers:
        return type(cell) is int and abs(cell) < 2**63
    if column in shape.reals:
        return type(cell) in (int, float)
    if column in shape.blobs:
        return isinstance(cell, dict) and cell.keys() == {"b"} and isinstance(cell["b"], str)
    return isinstance(cell, str)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_unknown_references(changes: ChangeSet) -> None:
    known = {table: {row["id"] for row in rows_of(changes, table)} for table in ("executions", "calls", "configs")}
    for table, column, other in _REFERENCES:
        for row in rows_of(changes, table):
            found = row.get(column)
            if found is not None and found != _NONE and found not in known[other]:
                raise MisfitError(f"a row of {table!r} refers to {other[:-1]} {found}, which is not in the file")


def _refuse_unknown_sources(changes: ChangeSet) -> None:
    """Refuse messages and nodes that refer to steps and calls which are not there."""
    steps, calls = ({row["id"] for row in rows_of(changes, table)} for table in ("steps", "calls"))
    for row in rows_of(changes, "messages"):
        form = json.loads(row["data"])
        if not isinstance(form, dict):
            raise MisfitError(f"message {row['seq']} of call {row['lineage']} has no known form")
        found = [block for block in _listed(form.get("blocks")) if type(block) is int]
        if not steps.issuperset([*found, *([form["step"]] if "step" in form else [])]):
            raise MisfitError(
                f"message {row['seq']} of call {row['lineage']} refers to a step which is not in the file"
            )
        if "input" in form and form["input"] not in calls:
            raise MisfitError(
                f"message {row['seq']} of call {row['lineage']} refers to a call which is not in the file"
            )
    for row in rows_of(changes, "steps"):
        visit = json.loads(row["result"]) if row["kind"] == "node" and row.get("result") is not None else None
        if isinstance(visit, dict) and visit.get("call") not in {None, *calls}:
            raise MisfitError(f"step {row['key']!r} refers to a call which is not in the file")


def _refuse_unreadable_parts(changes: ChangeSet) -> None:
    """Refuse what would leave an execution in a store that cannot be shown or resumed there."""
    is_dispatched = rows_of(changes, "executions")[0]["kind"] == "dispatched"
    if len(rows_of(changes, "dispatches")) != is_dispatched:
        raise MisfitError("it has no dispatch, or one too many")
    for row in rows_of(changes, "dispatches"):
        spec, given = json.loads(row["spec"]), json.loads(row["given"])
        if _made(AgentSpec.from_json, spec) is None or not isinstance(given, dict):
            raise MisfitError("its dispatch has no known form")
    known = {(row["lineage"], row["seq"]) for row in rows_of(changes, "messages")}
    heads = {(row["call"], row["part"]): row["data"] for row in rows_of(changes, "heads")}
    for row in rows_of(changes, "calls"):
        if row["lineage"] != _NONE:
            _refuse_call(row, heads, known)


def _refuse_call(row: Row, heads: dict[tuple[int, str], str], known: set[tuple[int, int]]) -> None:
    where, found = f"call {row['id']}", heads.get((row["id"], "progress"))
    if found is None:
        raise MisfitError(f"{where} has no head")
    ranges: Any = []
    for text in (found, heads.get((row["id"], "closing"), found)):
        progress = json.loads(text)
        if _made(_progress, progress) is None:
            raise MisfitError(f"the head of {where} has no known form")
        ranges += progress.get("ranges", [])
    for bounds in [*ranges, *_listed(json.loads(row["base"]))]:
        span = _made(_span, bounds)
        if span is None or len(span) > len(known) or any((row["lineage"], seq) not in known for seq in span):
            raise MisfitError(f"{where} refers to messages that are not in the file")


def _progress(found: Any) -> CallProgress:
    return CallProgress(**found)


def _span(bounds: Any) -> range:
    first, last = bounds
    return range(first, last + 1)


def _made(make: Callable[[Any], T], of: Any) -> T | None:
    """Return what can be made of recorded data; None if it has no known form."""
    try:
        return make(of)
    except (TypeError, ValueError, LookupError, AttributeError):
        return None


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


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
