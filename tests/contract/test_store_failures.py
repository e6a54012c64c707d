"""A store that fails stops the run with a clear error, is never shown to the model, and a later resume works."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import Durability, errors
from strands_durable._sqlite.database import FORMAT
from strands_durable.testing import ScriptedModel, call, forget_process
from tests.processes import run
from tests.script import in_new_process, ledger

DIES = [call("book", city="Paris"), call("book_and_die", city="Rome"), "Done."]


def agent_of(script: Any, tools: Any, **options: Any) -> Agent:
    plugin = Durability("runs.db", execution_id="trip", busy_seconds=0.2, **options)
    return Agent(model=ScriptedModel(script), tools=list(tools), plugins=[plugin], callback_handler=None)


@tool
def work() -> str:
    """Work."""
    return "worked"


def resumes(script: Any, tools: Any) -> None:
    forget_process()
    assert str(agent_of(script, tools)("Go")) == "Done.\n"


def test_a_locked_store_stops_the_run_and_a_later_one_resumes() -> None:
    locker: list[sqlite3.Connection] = []

    @tool
    def lock() -> str:
        """Make another process lock the file."""
        if not locker:
            locker.append(sqlite3.connect("runs.db", isolation_level=None, check_same_thread=False))
            locker[0].execute("BEGIN IMMEDIATE")
        return "locked"

    script = [[call("lock"), call("work")], "Done."]
    agent = agent_of(script, [lock, work])
    with pytest.raises(errors.BackendUnavailableError, match="another process has held its lock for more than"):
        agent("Go")
    assert len(agent.messages) == 2, "no tool result was made of it"
    locker[0].execute("ROLLBACK")
    locker[0].close()
    assert str(agent("Go")) == "Done.\n", "the same process resumes the same call"
    resumes(script, [lock, work])


def test_a_store_that_is_deleted_while_it_runs_stops_the_run() -> None:
    @tool
    def delete() -> str:
        """Delete the file."""
        for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
            Path(name).unlink(missing_ok=True)
        return "deleted"

    with pytest.raises(errors.BackendUnavailableError, match="deleted or replaced"):
        agent_of([call("delete"), "Done."], [delete])("Go")
    assert not Path("runs.db").exists()


def test_a_store_that_is_replaced_while_it_runs_stops_the_run_and_is_left_alone() -> None:
    @tool
    def replace() -> str:
        """Put another file in its place."""
        os.rename("runs.db", "moved.db")
        Path("runs.db").write_text("not ours")
        return "replaced"

    with pytest.raises(errors.BackendUnavailableError, match="deleted or replaced"):
        agent_of([call("replace"), "Done."], [replace])("Go")
    assert Path("runs.db").read_text() == "not ours"


def test_a_foreign_file_is_refused_and_left_untouched() -> None:
    Path("runs.db").write_bytes(b"These are my notes, not a database. " * 10)
    before = Path("runs.db").read_bytes()
    with pytest.raises(errors.FormatVersionError, match="not a SQLite file"):
        agent_of(["Done."], [])("Go")
    assert Path("runs.db").read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_untouched() -> None:
    with sqlite3.connect("runs.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = Path("runs.db").read_bytes()
    with pytest.raises(errors.FormatVersionError, match="another program"):
        agent_of(["Done."], [])("Go")
    assert Path("runs.db").read_bytes() == before


def test_an_unknown_format_version_is_refused_and_left_untouched() -> None:
    agent_of(["Done."], [])("Go")
    forget_process()
    with sqlite3.connect("runs.db") as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = Path("runs.db").read_bytes()
    text = f"format {FORMAT + 1}; this version of strands-durable reads format {FORMAT}"
    with pytest.raises(errors.FormatVersionError, match=text):
        agent_of(["Done."], [])("Go")
    assert Path("runs.db").read_bytes() == before


def test_a_truncated_store_is_a_clear_error() -> None:
    assert in_new_process(DIES, ["Go"]).exitcode == -9
    sqlite3.connect("runs.db").execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    os.truncate("runs.db", 20_000)
    outcome = in_new_process(DIES, ["Go"]).checked()[0]
    assert outcome["error"] == "BackendUnavailableError"
    assert "damaged" in outcome["text"]


def _without_the_right_to_write(folder: str) -> Any:
    os.chdir(folder)
    if os.geteuid() == 0:  # to root nothing is read-only
        os.setgid(65534)
        os.setuid(65534)
    try:
        agent_of(["Done."], [])("Go")
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def test_a_read_only_store_is_a_clear_error(tmp_path: Path) -> None:
    agent_of(["Done."], [])("Go")
    forget_process()
    os.chmod("runs.db", 0o444)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            os.chmod(folder, 0o755)
    name, text = run(_without_the_right_to_write, str(tmp_path)).checked()
    assert name == "BackendUnavailableError"
    assert str(tmp_path / "runs.db") in text


def _on_a_full_disk(folder: str) -> Any:
    """A limit on the size of files is the nearest thing to a full disk that needs no disk."""
    os.chdir(folder)

    @tool
    def fill() -> str:
        """Leave no room for this result."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (Path("runs.db-wal").stat().st_size + 8000,) * 2)
        return "x" * 50_000

    agent = agent_of([[call("fill"), call("work")], "Done."], [fill, work])
    try:
        agent("Go")
    except errors.BackendUnavailableError as error:
        return str(error), len(agent.messages)
    return None


