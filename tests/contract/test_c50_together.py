"""Forks, exports, retention, holds, backup and verify on one file: none of them breaks what another has made."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle, ExecutionStatus, Retention, connect, errors
from tests.contract.test_c50_retention import OLD, SECRET, URL, completed


def run(main: Any) -> Any:
    return asyncio.run(main)


async def handle_of(execution_id: str, url: str = URL) -> ExecutionHandle:
    return await connect(url).get(execution_id)


def blobs() -> int:
    with closing(sqlite3.connect("runs.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM blobs").fetchone()[0])


def is_sound(url: str = URL) -> bool:
    return run(connect(url).verify()).is_sound  # type: ignore[no-any-return]


def test_c51_what_has_no_contents_is_neither_forked_nor_exported_whole() -> None:
    completed()
    run(connect(URL).prune(Retention(contents=0)))
    handle = run(handle_of("done"))
    with pytest.raises(errors.ContentsRemovedError, match="'done'"):
        run(handle.fork(at=1, execution_id="again"))
    with pytest.raises(errors.ContentsRemovedError, match="'done'"):
        run(handle.fork_point())
    with pytest.raises(errors.ContentsRemovedError, match="'done'"):
        run(handle.export())
    assert [each.execution_id for each in run(connect(URL).list())] == ["done"]
    assert is_sound()


def test_c50_a_fork_outlives_the_removal_of_its_origin_with_all_that_it_refers_to() -> None:
    completed()
    fork = run(run(handle_of("done")).fork(at=1, execution_id="fork"))
    run(connect(URL).prune(OLD))
    assert [each.execution_id for each in run(connect(URL).list())] == ["fork"]
    assert blobs() == 1
    assert SECRET in str(run(fork.export()))
    assert is_sound()
    run(connect(URL).remove("fork"))
    assert blobs() == 0


def test_c50_an_import_is_kept_held_and_removed_like_any_other() -> None:
    completed()
    whole = run(run(handle_of("done")).export())
    copy = run(connect(URL).import_execution(whole, execution_id="copy"))
    run(copy.hold())
    pruned = run(connect(URL).prune(OLD))
    assert (pruned.removed, [each.execution_id for each in run(connect(URL).list())]) == (1, ["copy"])
    with pytest.raises(errors.ExecutionHeldError):
        run(connect(URL).remove("copy"))
    run(copy.release())
    run(connect(URL).prune(Retention(contents=0)))
    assert run(copy.status()) is ExecutionStatus.COMPLETED
    assert SECRET.encode() not in Path("runs.db").read_bytes()
    assert is_sound()


def test_c48_a_backup_holds_forks_and_imports_and_is_sound(tmp_path: Path) -> None:
    completed()
    original = run(handle_of("done"))
    run(original.fork(at=2, execution_id="fork"))
    run(connect(URL).import_execution(run(original.export()), execution_id="copy"))
    run(connect(URL).backup(tmp_path / "copy.db"))
    url = f"sqlite:///{tmp_path / 'copy.db'}?worker=off"
    assert is_sound(url)
    assert {each.execution_id for each in run(connect(url).list())} == {"done", "fork", "copy"}
    assert run(run(handle_of("fork", url)).detail()).origin.execution_id == "done"
