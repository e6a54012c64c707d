"""Change sets: what an engine stores of an execution. A list of them, applied in order, is the execution.

    {"format": 6, "tables": {"steps": [{"id": 7, "call": 1, "key": ...}]}, "gone": {"replies": [{"call": 1, ...}]}}

A changed row is written in full, by table and column; a column it omits has its default. ``gone`` lists the keys of deleted
rows. Bytes are ``{"b": base64}``. Everything is JSON.

A change of the tables increments `FORMAT` and adds a function to `_UPGRADES` that upgrades change sets of the previous format.
Engines keep change sets for as long as executions last, so no function is ever removed or edited: each refers to the columns as
they were in its format. Nothing here reads the schema.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

from ..errors import FormatVersionError
from .steps import split_usage

ChangeSet = dict[str, Any]
Row = dict[str, Any]

FORMAT = 6


def change_set(tables: dict[str, list[Row]], gone: dict[str, list[Row]] | None = None) -> ChangeSet:
    """Return a change set of this format; an empty dict if nothing has changed."""
    if not tables and not gone:
        return {}
    found: ChangeSet = {"format": FORMAT, "tables": tables}
    return {**found, "gone": gone} if gone else found


def upgrade(changes: ChangeSet) -> ChangeSet:
    """Return a change set of any earlier format, upgraded to the current one."""
    if not changes:
        return changes
    version = changes.get("format", 3)
    while version in _UPGRADES:
        version, changes = version + 1, _UPGRADES[version](changes)
    if version != FORMAT:
        raise FormatVersionError("an engine's history", f"strands-durable format {version}", f"format {FORMAT}")
    return changes


def rows_of(changes: ChangeSet, table: str) -> list[Row]:
    """Return the new and changed rows of a table."""
    found: list[Row] = changes.get("tables", {}).get(table, [])
    return found


def map_cells(changes: Any, change: Callable[[Any], Any]) -> Any:
    """Return a change set, of any format, with each cell changed; the keys of deleted rows stay as they are."""
    if not isinstance(changes, dict):
        return changes
    if "format" not in changes:  # format 3
        return {
            name: [[change(cell) for cell in row] for row in rows] if isinstance(rows, list) else rows
            for name, rows in changes.items()
        }
    if "rows" in changes:
        return {**changes, "rows": map_cells(changes["rows"], change)}
    tables = {
        name: [{column: change(cell) for column, cell in row.items()} for row in rows]
        for name, rows in changes["tables"].items()
    }
    return {**changes, "tables": tables}


def pack(changes: ChangeSet) -> str:
    """Return a change set in a small form, for machines rather than for an engine's own views."""
    text = json.dumps(changes, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 6)).decode()


def unpack(packed: str) -> ChangeSet:
    """Return the change set that was packed, in its own format."""
    found: ChangeSet = json.loads(zlib.decompress(base64.b64decode(packed)).decode("utf-8", "surrogatepass"))
    return found


# Format 3: rows are lists in column order, under the names of their tables; keys of deleted rows are under "-".
# Packed change sets are {"format": 3, "rows": ...}, others have no format number.

_COLUMNS_3 = {
    "executions": "id execution_id kind status run created_at updated_at fence beat owner lease_until cancel_asked_at"
    " listened_until",
    "dispatches": "execution agent fingerprint spec given is_suspected is_alone deaths tries not_before note",
    "calls": "id execution run parent place position kind member scope lineage state_of status attempt input input_hash base"
    " config result started_at taken_up_at ended_at",
    "failures": "rowid call attempt error at",
    "answers": "call interrupt_id answer at",
    "replies": "call interrupt_id answer at",
    "steps": "id call key attempt kind name title status config started_at ended_at usage result error number",
    "chunks": "call key attempt number data",
    "messages": "lineage seq data",
    "heads": "call part data",
    "state": "call key value",
    "configs": "id digest data",
    "blobs": "digest data",
    "secrets": "name value",
}
_KEYS_3 = {
    "executions": "id",
    "dispatches": "execution",
    "calls": "id",
    "failures": "rowid",
    "answers": "call interrupt_id",
    "replies": "call interrupt_id",
    "steps": "id",
    "chunks": "call key attempt number",
    "messages": "lineage seq",
    "heads": "call part",
    "state": "call key",
    "configs": "id",
    "blobs": "digest",
    "secrets": "name",
}
_GONE_3 = "-"


def _to_4(changes: ChangeSet) -> ChangeSet:
    """Name the columns."""
    rows = changes.get("rows", changes)
    tables = {name: _named(_COLUMNS_3[name], found) for name, found in rows.items() if name != _GONE_3}
    gone = {name: _named(_KEYS_3[name], keys) for name, keys in rows.get(_GONE_3, {}).items()}
    return {"format": 4, "tables": tables, "gone": gone}


def _to_5(changes: ChangeSet) -> ChangeSet:
    """Separate the usage of a step from its place in the loop."""
    tables = {
        name: [_split(row) for row in rows] if name == "steps" else rows for name, rows in changes["tables"].items()
    }
    return {**changes, "format": 5, "tables": tables}


def _to_6(changes: ChangeSet) -> ChangeSet:
    """An execution may have tags, of which earlier formats know nothing."""
    return {**changes, "format": 6}


def _split(row: Row) -> Row:
    if row.get("usage") is None:
        return row
    usage, loop = split_usage(json.loads(row["usage"]))
    texts = {name: json.dumps(part) for name, part in (("usage", usage), ("loop", loop)) if part is not None}
    return {**{name: cell for name, cell in row.items() if name != "usage"}, **texts}


def _named(columns: str, rows: list[list[Any]]) -> list[Row]:
    names = columns.split()
    return [dict(zip(names, row, strict=True)) for row in rows]


_UPGRADES: dict[int, Callable[[ChangeSet], ChangeSet]] = {3: _to_4, 4: _to_5, 5: _to_6}
"""Upgrade functions, by the format that they upgrade from."""
