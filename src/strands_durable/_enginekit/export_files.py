"""The file of an exported execution: one JSON object that holds everything recorded of it, or only its shape.

    {"strands_durable_export": 1, "format": 6, "package": "1.0.0", "exported_at": "2026-01-31T12:00:00Z",
     "execution_id": "trip-42", "contents": true, "rows": {"executions": [...], "calls": [...], "steps": [...]}}

``rows`` is a change set: rows by table, each with its columns by name, without those that have their default. Recorded forms
are embedded as JSON instead of as text that holds JSON. The file has one row on a line, in a fixed order: two exports of the
same execution can be compared line by line.

Left out is what belongs to the store or to the process that runs the execution (see `export_columns`), and that the execution
was imported into this store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import __version__
from .._records.change_sets import FORMAT, ChangeSet, Row, upgrade
from .._records.json_text import writer
from .._records.origins import IMPORTED
from .._records.steps import shown_status
from .._sqlite.tables import tables
from ..errors import FormatVersionError, InvalidExportError
from .export_columns import TABLES, columns
from .redaction import redacted

VERSION = 1
MAX_BYTES = 1024 * 1024 * 1024
"""How large a file may be that is read."""
_OLDEST = 4
"""The first format whose rows have named columns."""
MARK = "strands_durable_export"
_NO_LEASE: Row = {"fence": 0, "beat": 0, "lease_until": 0.0}
_UNHASHED = ""
FORMS = {
    "calls": ("input", "base", "result"),
    "steps": ("usage", "loop", "result", "error"),
    "dispatches": ("spec", "given"),
    "messages": ("data",),
    "heads": ("data",),
    "past_heads": ("data",),
    "state": ("value",),
    "past_state": ("value",),
    "answers": ("answer",),
    "replies": ("answer",),
    "failures": ("error",),
    "configs": ("data",),
}
"""The columns that hold JSON as text."""
_dump_text, _dump_ascii = writer(ensure_ascii=False), writer()
_line_text, _line_ascii = (writer(separators=(", ", ": "), ensure_ascii=ascii) for ascii in (False, True))


def exported(changes: ChangeSet, execution_id: str, *, contents: bool = True) -> dict[str, Any]:
    """Return the export of an execution, given all its rows; without ``contents``, only their shape."""
    found = {name: [_embedded(name, row) for row in rows] for name, rows in _ordered(changes["tables"]).items()}
    return {
        MARK: VERSION,
        "format": changes["format"],
        "package": __version__,
        "exported_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "execution_id": execution_id,
        "contents": contents,
        "rows": found if contents else redacted(found),
    }


def text_of(export: dict[str, Any]) -> str:
    """Return the file of an export, with one row on a line."""
    return "".join(_lines(export))


def parsed(data: str | bytes, name: str) -> dict[str, Any]:
    """Return the export that is in a file.

    Args:
        data: The content of the file.
        name: The name of the file, for errors.

    Raises:
        InvalidExportError: It is not the export of an execution.
        FormatVersionError: A later version has written it.
    """
    if len(data) > MAX_BYTES:
        raise _too_large(name)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidExportError(name, f"it is not JSON ({error})") from None
    return checked(found, name)


def parsed_file(path: Path) -> dict[str, Any]:
    """Return the export that is in the file at ``path``; raise as `parsed` does."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _too_large(str(path))
        with path.open("rb") as file:  # it may be a device, which has no size
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidExportError(str(path), error.strerror or str(error), "Pass the path of an export.") from None
    return parsed(data, str(path))


def _too_large(name: str) -> InvalidExportError:
    return InvalidExportError(name, f"it has more than {MAX_BYTES // 1024**2} MB")


def checked(found: Any, name: str = "The export") -> dict[str, Any]:
    """Return ``found`` if it has the form of an export of a version that is known here; raise as `parsed` does."""
    if not isinstance(found, dict) or MARK not in found:
        raise InvalidExportError(name, f"it has no field {MARK!r}")
    version, row_format = found[MARK], found.get("format")
    if version != VERSION:
        raise FormatVersionError(name, f"an export of version {version}", f"version {VERSION}")
    if type(row_format) is not int or not _OLDEST <= row_format <= FORMAT:
        raise FormatVersionError(name, f"an export with rows of format {row_format}", f"formats {_OLDEST} to {FORMAT}")
    if not isinstance(found.get("rows"), dict) or not isinstance(found.get("execution_id"), str):
        raise InvalidExportError(name, "it has no rows, or no execution_id")
    return found


