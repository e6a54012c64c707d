"""C49: a check of a whole store finds every changed byte of a recorded value, and says whose it is and what is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable import Verification, connect, errors
from strands_durable._sqlite import checksums
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.tables import tables
from strands_durable._sqlite.verification import verified
from strands_durable.testing import call
from tests.commands import cli
from tests.contract.test_damage import FLIPS, changed, dense, flips, with_file  # noqa: F401
from tests.script import start_process
from tests.waiting import until

UNCHECKED = checksums._APART - {"sum", "kept"}
"""Columns that a heartbeat changes, and the version of a head: only their kind is checked."""


def check(path: str = "runs.db") -> Verification:
    return verified(Path(path).resolve())


def problems_of(content: bytes) -> Verification | errors.DurableError:
    """Return what is found in a file with this content, or the error that says that it is none of ours."""
    Path("runs.db").write_bytes(content)
    try:
        return check()
    except errors.DurableError as error:
        return error


def change(sql: str, *values: object) -> None:
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        assert connection.execute(sql, values).rowcount > 0


def test_c49_a_sound_store_is_said_to_be_sound_and_is_not_changed(dense: bytes) -> None:  # noqa: F811
    os.chmod("runs.db", 0o400)
    os.chmod(".", 0o500)
    try:
        found = cli("verify", "--backend", "runs.db")
    finally:
        os.chmod(".", 0o700)
    assert (found.exit_code, found.stdout.startswith("Sound: 5 executions, ")) == (0, True)
    assert Path("runs.db").read_bytes() == dense
    assert os.listdir() == ["runs.db"]
    assert stat.S_IMODE(os.stat("runs.db").st_mode) == 0o400


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_c49_stores_of_earlier_formats_are_checked_too(number: int) -> None:
    stored = Path(__file__).parents[1] / "stores" / f"format_{number}.sqlite"
    Path("runs.db").write_bytes(stored.read_bytes())
    assert check().problems == ()
    Store(Path("runs.db").resolve()).close()  # upgraded
    assert check().problems == ()


def test_c49_a_store_without_checksums_cannot_be_checked() -> None:
    stored = Path(__file__).parents[1] / "stores" / "format_3.sqlite"
    Path("runs.db").write_bytes(stored.read_bytes())
    found = cli("verify", "--backend", "runs.db")
    assert (found.exit_code, "its rows have no checksums" in found.stderr) == (1, True)


def cells() -> Iterator[tuple[str, str, Any, Any]]:
    """Yield table, column, row and value of every cell of the store."""
    with closing(sqlite3.connect("runs.db")) as connection:
        for table, shape in tables().items():
            key = shape.key if shape.key != ("rowid",) else ("rowid",)
            names = (
                *(name for name in shape.columns if name not in UNCHECKED),
                *(() if table == "blobs" else ("sum",)),
            )
            for row in connection.execute(f"SELECT {', '.join((*key, *dict.fromkeys(names)))} FROM {table}"):
                for name, value in zip(dict.fromkeys(names), row[len(key) :], strict=True):
                    yield table, name, dict(zip(key, row, strict=False)), value


def flipped(value: Any, chance: random.Random) -> Any:
    """Return a value with one bit of it changed, as SQLite would give it back; None where there is nothing to change."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(max(value.bit_length(), 1)))
    if isinstance(value, float):
        return value + 2.0 ** chance.randrange(-10, 20)
    data = bytearray(value if isinstance(value, bytes) else value.encode())
    if not data:
        return "x"
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def test_c49_a_changed_bit_of_any_recorded_value_is_found(dense: bytes) -> None:  # noqa: F811
    """One cell of each column of each table, and then some of all."""
    chance = random.Random(7)
    by_column: dict[tuple[str, str], list[Any]] = {}
    for table, name, row, value in cells():
        by_column.setdefault((table, name), []).append((row, value))
    assert {table for table, _ in by_column} >= {
        "executions",
        "calls",
        "steps",
        "messages",
        "heads",
        "blobs",
        "uses",
        "past_heads",
    }
    chosen = [(column, chance.choice(found)) for column, found in by_column.items()]
    chosen += [(column, chance.choice(by_column[column])) for column in chance.choices([*by_column], k=FLIPS // 2)]
    for (table, name), (row, value) in chosen:
        Path("runs.db").write_bytes(dense)
        new = flipped(value, chance)
        where = " AND ".join(f"{key} = ?" for key in row)
        cast = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
        try:
            change(f"UPDATE {table} SET {name} = {cast} WHERE {where}", new, *row.values())
        except sqlite3.IntegrityError:
            continue  # another row has this value
        found = check()
        assert found.problems, f"{table}.{name} of {row}: {value!r} became {new!r}"
        if table not in ("configs", "secrets", "uses", "blobs") and name not in (*row, "execution", "call", "lineage"):
            named = [(each.table, each.execution_id) for each in found.problems if each.check != "pages"]
            assert any(each == table and whose is not None for each, whose in named), f"{table}.{name}: {named}"


def test_c49_no_changed_byte_of_the_file_that_a_reader_sees_goes_unnoticed(dense: bytes) -> None:  # noqa: F811
    whole = with_file(dense)
    assert not isinstance(whole, errors.DurableError)
    for place, by in flips(dense, FLIPS // 2, seed=49):
        found = problems_of(changed(dense, place, by))
        if isinstance(found, Verification) and found.is_sound:
            assert with_file(changed(dense, place, by)) == whole, f"byte {place} changed by {by}, unnoticed"


@pytest.mark.parametrize(
    ("sql", "check_name", "table", "text"),
    [
        ("DELETE FROM messages WHERE lineage = 2 AND seq = 3", "reference", "messages", "are not all there"),
        ("DELETE FROM steps WHERE id = 13", "reference", "steps", "refer to steps that are not there: 13"),
        ("DELETE FROM calls WHERE id = 2", "reference", "steps", "belong to call 2, which is not there"),
        ("DELETE FROM heads WHERE call = 2 AND part = 'agent'", "count", "calls", "has 8 rows, and 9 are recorded"),
        ("DELETE FROM executions WHERE id = 2", "reference", "calls", "belongs to execution 2, which is not there"),
        ("DELETE FROM blobs", "bytes", "blobs", "are missing"),
        ("DELETE FROM uses", "count", "uses", "1 rows refer to the bytes"),
        ("DELETE FROM configs", "reference", "configs", "was made of is not there"),
        ("DELETE FROM secrets", "reference", "secrets", "the key that inputs are compared with"),
        ("UPDATE executions SET owner = 'x' WHERE id = 1", "count", "executions", "no such value"),
        ("UPDATE heads SET version = 3 WHERE call = 1 AND part = 'progress'", "count", "heads", "before its past"),
    ],
)  # fmt: skip
def test_c49_what_is_missing_is_named(dense: bytes, sql: str, check_name: str, table: str, text: str) -> None:  # noqa: F811
    change(sql)
    found = [each for each in check().problems if (each.check, each.table) == (check_name, table)]
    assert any(text in each.text for each in found), check().problems


@pytest.mark.parametrize(
    ("table", "changes", "where", "text"),
    [
        ("executions", {"status": "COMPLETED"}, "execution_id = 'waits'", "it is COMPLETED, and its last call is SUSPENDED"),
        ("calls", {"status": "COMPLETED"}, "id = 4", "call 4 is COMPLETED, and its head is in the phase 'waiting'"),
        ("calls", {"status": "RUNNING"}, "id = 1", "call 1 is RUNNING, and its head is done"),
        ("executions", {"status": "CANCELLED"}, "execution_id = 'waits'", "one of its calls has not ended"),
    ],
)  # fmt: skip
def test_c49_a_status_that_the_record_contradicts_is_found(
    dense: bytes,  # noqa: F811
    table: str,
    changes: dict[str, str],
    where: str,
    text: str,
) -> None:
    store = Store(Path("runs.db").resolve())
    with store.transaction("test") as connection:
        connection.update(table, changes, where)  # with a checksum that is right
    store.close()
    assert any(each.check == "phase" and text in each.text for each in check().problems)


def test_c49_what_is_lost_of_each_execution_is_said_and_whether_it_can_be_resumed(dense: bytes) -> None:  # noqa: F811
    change("UPDATE steps SET result = result || ' ' WHERE call = 2 AND number BETWEEN 4 AND 6")
    change("UPDATE past_heads SET data = data || ' ' WHERE call = 4")
    change("UPDATE state SET value = '0' WHERE call = 6")
    found = cli("verify", "--json", "--backend", "runs.db")
    assert found.exit_code == 1
    damaged = {each["execution_id"]: each for each in json.loads(found.stdout)["damaged"]}
    assert damaged["run-1"]["lost"] == ["steps 4 to 6 cannot be read"]
    assert damaged["run-1"]["can_resume"] is None
    assert damaged["waits"]["lost"] == ["what a fork at an earlier step needs cannot be read"]
    assert (damaged["waits"]["can_resume"], damaged["fails"]["can_resume"]) == (True, False)
    assert damaged["fails"]["lost"] == ["state of its agents cannot be read"]
    printed = cli("verify", "--backend", "runs.db").stdout
    assert "run-1 (COMPLETED): steps 4 to 6 cannot be read.\n" in printed
    assert "waits (SUSPENDED): what a fork at an earlier step needs cannot be read; it can be resumed.\n" in printed
    assert "fails (FAILED): state of its agents cannot be read; it cannot be resumed.\n" in printed


def test_c49_a_store_in_use_is_checked_at_one_moment() -> None:
    owner = start_process([call("book", city="Paris"), call("wait_for", path="go"), "Done."], ["Wait"])
    until(Path("waiting").exists)
    before = sorted(os.listdir())
    found = connect("sqlite:///runs.db?worker=off").sync.verify()
    assert (found.is_sound, found.executions) == (True, 1)
    assert sorted(os.listdir()) == before
    Path("go").touch()
    owner.join()
    assert check().is_sound


def test_c49_a_file_of_another_kind_is_an_error() -> None:
    Path("runs.db").write_text("something else " * 100)
    assert cli("verify", "--backend", "runs.db").exit_code == 1


@pytest.mark.parametrize(
    "url",
    ["temporal://localhost:7233", "lambda://function:live", "dapr://127.0.0.1:50001"],
    ids=["temporal", "lambda", "dapr"],
)
def test_c49_what_a_server_keeps_is_not_checked_here(url: str) -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="Use the means of its server"):
        asyncio.run(connect(url).verify())
