"""Large bytes, stored once: an image in a prompt, in its message and in a tool's result is one row.

Rows of the journal are text, with bytes as base64 in an escape of the codec. At the border to SQLite, escapes of more than a
kilobyte become references to a table of their own, and references become escapes again; the layers above never see one. Text of
a user cannot be mistaken for either: inside a JSON string every quote is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._records.stored_bytes import StoredBytes

if TYPE_CHECKING:
    from .connection import Connection

BYTES_MARK, REFERENCE_MARK = '{"$":"byte', '{"$":"blob"'
_BYTES = re.compile(r'\{"\$":"(bytes|bytearray)","v":"([A-Za-z0-9+/=]{1366,})"\}')
"""1366 characters of base64 are about 1 KB: below it, a reference and a row cost more than the bytes."""
_REFERENCE = re.compile(r'\{"\$":"blob","of":"(bytes|bytearray)","n":(\d+),"v":"([0-9a-f]{64})"\}')
_TRAVELLING = (("calls", "input"), ("calls", "result"), ("steps", "result"), ("messages", "data"), ("heads", "data"),
           ("state", "value"), ("answers", "answer"), ("replies", "answer"), ("steps", "error"), ("failures", "error"),
           ("dispatches", "given"), ("dispatches", "spec"), ("chunks", "data"))  # fmt: skip
PLACES = (*_TRAVELLING, ("past_heads", "data"), ("past_state", "value"))
"""Tables and columns that may refer to large bytes; a store in memory has all but the last two."""
_KEYS = {"$", "of", "n", "v"}
_OF_CALL = "call IN (SELECT id FROM calls WHERE execution = ?)"
_OF_EXECUTION = {
    "calls": "execution = ?",
    "dispatches": "execution = ?",
    "messages": "lineage IN (SELECT lineage FROM calls WHERE execution = ?)",
}


def encoded_in(text: str) -> set[str]:
    """Return the large bytes of a recorded form, in base64."""
    return {encoded for _, encoded in _BYTES.findall(text)}


def referring(text: str, named: Callable[[bytes], str]) -> str:
    """Return a recorded form with references in place of large bytes, each by the name that it is given."""

    def reference(found: re.Match[str]) -> str:
        data = base64.b64decode(found[2])
        return f'{{"$":"blob","of":"{found[1]}","n":{len(data)},"v":"{named(data)}"}}'

    return _BYTES.sub(reference, text) if BYTES_MARK in text else text


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a recorded form whose references have other names; those that are not known stay."""

    def reference(found: re.Match[str]) -> str:
        return f'{{"$":"blob","of":"{found[1]}","n":{found[2]},"v":"{names.get(found[3], found[3])}"}}'

    return _REFERENCE.sub(reference, text) if REFERENCE_MARK in text else text


def references_in(text: str) -> list[str]:
    """Return the references of a recorded form, each once for each time that it occurs."""
    return [found[0] for found in _REFERENCE.finditer(text)]


def expanded(connection: Connection, rows: list[Any]) -> list[Any]:
    """Return rows with the bytes in place of references."""
    return [tuple(_expanded(connection, cell) for cell in row) if _refers(row) else row for row in rows]


def shown(text: str) -> str:
    """Return a recorded form with a few words in place of references, for people."""
    return _REFERENCE.sub(lambda found: f'"<{found[2]} bytes>"', text) if REFERENCE_MARK in text else text


def read(text: str) -> Any:
    """Return a recorded form as JSON data, with `StoredBytes` in place of references."""
    return json.loads(text, object_hook=_stored if REFERENCE_MARK in text else None)


def _stored(found: dict[str, Any]) -> Any:
    return StoredBytes.of(found["n"], found["v"]) if found.keys() == _KEYS and found["$"] == "blob" else found


def bytes_of(connection: Connection, execution: int, digest: str) -> bytes | None:
    """Return stored bytes that an execution refers to; None if it refers to no such bytes."""
    for table, column in _TRAVELLING:
        condition = f"{_OF_EXECUTION.get(table, _OF_CALL)} AND instr({column}, ?)"
        if digest in digests(connection, table, column, condition, execution, digest):
            return stored(connection, digest)
    return None


def digests_in(text: str) -> list[str]:
    """Return the digests of the bytes that a recorded form refers to."""
    return [found[2] for found in _REFERENCE.findall(text)]


def bytes_in(text: str) -> int:
    """Return how many bytes a recorded form refers to."""
    return sum(int(found[1]) for found in _REFERENCE.findall(text)) if REFERENCE_MARK in text else 0


def discard(connection: sqlite3.Connection, unsure: set[str]) -> None:
    """Delete those of these bytes that nothing refers to any more; every place is read at most once."""
    for table, column in _TRAVELLING:
        if not unsure:
            return
        unsure = unsure - digests(connection, table, column)
    connection.executemany("DELETE FROM blobs WHERE digest = ?", [(digest,) for digest in unsure])


def overwrite(connection: Connection, digest: str, data: bytes) -> None:
    """Store other bytes under a name: the same ones, encrypted again."""
    connection.execute("UPDATE blobs SET data = ? WHERE digest = ?", (data, digest))


def discard_unused(connection: Connection) -> None:
    """Delete bytes that no row is counted to refer to."""
    connection.execute("DELETE FROM blobs WHERE digest NOT IN (SELECT digest FROM uses)")


def has_bytes(text: str) -> bool:
    """Return True if a recorded text holds bytes, or refers to them."""
    return BYTES_MARK in text or REFERENCE_MARK in text


def columns(table: str) -> list[str]:
    """Return the columns of a table that may refer to bytes."""
    return [column for place, column in PLACES if place == table]


def digests(connection: sqlite3.Connection, table: str, column: str, condition: str = "1", *values: object) -> set[str]:
    """Return the digests of the bytes that a column refers to."""
    rows = connection.execute(
        f"SELECT {column} FROM {table} WHERE {condition} AND instr({column}, ?)", (*values, REFERENCE_MARK)
    )
    return {digest for (text,) in rows if isinstance(text, str) for digest in digests_in(text)}  # else it is damaged


def _refers(row: Any) -> bool:
    return any(type(cell) is str and REFERENCE_MARK in cell for cell in row)


def _expanded(connection: Connection, cell: Any) -> Any:
    if type(cell) is not str or REFERENCE_MARK not in cell:
        return cell

    def escape(found: re.Match[str]) -> str:
        return f'{{"$":"{found[1]}","v":"{base64.b64encode(stored(connection, found[3])).decode()}"}}'

    return _REFERENCE.sub(escape, cell)


def stored(connection: Connection, digest: str) -> bytes:
    """Return stored bytes; raise if they are missing, or not what was stored."""
    row = connection.execute("SELECT data FROM blobs WHERE digest = ?", (digest,)).fetchone()
    if row is not None and connection.seal is not None:
        return connection.seal.opened_bytes(connection, digest, row[0])
    if row is None or digest_of(row[0]) != digest:
        raise sqlite3.DatabaseError(f"malformed: the bytes {digest} are missing, or not what was stored")
    data: bytes = row[0]
    return data


def digest_of(data: bytes) -> str:
    """Return the name under which bytes are stored in a store that is not encrypted."""
    return hashlib.sha256(data).hexdigest()
