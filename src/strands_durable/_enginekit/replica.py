"""A store in memory whose content lives elsewhere: in the history of an engine that keeps what it is given.

Everything the package knows of an execution is rows. A replica holds the rows of one execution, and tells which of them have
changed since it was asked last; applied in order to another replica, these changes make it the same. Whoever keeps the changes
keeps the execution. Knows no Strands and no engine.
"""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
import zlib
from pathlib import Path
from typing import Any

from .._journal.owner import Liveness
from .._journal.sqlite.catalog import detail_of
from .._journal.sqlite.checksums import read_checked
from .._journal.sqlite.connection import Connection
from .._journal.sqlite.database import Store
from .._journal.sqlite.open_files import REPLICA
from .._journal.sqlite.tables import SCHEMA
from .._records.views import ExecutionDetail
from ..errors import FormatVersionError

Rows = dict[str, Any]
"""By table, the rows that are new or changed; under ``"-"``, by table, the keys of those that are gone. JSON."""

_GONE = "-"
_FORMAT = 3
"""Of rows in an engine's history. What a store file has beside them does not travel."""


class Replica(Store):
    """A store in memory, for one execution."""

    def __init__(self, name: str, max_text: int | None = None) -> None:
        self.max_text = max_text
        self.path = Path(f"{REPLICA}{name}")
        self._busy_seconds = 10.0
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256, factory=Connection
        )
        self._lock = self._connection.guard
        for statement in SCHEMA.split(";\n"):
            self._connection.execute(statement)
        self._tables = {name: _Table(self._connection, name) for name in _names(self._connection)}
        self._connection.execute("CREATE TEMP TABLE changed (place TEXT, key TEXT)")
        for table in self._tables.values():
            table.watch(self._connection)
        self._connection.execute("ALTER TABLE executions ADD COLUMN lease_seconds REAL NOT NULL DEFAULT 0")  # not told
        self.liveness = Liveness()
        self._hash_key: bytes | None = None
        self._has_views = False

    @classmethod
    def new(cls, name: str, hash_key: bytes | None = None) -> Replica:
        """Return a replica of an execution that does not exist yet."""
        found = cls(name)
        key = secrets.token_bytes(32) if hash_key is None else hash_key
        found._connection.execute("INSERT INTO secrets VALUES ('hash_key', ?)", (key.hex(),))
        return found

    @property
    def hash_key(self) -> bytes:  # type: ignore[override]
        """The key of the hashes by which inputs are compared."""
        if self._hash_key is None:
            self._hash_key = bytes.fromhex(self.read("SELECT value FROM secrets WHERE name = 'hash_key'")[0][0])
        return self._hash_key

    @property
    def is_current(self) -> bool:
        """Always: it is nowhere else."""
        return True

    def refuse_other(self, *, lately: bool = False) -> None:
        """There is no file that could have been replaced."""

    @property
    def is_replaced(self) -> bool:
        """Never: it is nowhere else."""
        return False

    def scrub(self) -> bool:
        """There is no file that could hold what was overwritten."""
        return True

    def refuse_incomplete(self, call_id: int) -> None:
        """What is in memory does not rot."""

    def refuse_incomplete_calls(self, execution: int, run: int) -> None:
        """What is in memory does not rot."""

    def second_connection(self) -> Connection:
        """There is only one connection to what is in memory."""
        return self._connection

    def changes(self) -> Rows:
        """Return what has changed since this was called last."""
        with self._lock, self._mapped():
            changed = self._connection.execute(
                "SELECT place, key FROM changed GROUP BY place, key ORDER BY min(rowid)"
            ).fetchall()
            self._connection.execute("DELETE FROM changed")
            found: Rows = {}
            for place, key in changed:
                row = self._tables[place].row(self._connection, json.loads(key))
                if row is None:
                    found.setdefault(_GONE, {}).setdefault(place, []).append(json.loads(key))
                else:
                    found.setdefault(place, []).append(row)
            return found

    def apply(self, rows: Rows) -> None:
        """Make changes that another replica told; they are not told again."""
        with self._lock, self._mapped():
            connection = self._connection
            connection.execute("BEGIN")
            try:
                for place, keys in rows.get(_GONE, {}).items():
                    self._tables[place].delete(connection, keys)
                for place, found in rows.items():
                    if place != _GONE:
                        self._tables[place].write(connection, found)
                connection.execute("DELETE FROM changed")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return the execution as `strands-durable show` shows it."""
        with self._lock, self._mapped():
            if not self._has_views:
                read_checked(self._connection)
                self._has_views = True
            (execution_id,) = self._connection.execute("SELECT execution_id FROM executions").fetchone()
            found = detail_of(self._connection, execution_id, run)
        assert found is not None
        return found

    def export(self) -> Rows:
        """Return everything, as changes of an empty replica."""
        with self._lock, self._mapped():
            found = {name: table.all(self._connection) for name, table in self._tables.items()}
            return {name: rows for name, rows in found.items() if rows}


class _Table:
    """One table, and how its rows are told."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._name = name
        columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
        keyed = sorted((column for column in columns if column[5]), key=lambda column: column[5])
        self._columns = [column[1] for column in columns] if keyed else ["rowid", *(column[1] for column in columns)]
        self._key = [column[1] for column in keyed] or ["rowid"]
        self._where = " AND ".join(f"{column} = ?" for column in self._key)

    def watch(self, connection: sqlite3.Connection) -> None:
        """Have every change of a row noted."""
        for event, rows in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
            notes = "".join(
                f"INSERT INTO changed VALUES ('{self._name}', json_array("
                + ", ".join(f"{row}.{column}" for column in self._key)
                + "));"
                for row in rows
            )
            connection.execute(
                f"CREATE TEMP TRIGGER {self._name}_{event} AFTER {event} ON main.{self._name} BEGIN {notes} END"
            )

    def row(self, connection: sqlite3.Connection, key: list[Any]) -> list[Any] | None:
        """Return one row as JSON data; None if it is gone."""
        found = connection.execute(
            f"SELECT {', '.join(self._columns)} FROM {self._name} WHERE {self._where}", key
        ).fetchone()
        return None if found is None else [_cell(cell) for cell in found]

    def all(self, connection: sqlite3.Connection) -> list[list[Any]]:
        """Return all rows as JSON data."""
        rows = connection.execute(
            f"SELECT {', '.join(self._columns)} FROM {self._name} ORDER BY {', '.join(self._key)}"
        )
        return [[_cell(cell) for cell in row] for row in rows]

    def write(self, connection: sqlite3.Connection, rows: list[list[Any]]) -> None:
        """Write rows that were told."""
        places = ", ".join("?" for _ in self._columns)
        connection.executemany(
            f"INSERT OR REPLACE INTO {self._name} ({', '.join(self._columns)}) VALUES ({places})",
            [[_read(cell) for cell in row] for row in rows],
        )

    def delete(self, connection: sqlite3.Connection, keys: list[list[Any]]) -> None:
        """Delete rows by their keys."""
        connection.executemany(f"DELETE FROM {self._name} WHERE {self._where}", keys)


def _names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [name for (name,) in rows]


def _cell(cell: Any) -> Any:
    return {"b": base64.b64encode(cell).decode()} if isinstance(cell, bytes) else cell


def _read(cell: Any) -> Any:
    return base64.b64decode(cell["b"]) if isinstance(cell, dict) else cell


def pack(rows: Rows) -> str:
    """Return rows in a small form, for those that nobody reads in an engine's own views."""
    text = json.dumps({"format": _FORMAT, "rows": rows}, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 6)).decode()


def unpack(packed: str) -> Rows:
    """Return the rows that were packed."""
    data = json.loads(zlib.decompress(base64.b64decode(packed)).decode("utf-8", "surrogatepass"))
    if data["format"] != _FORMAT:
        raise FormatVersionError("an engine's history", f"strands-durable format {data['format']}", f"format {_FORMAT}")
    rows: Rows = data["rows"]
    return rows