def test_a_full_disk_stops_the_run_and_a_later_one_resumes() -> None:
    text, messages = run(_on_a_full_disk, os.getcwd()).checked()
    assert "What was recorded is kept" in text
    assert messages == 2, "no tool result was made of it"

    @tool
    def fill() -> str:
        """Leave no room for this result."""
        return "x" * 50_000

    agent = agent_of([[call("fill"), call("work")], "Done."], [fill, work])
    assert str(agent("Go")) == "Done.\n"


def test_a_missing_directory_is_a_clear_error() -> None:
    agent = Agent(model=ScriptedModel(["Hi."]), plugins=[Durability("no/such/place/runs.db")], callback_handler=None)
    with pytest.raises(errors.BackendUnavailableError, match="No such file or directory"):
        agent("Go")


def test_the_files_of_the_store_are_readable_for_their_owner_alone() -> None:
    @tool
    def look() -> str:
        """Look at the files while they are in use."""
        modes = {name: stat.S_IMODE(os.stat(name).st_mode) for name in os.listdir() if name.startswith("runs.db")}
        assert len(modes) == 3
        return str(set(modes.values()))

    agent = agent_of([call("look"), "Done."], [look])
    before = os.umask(0)
    try:
        agent("Go")
    finally:
        os.umask(before)
    assert agent.messages[2]["content"][0]["toolResult"]["content"][0]["text"] == str({0o600})


def test_several_processes_create_one_store_at_once() -> None:
    from tests.script import start_process

    children = [start_process(["Done."], ["Go"], {"execution_id": f"run-{number}"}) for number in range(6)]
    assert [child.join().checked()[0]["text"] for child in children] == ["Done."] * 6
    assert ledger.read()


@pytest.mark.parametrize("pages", [0, 1, 3], ids=["before its first page", "after its first page", "with some pages"])
def test_a_file_whose_making_was_cut_off_is_made_by_the_next_process(pages: int) -> None:
    """A kill leaves pages of a database that was never committed, and the journal with which SQLite takes them back."""
    agent_of(["Done."], [])("Go")
    forget_process()
    whole = Path("runs.db").read_bytes()
    Path("runs.db").unlink()
    with closing(sqlite3.connect("other.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA cache_size = 10")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("CREATE TABLE some (data BLOB)")
        connection.executemany("INSERT INTO some VALUES (?)", [(os.urandom(20_000),) for _ in range(50)])
        journal = Path("other.db-journal").read_bytes()
        written = Path("other.db").stat().st_size
        connection.execute("ROLLBACK")
    Path("runs.db").write_bytes(whole[: pages * 8192] if pages else bytes(written))
    Path("runs.db-journal").write_bytes(journal)
    assert str(agent_of(["Done."], [])("Go")) == "Done.\n"
    assert not Path("runs.db-journal").exists()


def test_a_foreign_file_beside_a_journal_of_nothing_is_refused_and_left_untouched() -> None:
    Path("runs.db").write_text("This is not a database at all, it is a text. " * 50)
    Path("runs.db-journal").write_bytes(b"")
    with pytest.raises((errors.FormatVersionError, errors.BackendUnavailableError)):
        agent_of(["Done."], [])("Go")
    assert Path("runs.db").read_text().startswith("This is not a database")
