"""Every statement that changes what a checksum covers goes through `Connection`."""

from __future__ import annotations

import ast
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import strands_durable
from strands_durable._sqlite.checksums import DamageError, _are_same, covered, refuse_incomplete_calls
from strands_durable._sqlite.connection import Connection
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.tables import LATER, SCHEMA, tables

SOURCE = Path(strands_durable.__file__).parent
WRITES = re.compile(r"^\s*(INSERT|REPLACE|DELETE|UPDATE)\b.*", re.DOTALL)
OF_A_LEASE = re.compile(r"UPDATE executions SET (.*?)( WHERE .*)?$", re.DOTALL)


def statements(path: Path) -> list[str]:
    """Return the texts of a module that are statements which write."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITES.match(node.value):
            found.append(node.value)
    return found


def is_of_a_lease(statement: str) -> bool:
    match = OF_A_LEASE.match(statement)
    names = {part.split("=")[0].strip() for part in match[1].split(", ")} if match else {"?"}
    return names.isdisjoint({*covered("executions"), "?"})


def test_no_module_but_the_connection_writes_what_a_checksum_covers() -> None:
    apart = {"connection.py", "blobs.py", "schema.py", "checksums.py", "replica.py"}
    written = {
        (path.name, statement)
        for path in SOURCE.rglob("*.py")
        if path.name not in apart
        for statement in statements(path)
        if not is_of_a_lease(statement)
    }
    assert written == set()
    assert not is_of_a_lease("UPDATE executions SET status = 'x', owner = NULL WHERE id = 1")


def test_a_row_that_is_written_in_pieces_has_the_checksum_of_what_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    with store.transaction("test") as connection:
        row_id = connection.insert("removals", execution=7, execution_id="one")
        connection.update("removals", {"execution_id": "two"}, "execution = ?", 7)
        connection.insert("failures", call=1, attempt=True, error="{}", at=1)  # numbers come back as SQLite keeps them
    assert row_id == 0
    assert store.rows("removals", "execution_id", "execution = 7") == [("two",)]
    assert store.rows("failures", "attempt, at", "call = 1") == [(1, 1.0)]
    store.close()


def test_a_damaged_row_gets_no_new_checksum_by_an_update(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    with store.transaction("test") as connection:
        connection.insert("removals", execution=7, execution_id="one")
        connection.execute("UPDATE removals SET execution_id = 'another' WHERE execution = 7")
        with pytest.raises(DamageError, match="does not match its checksum"):
            connection.update("removals", {"execution_id": "two"}, "execution = ?", 7)
        assert connection.delete("removals", "execution = ?", 7) == 1, "damaged rows can be deleted"
    store.close()


def test_rows_in_memory_have_no_checksums(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:", factory=Connection)
    connection.execute("CREATE TABLE heads (call, part, data, PRIMARY KEY (call, part))")
    connection.put("heads", call=1, part="progress", data="{}")
    connection.put("heads", call=1, part="progress", data="[]")
    assert connection.rows("heads", "data", "call = ?", 1) == [("[]",)]
    assert connection.update("heads", {"data": "{}"}, "call = 1") == 1
    connection.close()


@pytest.mark.parametrize("version", [3, *LATER])
def test_the_tables_are_those_that_sqlite_makes_of_the_schema(version: int) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(";".join([SCHEMA, *(LATER[number] for number in LATER if number <= version)]))
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert set(tables(version)) == names - {"sqlite_sequence"}
        for name, table in tables(version).items():
            columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
            keyed = sorted((column for column in columns if column[5]), key=lambda column: int(column[5]))
            assert table.columns == tuple(column[1] for column in columns)
            assert table.key == (tuple(column[1] for column in keyed) or ("rowid",))
            assert table.reals == {column[1] for column in columns if column[2] == "REAL"}
            defaults = {column[1]: None if column[4] is None else int(column[4]) for column in columns}
            assert table.defaults == defaults


class Meanwhile(sqlite3.Connection):
    """A connection beside which another process commits a call whenever this one has read."""

    path: Path

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        found = super().execute(sql, *values)
        with closing(sqlite3.connect(self.path)) as other, other:
            other.execute("INSERT INTO calls SELECT 1, 0, 0, '', count(*) FROM calls")
        return found


def test_a_commit_between_two_looks_is_not_damage(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "runs.db")) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(
            "CREATE TABLE calls (execution, run, parent, place, position, UNIQUE (execution, run, parent, place, position))"
        )
        made.execute("CREATE INDEX calls_by_execution ON calls (execution, run)")
    with closing(sqlite3.connect(tmp_path / "runs.db", factory=Meanwhile)) as connection:
        connection.path = tmp_path / "runs.db"
        refuse_incomplete_calls(connection, 1, 0)
        refuse_incomplete_calls(connection, 1, 0)
        assert connection.execute("SELECT count(*) FROM calls").fetchone()[0] > 1, (
            "there were commits between the looks"
        )


@pytest.mark.parametrize("found", [(b"a\xff", "a", 1, 1), ("a", b"a\xff", 1, 1)])
def test_a_key_in_an_index_that_is_not_text_any_more_is_damage(found: Any) -> None:
    assert _are_same(("a", "a", 1, 1))
    assert not _are_same(found)