def changes_in(export: dict[str, Any], name: str = "The export") -> ChangeSet:
    """Return the rows of an export with contents, in the form in which they are stored.

    Raises:
        InvalidExportError: It has no contents, or rows that are no rows.
        FormatVersionError: A later version has written it.
    """
    if checked(export, name).get("contents") is not True:
        reason = "it was exported without contents, so that there is nothing to run or to show"
        raise InvalidExportError(name, reason, "Export the execution again without --redacted.")
    changes = {"format": export["format"], "tables": {}}
    for table, rows in export["rows"].items():
        if table not in TABLES:
            raise InvalidExportError(name, f"it has rows of {table!r}, which an export does not have")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InvalidExportError(name, f"its rows of {table!r} are no list of objects")
        _refuse_columns(table, rows, name)
        changes["tables"][table] = [_stored(table, row) for row in rows]
    return upgrade(changes)


def _refuse_columns(table: str, rows: list[Row], name: str) -> None:
    for number, row in enumerate(rows, 1):
        unknown = ", ".join(sorted(str(column)[:40] for column in row.keys() - columns(table)))
        if unknown:
            reason = f"row {number} of {table!r} has columns that an export does not have: {unknown}"
            raise InvalidExportError(name, reason)


def _ordered(found: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return rows in the order of the tables and of their keys, without what belongs to a store or to a process."""
    return {
        name: sorted(
            (_portable(name, row) for row in found[name] if row.get("part") != IMPORTED),
            key=lambda row: _place(row, table.key),
        )
        for name, table in tables().items()
        if name in TABLES and found.get(name)
    }


def _portable(table: str, row: Row) -> Row:
    return {name: cell for name, cell in row.items() if name in columns(table)}


def _place(row: Row, key: tuple[str, ...]) -> list[tuple[int, Any]]:
    return [(isinstance(row.get(name), str), row.get(name, 0)) for name in key]


def _embedded(table: str, row: Row) -> Row:
    names = FORMS.get(table, ())
    found = {name: _read(cell) if name in names else cell for name, cell in row.items()}
    if table == "steps":
        found["status"] = shown_status(row["status"], has_error=row.get("error") is not None)
    return found


def _read(text: Any) -> Any:
    """Return a recorded form as JSON; a form that is a text, a number or the like stays the text that it is."""
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return text
    try:
        found = json.loads(text)
        forms = (_dump_text, _dump_ascii, json.dumps)
        return found if any(form(found) == text for form in forms) else text
    except (ValueError, RecursionError):
        return text


def _stored(table: str, row: Row) -> Row:
    names = FORMS.get(table, ())
    cells = {
        name: _dump(cell) if name in names and isinstance(cell, (dict, list)) else cell for name, cell in row.items()
    }
    if table == "steps" and row.get("status") == "error" and row.get("error") is not None:
        cells["status"] = "done"
    added: dict[str, Row] = {"calls": {"input_hash": _UNHASHED}, "executions": _NO_LEASE}
    return {**cells, **added.get(table, {})}


def _dump(value: Any) -> str:
    """Return the form in which a value is stored; half a surrogate pair, which UTF-8 does not have, is escaped."""
    return _encodable(_dump_text(value)) or _dump_ascii(value)


def _dump_line(value: Any) -> str:
    return _encodable(_line_text(value)) or _line_ascii(value)


def _encodable(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _lines(export: dict[str, Any]) -> Iterator[str]:
    yield "{\n"
    for name, value in export.items():
        if name != "rows":
            yield f" {_dump_line(name)}: {_dump_line(value)},\n"
    yield ' "rows": {'
    for number, (table, rows) in enumerate(export["rows"].items()):
        yield f"{',' if number else ''}\n  {_dump_line(table)}: [\n   "
        yield ",\n   ".join(map(_dump_line, rows))
        yield "\n  ]"
    yield "\n }\n}\n"
