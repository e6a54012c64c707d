"""C48: a copy of a store that is in use: whole or not there, and its executions can be resumed."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from strands_durable import connect, errors
from strands_durable._journal.owner import Owner
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.upkeep import backup
from strands_durable.testing import CrashPoints, call
from tests import threads
from tests.commands import cli
from tests.processes import run
from tests.script import in_new_process, start_process
from tests.unit.test_cli_listed import filled
from tests.waiting import until

URL = "sqlite:///runs.db?worker=off"


def back_up(target: str = "copy.db", **options: bool) -> int:
    return connect(URL).sync.backup(target, **options)


def leftovers() -> list[str]:
    return sorted(name for name in os.listdir() if "copy" in name)


def test_c48_a_copy_is_a_store_of_its_own_that_only_its_owner_can_read() -> None:
    in_new_process([call("book", city="Paris"), "Done."], ["Go"]).checked()
    found = cli("backup", "copy.db", "--backend", "runs.db")
    assert (found.exit_code, found.stdout.startswith("Copied ")) == (0, True)
    assert leftovers() == ["copy.db"]
    assert stat.S_IMODE(os.stat("copy.db").st_mode) == 0o600
    assert Catalog("copy.db").execution("trip") == Catalog("runs.db").execution("trip")
    assert cli("verify", "--backend", "copy.db").exit_code == 0


def test_c48_a_file_that_exists_is_not_replaced_unless_forced() -> None:
    filled(1)
    Path("copy.db").write_text("precious")
    found = cli("backup", "copy.db", "--backend", "runs.db")
    assert (found.exit_code, Path("copy.db").read_text()) == (1, "precious")
    assert "it exists" in found.stderr
    assert cli("backup", "copy.db", "--force", "--backend", "runs.db").exit_code == 0
    assert len(Catalog("copy.db").executions()) == 1
    with pytest.raises(errors.BackupError, match="it is the store itself"):
        back_up("runs.db", force=True)
    Path("copy.db-wal").touch()  # it would be taken for the WAL of the copy
    with pytest.raises(errors.BackupError, match=r"copy.db-wal belongs to a store"):
        back_up(force=True)
    with pytest.raises(errors.BackupError, match="No such file"):
        back_up("nowhere/copy.db")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("force", [False, True])
def test_c48_what_sqlite_keeps_beside_a_store_is_no_place_for_a_copy(suffix: str, force: bool) -> None:
    filled(3)
    Path("other.db").write_bytes(b"")
    for name in ("runs.db", "other.db"):
        with pytest.raises(errors.BackupError, match=f"SQLite keeps a file of this name beside .*{name},"):
            back_up(f"{name}{suffix}", force=force)
    assert cli("backup", f"runs.db{suffix}", "--force", "--backend", "runs.db").exit_code == 1
    assert len(Catalog("runs.db").executions()) == 3
    back_up(f"nothing.db{suffix}")  # there is no store of that name


def _without_room(folder: str) -> str:
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    with pytest.raises(errors.BackupError, match=r"copy.db was not made: .*Make room there") as raised:
        back_up()
    return str(raised.value)


def test_c48_if_there_is_no_room_the_error_names_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    filled(500)
    assert "cannot be written" in run(_without_room, os.getcwd()).checked()
    assert leftovers() == []

    def copied(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(backup, "_copied", copied)
    with pytest.raises(errors.BackupError, match=r"copy.db was not made: the disk is full"):
        back_up()
    assert leftovers() == []


@pytest.mark.parametrize("force", [False, True])
def test_c48_a_path_that_is_none_is_refused(force: bool) -> None:
    filled(1)
    os.symlink("copy.db", "copy.db")
    os.symlink("loop", "loop")
    for target, what in (
        ("copy\0.db", "it is no path"),
        ("copy.db", "in a circle"),
        ("loop/copy.db", "symbolic links"),
    ):
        with pytest.raises(errors.BackupError, match=what):
            back_up(target, force=force)
    assert leftovers() == ["copy.db"]


def _killed_while_it_writes(folder: str) -> None:
    os.chdir(folder)
    connection = sqlite3.connect("runs.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("UPDATE executions SET kind = 'dispatched'")
    connection.execute("UPDATE steps SET name = 'other'")
    os.kill(os.getpid(), signal.SIGKILL)


def test_c48_after_a_killed_upgrade_the_error_says_what_repairs_the_file() -> None:
    filled(500)
    assert run(_killed_while_it_writes, os.getcwd()).exitcode == -signal.SIGKILL
    assert Path("runs.db-journal").exists()
    for asked in (back_up, lambda: connect(URL).sync.verify()):
        with pytest.raises(errors.BackendUnavailableError, match=r"died while it upgraded the file.*repairs it"):
            asked()
    Store(Path("runs.db").absolute()).close()
    back_up()
    assert len(Catalog("copy.db").executions()) == 500


def test_c48_a_copy_holds_one_moment_and_keeps_no_writer_waiting() -> None:
    filled(2_000)
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as writer:
        waits, stop = [], threading.Event()

        def write() -> None:
            with closing(sqlite3.connect("runs.db", isolation_level=None, timeout=10)) as connection:
                while not stop.is_set():
                    began = time.monotonic()
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("UPDATE executions SET beat = beat + 1 WHERE id = 1")
                    connection.execute("UPDATE executions SET beat = beat + 1 WHERE id = 2000")
                    connection.execute("COMMIT")
                    waits.append(time.monotonic() - began)

        thread = threading.Thread(target=write)
        thread.start()
        for number in range(3):
            back_up(f"copy-{number}.db")
        stop.set()
        threads.join(thread)
        writer.execute("SELECT 1")
    assert len(waits) > 3
    assert max(waits) < 2
    for number in range(3):
        with closing(sqlite3.connect(f"copy-{number}.db")) as copy:
            (first,), (last,) = copy.execute("SELECT beat FROM executions WHERE id IN (1, 2000)").fetchall()
            assert first == last
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_c48_an_execution_that_was_running_is_resumed_from_the_copy_at_once() -> None:
    script = [call("book", city="Paris"), call("wait_for", path="go"), "Done."]
    owner = start_process(script, ["Wait"])
    until(Path("waiting").exists)
    back_up()
    (record,) = Catalog("copy.db").executions()
    assert (record.status.value, record.owner) == ("RUNNING", None)
    with closing(sqlite3.connect("copy.db")) as copy:
        assert copy.execute("SELECT owner FROM executions").fetchall() == [(None,)]
    with closing(sqlite3.connect("runs.db")) as original:
        (recorded,) = original.execute("SELECT owner FROM executions").fetchone()
        assert Owner.parse(recorded).pid == owner.pid
    Path("go").touch()
    owner.join()
    began = time.monotonic()
    os.replace("runs.db", "old.db")
    os.replace("copy.db", "runs.db")
    in_new_process(script, ["Wait"]).checked()
    assert Catalog("runs.db").execution("trip").execution.status.value == "COMPLETED"
    assert time.monotonic() - began < 8  # a lease is 10 s
    steps = [step.label for step in Catalog("runs.db").execution("trip").steps]
    assert steps.count("1.0 book") == 1


@pytest.mark.parametrize("point", ["backup.copy:after", "backup:before"])
def test_c48_a_killed_backup_leaves_no_backup_and_the_next_one_cleans_up(point: str) -> None:
    filled(500)
    assert run(_killed_at, os.getcwd(), point).exitcode == -signal.SIGKILL
    assert [name.endswith(".partial") for name in leftovers()] == [True]
    back_up()
    assert leftovers() == ["copy.db"]
    assert len(Catalog("copy.db").executions()) == 500


def _killed_at(folder: str, point: str) -> None:
    os.chdir(folder)
    with CrashPoints().crashing(f"{point}@1"):
        back_up()


def test_c48_a_backup_that_is_being_made_is_not_cleaned_up_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    filled(500)
    real, seen = backup._copied, []

    def copied(progress: backup.Progress, done: int, total: int) -> None:
        real(progress, done, total)
        if not seen:
            seen.append(True)
            thread = threading.Thread(target=back_up)
            thread.start()
            threads.join(thread)

    monkeypatch.setattr(backup, "_copied", copied)
    with pytest.raises(errors.BackupError, match="it exists"):
        back_up()
    assert seen
    assert leftovers() == ["copy.db"]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("temporal://localhost:7233", "the database of the Temporal server"),
        ("lambda://function:live", "AWS keeps the executions"),
        ("dapr://127.0.0.1:50001", "the database behind Dapr's state store"),
        ("memory://x", "in the memory of this process"),
    ],
    ids=["temporal", "lambda", "dapr", "memory"],
)
def test_c48_on_other_engines_the_error_says_what_to_back_up(url: str, what: str) -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match=what):
        asyncio.run(connect(url).backup("copy.db"))
