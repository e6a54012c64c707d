"""C34: a run that kills its worker is found out, and does no harm to others. Workers are processes, kills are real."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from strands_durable import errors
from tests.dispatched import ask_to_stop, dispatch, kill, result, status, stop, worker
from tests.script import ledger
from tests.waiting import until

DIES = [{"tool": "die", "city": "Rome"}, "Alive."]
BOOKS = [{"tool": "book", "city": "Paris"}, "Booked."]


def column(name: str, execution_id: str) -> Any:
    connection = sqlite3.connect("runs.db")
    try:
        sql = f"SELECT {name} FROM dispatches d JOIN executions e ON d.execution = e.id WHERE e.execution_id = ?"
        return connection.execute(sql, (execution_id,)).fetchone()[0]
    finally:
        connection.close()


def effects(name: str) -> list[Any]:
    return [entry for entry in ledger.read() if entry.get("name") == name]


def with_workers(done: Any, **options: Any) -> int:
    """Keep one worker alive, as a supervisor does, until ``done``; return how many have died."""
    deaths, current = 0, worker(**options)
    until(lambda: done() or not current.process.is_alive())
    while not done():
        current.join()
        deaths, current = deaths + 1, worker(**options)
        assert deaths < 10, "it never ends"
        until(lambda current=current: done() or not current.process.is_alive())
    if current.process.is_alive():
        stop(current)
    else:
        current.join()
    return deaths


def test_c34_a_run_that_kills_its_worker_fails_after_three_deaths_alone_and_the_others_complete() -> None:
    ids = [f"good-{number}" for number in range(6)]
    for execution_id in ids[:3]:
        dispatch(BOOKS, execution_id)
    bad = dispatch(DIES, "bad")
    for execution_id in ids[3:]:
        dispatch(BOOKS, execution_id)
    deaths = with_workers(lambda: status("bad") == "FAILED" and all(status(each) == "COMPLETED" for each in ids))
    assert deaths == 4, "once among others, and three times alone"
    with pytest.raises(errors.ExecutionFailedError) as caught:
        result(bad)
    assert isinstance(caught.value.__cause__, errors.WorkerLostError)
    assert caught.value.__cause__.deaths == 3
    assert len(effects("die")) == 4
    assert [entry["attempt"] for entry in effects("die")] == [1, 2, 3, 4]
    assert len(effects("book")) <= 6 + 6, "only steps running at a death may run again"


def test_c34_a_run_resumes_after_the_cause_is_fixed() -> None:
    bad = dispatch(DIES, "bad")
    with_workers(lambda: status("bad") == "FAILED")
    Path("fixed").touch()
    asyncio.run(bad.resume())
    current = worker()
    assert str(result(bad)) == "Alive.\n"
    stop(current)
    assert (column("deaths", "bad"), column("is_suspected", "bad")) == (0, 0)
    failures = asyncio.run(bad.detail()).calls[0].failures
    assert len(failures) == 1
    assert "WorkerLostError" in failures[0].error


def test_c34_an_execution_that_was_running_at_a_death_is_cleared_by_its_next_step() -> None:
    waits = [{"tool": "wait_for", "path": "go"}, {"tool": "wait_for", "path": "again"}, "Done."]
    handles = [dispatch(waits, f"run-{number}") for number in range(2)]
    first = worker()
    until(lambda: [status(f"run-{number}") for number in range(2)] == ["RUNNING"] * 2)
    kill(first)
    second = worker()
    until(lambda: column("is_alone", "run-0") or column("is_alone", "run-1"))
    Path("go").touch()
    until(lambda: not any(column("is_suspected", f"run-{number}") for number in range(2)))
    assert [column("deaths", f"run-{number}") for number in range(2)] == [0, 0]
    Path("again").touch()
    assert {str(result(handle)) for handle in handles} == {"Done.\n"}
    stop(second)


def test_c34_a_deploy_makes_no_execution_suspected() -> None:
    handle = dispatch([{"tool": "wait_for", "path": "go"}, {"tool": "book", "city": "Rome"}, "Done."], "run")
    first = worker()
    until(Path("waiting").exists)
    ask_to_stop(first)
    Path("go").touch()
    first.join().checked()
    assert (status("run"), column("is_suspected", "run"), column("deaths", "run")) == ("RUNNING", 0, 0)
    assert effects("book") == [], "the running step ended, and the next did not start"
    second = worker()
    assert str(result(handle)) == "Done.\n"
    stop(second)
    assert len(effects("book")) == 1
