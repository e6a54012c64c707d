"""C59 and C60 on a file: verify, backup, retention and new keys of an encrypted store, and what needs no key."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Cipher, Durability, Retention
from strands_durable._dispatch.retention import retentions
from strands_durable._records.retention import RetentionRules
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.encryption import rekeying
from strands_durable._sqlite.encryption.sealing import CONTENTS
from strands_durable._sqlite.tables import tables
from strands_durable.errors import CipherError, ContentsRemovedError, ExecutionHeldError
from strands_durable.testing import Answer, CrashPoints, ScriptedModel
from tests.commands import cli
from tests.contract.test_c53_encryption import (
    SECRET,
    both,
    cells,
    change,
    inline,
    new,
    old,
    planner,
    readable,
    shown,
    through_a_worker,
)
from tests.contract.test_c58_encrypted_operations import check, closing_rows, count, export, handle, leave, on
from tests.processes import run

ALL = Retention(completed="0s", failed="0s", cancelled="0s")


# C59: verify, backup, retention and new keys


def used() -> None:
    """Make a store with everything that can be in one: a fork, an import, a held execution, and contents that were removed."""
    inline(old())
    through_a_worker(old())
    asyncio.run(handle(old(), "inline").fork(at=3, execution_id="fork"))
    asyncio.run(on(old()).import_execution(export(old()), execution_id="import"))
    inline(old(), "emptied")
    for name in ("inline", "dispatched", "fork", "import"):
        asyncio.run(handle(old(), name).hold())
    assert asyncio.run(on(old()).prune(Retention(contents="0s"))).emptied == 1
    fails()
    leave()
    assert readable(Path.cwd()) == []
    asyncio.run(on(None).backup("copy.db"))
    for name in ("runs.db-wal", "runs.db-shm"):
        Path(name).unlink(missing_ok=True)
    os.replace("copy.db", "runs.db")  # a file that no thread of the worker has open


def fails() -> None:
    """Run an agent that fails."""
    agent = Agent(model=ScriptedModel([Answer(errors=[RuntimeError(f"{SECRET} broke")])]), callback_handler=None)
    Durability("runs.db", execution_id="failed", cipher=old()).init_agent(agent)
    with pytest.raises(Exception, match="broke"):
        agent(f"{SECRET} prompt")


def test_c59_a_used_store_is_sound_with_the_key_and_without() -> None:
    used()
    before = Path("runs.db").read_bytes()
    assert (check(old()).problems, check(old()).is_locked) == ((), False)
    assert (check(None).problems, check(None).is_locked) == ((), True)
    with pytest.raises(CipherError, match="which the cipher does not have"):
        check(new())
    assert Path("runs.db").read_bytes() == before
    found = cli("verify", "--backend", "runs.db")
    assert (found.exit_code, found.stdout.startswith("Sound: 6 executions, ")) == (0, True)
    assert "not decrypted" in found.stdout
    assert json.loads(cli("verify", "--json", "--backend", "runs.db").stdout)["is_locked"] is True


def test_c58_an_import_with_whole_numbers_for_times_can_be_read() -> None:
    fails()
    found = export(old(), "failed")
    for row in found["rows"]["failures"]:  # as JavaScript writes a float that is a whole number
        row["at"] = int(row["at"])
    asyncio.run(on(old()).import_execution(found, execution_id="import"))
    assert f"{SECRET} broke" in str(Catalog("runs.db", old()).execution("import").calls[0].failures)
    assert check(old()).problems == ()


def test_c59_verify_finds_a_changed_bit_of_any_cell_with_the_key_and_without() -> None:
    used()
    content = Path("runs.db").read_bytes()
    kinds = set()
    contents = [(table, column) for table, columns in CONTENTS.items() for column in columns]
    for table, column in [*contents, *_BESIDE]:
        Path("runs.db").write_bytes(content)
        if not (cell := _some_cell(table, column, tables()[table].key)):
            continue
        where, value = cell
        _flip(table, column, where, value)
        for cipher in (old(), None):
            assert check(cipher).problems, f"{table}.{column} {cipher}"
        kinds.add((table, column))
    assert {*contents} - kinds <= _EMPTY


_BESIDE = [("data_keys", "wrapped"), ("data_keys", "key_id"), ("holds", "by"), ("emptied", "at"), ("uses", "number")]
_EMPTY = {("dispatches", "note"), ("chunks", "data"), ("notices", "error"), ("replies", "answer")}
"""Contents of which a store at rest, with nothing to wait for, has none."""


def _some_cell(table: str, column: str, key: tuple[str, ...]) -> tuple[str, Any] | None:
    """Return a condition for the first row that has such a cell, and the cell."""
    with closing(sqlite3.connect("runs.db")) as connection:
        query = f"SELECT {', '.join(key)}, {column} FROM {table} WHERE {column} IS NOT NULL AND {column} != '' LIMIT 1"
        row = connection.execute(query).fetchone()
    if row is None:
        return None
    return " AND ".join(f"{name} = '{value}'" for name, value in zip(key, row[:-1], strict=True)), row[-1]


def _flip(table: str, column: str, where: str, value: Any) -> None:
    """Change one bit of a cell."""
    if isinstance(value, str):
        middle = len(value) // 2
        changed: Any = value[:middle] + chr(ord(value[middle]) ^ 1) + value[middle + 1 :]
    else:
        changed = value + 1_000
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        assert connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (changed,)).rowcount == 1


@pytest.mark.parametrize("how", ["changed", "exchanged", "in plain text"])
def test_c59_verify_with_the_key_finds_cells_that_have_a_right_checksum_and_are_not_what_was_encrypted(
    how: str,
) -> None:
    used()
    content = Path("runs.db").read_bytes()
    for table, columns in CONTENTS.items():
        for column in columns:
            Path("runs.db").write_bytes(content)
            found = cells(table, column)
            if not found or table == "secrets":
                continue
            where, cell = found[0]
            middle = cell.index('"v":"') + 30
            flipped = cell[:middle] + ("A" if cell[middle] != "A" else "B") + cell[middle + 1 :]
            other = cells("calls" if table == "steps" else "steps", "result")[0][1]
            change(table, column, where, {"changed": flipped, "exchanged": other, "in plain text": '{"a":1}'}[how])
            problems = check(old()).problems
            assert [problem.table for problem in problems if problem.check == "cipher"] == [table], column
            assert SECRET not in repr(problems)


def test_c59_verify_finds_changed_large_bytes_with_the_key_and_without() -> None:
    inline(old())
    leave()
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        for digest, data in connection.execute("SELECT digest, data FROM blobs").fetchall():
            changed = data[:-1] + bytes([data[-1] ^ 1])
            connection.execute("UPDATE blobs SET data = ? WHERE digest = ?", (changed, digest))
    for cipher in (old(), None):
        found = check(cipher)
        assert {problem.check for problem in found.problems} == {"bytes"}
        assert [each.execution_id for each in found.damaged] == ["inline"]


def test_c59_damaged_keys_are_found_and_the_rest_is_checked_without_them() -> None:
    for table, column in (("secrets", "value"), ("data_keys", "wrapped"), ("data_keys", "key_id")):
        Path("runs.db").unlink(missing_ok=True)
        inline(old())
        leave()
        where, value = _some_cell(table, column, tables()[table].key) or ("", "")
        _flip(table, column, where, value)
        found = check(old())
        assert [problem.table for problem in found.problems] == [table]
        assert found.is_locked


def test_c59_a_backup_is_encrypted_and_needs_no_key_to_make() -> None:
    used()
    os.mkdir("copies")
    assert cli("backup", "copies/runs.db", "--backend", "runs.db").exit_code == 0
    assert readable(Path("copies")) == []
    assert shown_there("copies/runs.db") == shown(old())
    with pytest.raises(CipherError, match="no cipher was given"):
        Store(Path("copies/runs.db").resolve())
    assert check(old(), "copies/runs.db").problems == ()


def shown_there(name: str) -> Any:
    shutil.copy("runs.db", "kept.db")
    shutil.copy(name, "runs.db")
    try:
        return shown(old())
    finally:
        shutil.copy("kept.db", "runs.db")


def test_c59_contents_of_an_encrypted_execution_are_removed_and_its_record_stays() -> None:
    used()
    with pytest.raises(ContentsRemovedError):
        inline(old(), "emptied")
    with pytest.raises(ContentsRemovedError):
        export(old(), "emptied")
    leave()
    (record,) = [each for each in Catalog("runs.db", old()).executions() if each.execution_id == "emptied"]
    assert record.status.value == "COMPLETED"
    large = count("SELECT count(*) FROM blobs")
    assert large == 2, "the others refer to them"


def test_c59_large_bytes_go_with_the_last_encrypted_execution_that_refers_to_them() -> None:
    used()
    with pytest.raises(ExecutionHeldError):
        asyncio.run(on(old()).remove("inline"))
    assert asyncio.run(on(old()).prune(ALL)).removed == 2, "the others are held"
    for name in ("inline", "dispatched", "import"):
        asyncio.run(handle(old(), name).release())
        asyncio.run(on(old()).remove(name))
    assert count("SELECT count(*) FROM blobs") == 1, "the fork refers to that of the prompt"
    asyncio.run(handle(old(), "fork").release())
    asyncio.run(on(old()).remove("fork"))
    assert [count(f"SELECT count(*) FROM {table}") for table in ("blobs", "uses", "executions")] == [0, 0, 0]
    assert check(old()).problems == ()


def test_c59_a_worker_applies_retention_to_an_encrypted_store() -> None:
    inline(old())

    async def work() -> None:
        backend, stop = on(old()), asyncio.Event()
        backend.retain(ALL)
        worker = asyncio.create_task(backend.work(stop=stop))
        while await backend.list():
            await asyncio.sleep(0.01)
        stop.set()
        await worker

    try:
        asyncio.run(asyncio.wait_for(work(), 20))
    finally:
        retentions.set(Path("runs.db").resolve(), RetentionRules())
    assert count("SELECT count(*) FROM blobs") == 0


def test_c59_without_the_key_nothing_is_removed_and_nothing_is_added() -> None:
    used()
    Path("run.json").write_text(json.dumps(export(old())))
    leave()
    before = Path("runs.db").read_bytes()
    commands = [
        ["prune", "--completed", "0s"],
        ["rm", "emptied", "--yes"],
        ["rm", "--status", "completed", "--yes"],
        ["hold", "emptied"],
        ["fork", "inline", "--id", "other"],
        ["import", "run.json", "--id", "other"],
    ]
    for command in commands:
        found = cli(*command, "--backend", "runs.db")
        assert found.exit_code != 0, command
        assert "no cipher was given" in found.stderr, command
    leave()
    assert Path("runs.db").read_bytes() == before


def rekey(folder: str, point: str | None = None) -> list[str]:
    """Encrypt the store of a folder with the new key, a few rows at a time; die at a point."""
    os.chdir(folder)
    rekeying._PIECE_BYTES = 100_000
    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        asyncio.run(on(both()).rekey())
    return points.reached


def test_c59_a_used_store_gets_a_new_key_also_if_that_is_killed_half_way() -> None:
    used()
    before = shown(old())
    content = Path("runs.db").read_bytes()
    os.mkdir("whole")
    shutil.copy("runs.db", "whole/runs.db")
    points = run(rekey, str(Path("whole").resolve())).checked()
    pieces = [point for point in points if point.startswith("rekey.piece:after")]
    assert run(rekey, str(Path.cwd()), pieces[len(pieces) // 2]).exitcode == -signal.SIGKILL
    assert count("SELECT count(*) FROM data_keys") == 2
    assert check(both()).problems == (), "half of it has the new key"
    assert check(None).problems == ()
    assert asyncio.run(on(both()).rekey()).outcome == "rotated"
    leave()
    assert check(new()).problems == ()
    assert shown(new()) == before
    assert count("SELECT count(*) FROM data_keys") == 1
    assert Path("runs.db").read_bytes() != content
    assert inline(new(), "fork") == f"{SECRET} answer"
    assert {each.execution_id for each in Catalog("runs.db", new()).executions() if each.is_held} >= {
        "inline",
        "import",
    }
    leave()
    assert readable(Path.cwd()) == []


def test_c59_a_used_store_is_encrypted_and_decrypted_as_a_whole() -> None:
    used()
    before = shown(old())
    assert asyncio.run(on(old()).rekey(decrypt=True)).outcome == "decrypted"
    assert (check(None).problems, check(None).is_locked) == ((), False)
    assert shown(None) == before
    leave()
    assert asyncio.run(on(new()).rekey()).outcome == "encrypted"
    assert check(new()).problems == ()
    assert shown(new()) == before
    leave()
    assert readable(Path.cwd()) == []


# C60: what needs no key


def test_c60_lists_show_ids_statuses_and_times_without_the_key() -> None:
    used()
    before = Path("runs.db").read_bytes()
    locked = Catalog("runs.db").executions()
    names = ("execution_id", "status", "created_at", "updated_at", "tokens", "steps", "is_held", "contents_removed_at")
    assert [[getattr(each, name) for name in names] for each in locked] == [
        [getattr(each, name) for name in names] for each in Catalog("runs.db", old()).executions()
    ]
    assert {each.unreadable for each in locked} == {None}
    found = cli("ls", "--backend", "runs.db")
    assert found.exit_code == 0
    assert "dispatched" in found.stdout
    assert cli("ls", "--status", "failed", "--json", "--backend", "runs.db").stdout.count('"execution_id"') == 1
    assert Path("runs.db").read_bytes() == before


def test_c60_an_execution_is_shown_without_the_key_and_its_contents_are_named_encrypted() -> None:
    used()
    for execution_id in ("inline", "dispatched", "fork", "import", "emptied", "failed"):
        locked, found = (Catalog("runs.db", cipher).execution(execution_id) for cipher in (None, old()))
        assert locked.execution.unreadable is None
        assert [call.unreadable for call in locked.calls] == [None] * len(found.calls)
        steps = [[(s.name, s.state, s.number, s.started_at, s.usage) for s in each.steps] for each in (locked, found)]
        assert steps[0] == steps[1]
        assert SECRET not in repr(locked)
        shown = cli("show", execution_id, "--backend", "runs.db")
        assert shown.exit_code == 0
        assert "<encrypted>" in shown.stdout


def test_c60_an_execution_that_waits_is_shown_without_the_key() -> None:
    agent = planner()
    Durability("runs.db", execution_id="waits", cipher=old()).init_agent(agent)
    assert agent(f"{SECRET} prompt").stop_reason == "interrupt"
    locked = Catalog("runs.db").execution("waits")
    assert locked.execution.status.value == "SUSPENDED"
    assert locked.calls[0].unreadable is None
    assert SECRET not in repr(locked)
    assert cli("show", "waits", "--backend", "runs.db").exit_code == 0


def test_c60_a_wrong_key_is_an_error_also_for_a_list() -> None:
    inline(old())
    for cipher in (new(), Cipher({"2025": bytes(32)})):
        with pytest.raises(CipherError):
            Catalog("runs.db", cipher).executions()


def test_c60_questions_and_large_bytes_need_the_key() -> None:
    inline(old())
    leave()
    (digest,) = closing_rows("SELECT digest FROM blobs LIMIT 1")[0]
    for look in (lambda: Catalog("runs.db").recorded_bytes("inline", digest), lambda: Catalog("runs.db").questions()):
        with pytest.raises(CipherError, match="no cipher was given"):
            look()


def test_c60_a_dry_run_of_a_command_for_many_needs_no_key() -> None:
    used()
    found = cli("rm", "--status", "completed", "--dry-run", "--backend", "runs.db")
    assert found.exit_code == 0
    assert "dispatched" in found.stdout
