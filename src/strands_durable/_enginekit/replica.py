"""A store in memory whose content lives elsewhere: in the log of an engine.

Everything the package knows about an execution is rows. A replica holds the rows of one execution and reports which of them
have changed since the last report. Applied in order to another replica, these changes make it the same, so an engine that keeps
the changes keeps the execution. Knows no Strands and no engine.
"""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
from pathlib import Path
from typing import Any

from .._journal.owner import Beat, Liveness
from .._records.change_sets import ChangeSet, Row, change_set, upgrade
from .._records.executions import ExecutionRecord
from .._records.views import ExecutionDetail
from .._sqlite.blobs import bytes_of
from .._sqlite.connection import Connection
from .._sqlite.database import Store
from .._sqlite.inspection.detail import detail_of
from .._sqlite.inspection.listing import record_of
from .._sqlite.inspection.verified import read_checked
from .._sqlite.open_files import REPLICA
from .._sqlite.tables import TRAVELLING
from ..errors import UnreadableError


class Replica(Store):
    """A store in memory, for one execution."""

    keeps_past = keeps_notices = removes_contents = False

    def __init__(self, name: str, max_text: int | None = None) -> None:
        self.max_text = max_text
        self.path = Path(f"{REPLICA}{name}")
        self._busy_seconds = 10.0
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256, factory=Connection
        )
        self._lock = self._connection.guard
        for statement in TRAVELLING:
            self._connection.execute(statement)
        self._tables = {name: _Table(self._connection, name) for name in _names(self._connection)}
        self._connection.execute("CREATE TEMP TABLE changed (place TEXT, key TEXT)")
        for table in self._tables.values():
            table.watch(self._connection)
        self._connection.execute(
            "ALTER TABLE executions ADD COLUMN lease_seconds REAL NOT NULL DEFAULT 0"
        )  # not reported
        self.liveness = _EngineDecides()
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
        """Always true: there is no other copy on disk."""
        return True

    def refuse_other(self, *, lately: bool = False) -> None:
        """Do nothing: there is no file that could have been replaced."""

    @property
    def is_replaced(self) -> bool:
        """Never true: there is no other copy on disk."""
        return False

    def scrub(self) -> bool:
        """Return True: there is no file that could hold overwritten data."""
        return True

    def refuse_incomplete(self, call_id: int) -> None:
        """Do nothing: data in memory does not decay."""

    def refuse_incomplete_calls(self, execution: int, run: int) -> None:
        """Do nothing: data in memory does not decay."""

    def second_connection(self) -> Connection:
        """Return the only connection: a database in memory has no other."""
        return self._connection

    def changes(self) -> ChangeSet:
        """Return what has changed since this was called last; an empty dict if nothing has."""
        with self._lock, self._mapped():
            changed = self._connection.execute(
                "SELECT place, key FROM changed GROUP BY place, key ORDER BY min(rowid)"
            ).fetchall()
            self._connection.execute("DELETE FROM changed")
            tables: dict[str, list[Row]] = {}
            gone: dict[str, list[Row]] = {}
            for place, key in changed:
                table = self._tables[place]
                row = table.row(self._connection, json.loads(key))
                if row is None:
                    gone.setdefault(place, []).append(table.key_of(json.loads(key)))
                else:
                    tables.setdefault(place, []).append(row)
            return change_set(tables, gone)

    def apply(self, *changes: ChangeSet) -> None:
        """Apply changes that another replica reported, of any format, in order and atomically; they are not reported again."""
        with self._lock, self._mapped():
            connection = self._connection
            connection.execute("BEGIN")
            try:
                for each in map(upgrade, changes):
                    self._apply(each)
                connection.execute("DELETE FROM changed")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def _apply(self, changes: ChangeSet) -> None:
        for place, keys in changes.get("gone", {}).items():
            self._tables[place].delete(self._connection, keys)
        for place, rows in changes.get("tables", {}).items():
            self._tables[place].write(self._connection, rows)

    def detail(self, run: int | None = None, *, is_alive: bool = False) -> ExecutionDetail:
        """Return the execution as `strands-durable show` shows it; with ``is_alive``, its recorded owner runs."""
        with self._lock, self._mapped():
            found = detail_of(self._connection, self._viewed(), run, is_alive=is_alive)
        assert found is not None
        return found

    def recorded_bytes(self, digest: str) -> bytes | None:
        """Return large bytes that the execution refers to; None if it refers to no such bytes."""
        with self._lock, self._mapped():
            (row_id,) = self._connection.execute("SELECT id FROM executions").fetchone()
            return bytes_of(self._connection, row_id, digest)

    def record(self) -> ExecutionRecord:
        """Return the execution as a list shows it."""
        with self._lock, self._mapped():
            found = record_of(self._connection, self._viewed())
        assert found is not None
        return found[1]

    def _viewed(self) -> str:
        """Return the id of the execution, once there are the views that queries for people use."""
        if not self._has_views:
            read_checked(self._connection)
            self._has_views = True
        (execution_id,) = self._connection.execute("SELECT execution_id FROM executions").fetchone()
        return str(execution_id)

    def export(self) -> ChangeSet:
        """Return all rows, as changes to an empty replica."""
        with self._lock, self._mapped():
            found = {name: table.all(self._connection) for name, table in self._tables.items()}
            return change_set({name: rows for name, rows in found.items() if rows})


