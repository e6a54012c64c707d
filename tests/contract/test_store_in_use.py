"""A store that other processes read, copy or damage while it is in use: no run is blocked, nothing is lost without an error."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import Durability, connect, errors
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import ScriptedModel, call
from tests import threads
from tests.processes import run
from tests.script import in_new_process, ledger, start_process
from tests.waiting import until

LOOK = "import sqlite3; c = sqlite3.connect('runs.db'); c.execute('SELECT 1 FROM executions').fetchall(); c.close()"
TWO = [call("book", city="Paris"), call("book", city="Rome"), "Done."]


def agent_of(script: Any, *tools: Any, **options: Any) -> Agent:
    plugin = Durability("runs.db", **{"execution_id": "trip", **options})
    return Agent(model=ScriptedModel(script), tools=list(tools), plugins=[plugin], callback_handler=None)


@contextmanager
def reader() -> Iterator[None]:
    """Stand inside a read transaction, as a database browser does."""
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM steps").fetchall()
        yield


# Readers


def test_a_reader_inside_a_transaction_holds_no_start_up() -> None:
    agent_of(["Done."])("Go")
    with reader():
        agent_of(["Done."], execution_id="more")("Go")
        stores.close()
        began = time.monotonic()
        Store(Path("runs.db").resolve()).close()
        assert time.monotonic() - began < 5.0, "it does not wait as long as a writer would"


def test_starts_beside_a_reader_do_not_stop_the_run_of_another() -> None:
    script = [call("wait_for", path="go"), *[call("book", city=f"city {number}") for number in range(10)], "Done."]
    owner = start_process(script, ["Go"], {"busy_seconds": 5.0})
    until(Path("waiting").exists)
    with reader():
        others = [start_process(TWO, ["Go"], {"execution_id": f"other-{number}"}) for number in range(4)]
        Path("go").touch()
        assert owner.join().checked()[0]["text"] == "Done."
        assert [other.join().checked()[0]["text"] for other in others] == ["Done."] * 4


def test_a_reader_does_not_hold_up_a_removal_nor_the_others_beside_it() -> None:
    agent_of(["Done."], execution_id="gone")("Go")
    waits: list[float] = []
    ended = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect("runs.db", isolation_level=None, timeout=30)) as connection:
            while not waits or not ended.wait(0.01):
                began = time.monotonic()
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                waits.append(time.monotonic() - began)

    writer = threading.Thread(target=write)
    with reader():
        writer.start()
        asyncio.run(connect("sqlite:///runs.db?worker=off").remove("gone"))
        ended.set()
        threads.join(writer)
    assert max(waits) < 5.0


def test_what_was_redacted_beside_a_reader_leaves_the_file_with_the_next_commits() -> None:
    agent_of(["Done."], execution_id="first")("Go")
    store = stores.open(Path("runs.db").resolve())[0]
    with reader():
        with store.transaction("test") as connection:
            connection.execute("INSERT INTO configs (digest, data) VALUES ('d', 'hush-hush')")
        with store.transaction("test") as connection:
            connection.execute("UPDATE configs SET data = 'x' WHERE digest = 'd'")
        began = time.monotonic()
        store.scrub()
        assert time.monotonic() - began < 5.0

    def is_gone() -> bool:
        with store.transaction("test", lasting=False) as connection:
            connection.execute("UPDATE configs SET data = data || 'y' WHERE digest = 'd'")
        return all(b"hush-hush" not in path.read_bytes() for path in Path().glob("runs.db*"))

    until(is_gone)


@pytest.mark.parametrize("ends", ["at once", "with a commit", "when it closes the store"])
def test_what_a_killed_process_left_in_the_wal_is_removed_by_the_next_one(ends: str) -> None:
    agent_of(["Done."])("Go")
    store = stores.open(Path("runs.db").resolve())[0]
    for data in ("hush-hush", "x"):
        with store.transaction("test") as connection:
            connection.execute("INSERT OR REPLACE INTO configs (id, digest, data) VALUES (7, 'd', ?)", (data,))
    os.mkdir("next")
    for path in Path().glob("runs.db*"):
        shutil.copy(path, "next")
    left = Path("next/runs.db-wal")
    assert b"hush-hush" in left.read_bytes()

    def is_gone() -> bool:
        with following.transaction("test", lasting=False) as connection:
            connection.execute("UPDATE configs SET data = 'y' WHERE id = 7")
        return b"hush-hush" not in left.read_bytes()

    with closing(sqlite3.connect("next/runs.db", isolation_level=None)) as reader:
        if ends != "at once":  # a reader inside a transaction is in the way
            reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM executions").fetchall()
        following = Store(Path("next/runs.db").resolve())
        assert (b"hush-hush" in left.read_bytes()) is (ends != "at once")
        if ends != "at once":
            reader.execute("COMMIT")
        if ends == "with a commit":
            until(is_gone)
        following.close()
        assert b"hush-hush" not in left.read_bytes()


def test_the_wal_does_not_grow_with_what_is_written() -> None:
    agent_of(["Done."])("Go")
    store = stores.open(Path("runs.db").resolve())[0]
    with reader():
        for number in range(40):
            with store.transaction("test", lasting=False) as connection:
                connection.execute("INSERT INTO configs (digest, data) VALUES (?, ?)", (str(number), "x" * 2_000_000))
        assert Path("runs.db-wal").stat().st_size > 70_000_000, "a reader keeps it"
    for number in range(40, 60):
        with store.transaction("test", lasting=False) as connection:
            connection.execute("INSERT INTO configs (digest, data) VALUES (?, ?)", (str(number), "x" * 2_000_000))
    assert Path("runs.db-wal").stat().st_size < 40_000_000


# Side files


def _deletes(folder: str, names: list[str]) -> Any:
    os.chdir(folder)

    @tool
    def delete() -> str:
        """Delete what SQLite keeps beside the store."""
        for name in names:
            Path(name).unlink()
        return "deleted"

    try:
        return str(agent_of([call("delete"), "Done."], delete)("Go")).strip()
    except errors.DurableError as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("names", [["runs.db-shm"], ["runs.db-wal"], ["runs.db-wal", "runs.db-shm"]])
def test_a_store_whose_side_files_are_deleted_stops_the_run(names: list[str]) -> None:
    name, text = run(_deletes, os.getcwd(), names).checked()
    assert name == "BackendUnavailableError"
    assert "deleted or replaced" in text
    assert names[0] in text


def test_what_was_committed_before_the_side_files_were_deleted_is_not_lost() -> None:
    script = [call("book", city="Paris"), call("wait_for", path="go"), "Done."]
    owner = start_process(script, ["Go"])
    until(Path("waiting").exists)
    for name in ("runs.db-wal", "runs.db-shm"):
        Path(name).unlink()
    Path("go").touch()
    assert owner.join().checked()[0]["error"] == "BackendUnavailableError"
    assert in_new_process(script, ["Go"]).checked()[0]["text"] == "Done."
    assert [entry["city"] for entry in ledger.read() if entry.get("name") == "book"] == ["Paris"]


def test_a_process_that_lost_its_side_files_writes_nothing_over_what_others_record_since() -> None:
    script = [call("book", city="Paris"), call("wait_for", path="go"), "Done."]
    owner = start_process(script, ["Go"])
    until(Path("waiting").exists)
    for name in ("runs.db-wal", "runs.db-shm"):
        Path(name).unlink()
    others = [in_new_process(TWO, ["Go"], {"execution_id": f"other-{number}"}) for number in range(3)]
    assert [other.checked()[0]["text"] for other in others] == ["Done."] * 3
    Path("go").touch()
    assert owner.join().checked()[0]["error"] == "BackendUnavailableError"
    again = [in_new_process(TWO, ["Go"], {"execution_id": f"other-{number}"}) for number in range(3)]
    assert [other.checked()[0]["text"] for other in again] == ["Done."] * 3
    assert len([entry for entry in ledger.read() if entry.get("name") == "book" and entry["city"] == "Rome"]) == 3
    with closing(sqlite3.connect("runs.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_looking_at_a_store_does_not_make_others_take_it_for_closed() -> None:
    @tool
    def look() -> str:
        """List executions while another process opens and closes the store."""
        assert [found.execution_id for found in asyncio.run(connect("sqlite:///runs.db?worker=off").list())] == ["trip"]
        subprocess.run([sys.executable, "-c", LOOK], check=True)
        return "looked"

    assert str(agent_of([call("look"), "Done."], look)("Go")) == "Done.\n"
    assert in_new_process([], ["Go"]).checked()[0]["text"] == "Done."


def test_a_checkpoint_that_was_cut_off_is_no_damage() -> None:
    """The first page was written, those behind it were not: the file alone is not whole, with its WAL it is."""
    path = Path("runs.db").resolve()
    store = Store(path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("CREATE TABLE more (text)")
    writer.executemany("INSERT INTO more VALUES (?)", [("x" * 8000,) for _ in range(100)])
    Path("cut").mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"cut/runs.db{suffix}")
    writer.close()
    store.close()
    log, page = Path("cut/runs.db-wal").read_bytes(), 8192
    frames = [log[start : start + 24 + page] for start in range(32, len(log), 24 + page)]
    first = [frame[24:] for frame in frames if int.from_bytes(frame[:4], "big") == 1][-1]
    with open("cut/runs.db", "r+b") as file:
        file.write(first)
    alone = sqlite3.connect("file:cut/runs.db?immutable=1", uri=True)
    with closing(alone), pytest.raises(sqlite3.DatabaseError, match="malformed"):
        alone.execute("PRAGMA user_version").fetchone()
    Store(Path("cut/runs.db").resolve()).close()