class _EngineDecides(Liveness):
    """Treats every owner as dead: the engine tracks owners, and does not use a replica while another owner is alive."""

    def is_alive(self, found: Beat, state_of: object = None) -> bool:
        """Return False."""
        return False


class _Table:
    """One table, and how its rows are reported."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._name = name
        columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
        keyed = sorted((column for column in columns if column[5]), key=lambda column: column[5])
        self._key = [column[1] for column in keyed] or ["rowid"]
        self._where = " AND ".join(f"{column} = ?" for column in self._key)
        defaults = {column[1]: _value(connection, column[4]) for column in columns}
        self._defaults = defaults if keyed else {"rowid": None, **defaults}
        self.columns = tuple(self._defaults)
        names = ", ".join(self.columns)
        self._select = f"SELECT {names} FROM {name}"
        self._insert = f"INSERT OR REPLACE INTO {name} ({names}) VALUES ({', '.join('?' for _ in self._defaults)})"

    def watch(self, connection: sqlite3.Connection) -> None:
        """Install triggers that record every changed row."""
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

    def row(self, connection: sqlite3.Connection, key: list[Any]) -> Row | None:
        """Return one row as JSON data; None if it was deleted."""
        found = connection.execute(f"{self._select} WHERE {self._where}", key).fetchone()
        return None if found is None else self._reported(found)

    def all(self, connection: sqlite3.Connection) -> list[Row]:
        """Return all rows as JSON data."""
        rows = connection.execute(f"{self._select} ORDER BY {', '.join(self._key)}")
        return [self._reported(row) for row in rows]

    def key_of(self, key: list[Any]) -> Row:
        """Return the key of a row, by column name."""
        return dict(zip(self._key, key, strict=True))

    def write(self, connection: sqlite3.Connection, rows: list[Row]) -> None:
        """Write rows that were reported."""
        connection.executemany(self._insert, [self._cells(row) for row in rows])

    def delete(self, connection: sqlite3.Connection, keys: list[Row]) -> None:
        """Delete rows by their keys."""
        sql = f"DELETE FROM {self._name} WHERE {self._where}"
        connection.executemany(sql, [[key[name] for name in self._key] for key in keys])

    def _reported(self, cells: Any) -> Row:
        """Return a row without the columns that have their default."""
        named = zip(self._defaults.items(), cells, strict=True)
        return {name: _cell(cell) for (name, default), cell in named if cell != default}

    def _cells(self, row: Row) -> list[Any]:
        unknown = row.keys() - self._defaults.keys()
        if unknown:
            raise UnreadableError(
                f"a row of {self._name!r} has columns that this version does not know: {', '.join(unknown)}"
            )
        return [_read(row.get(name, default)) for name, default in self._defaults.items()]


def _names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [name for (name,) in rows]


def _value(connection: sqlite3.Connection, default: str | None) -> Any:
    return None if default is None else connection.execute(f"SELECT {default}").fetchone()[0]


def _cell(cell: Any) -> Any:
    return {"b": base64.b64encode(cell).decode()} if isinstance(cell, bytes) else cell


def _read(cell: Any) -> Any:
    return base64.b64decode(cell["b"]) if isinstance(cell, dict) else cell
