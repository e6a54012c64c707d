"""C8: an owner that cannot be seen is judged by its heartbeat, by the monotonic clock of who looks, not by the time of day."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect
from strands_durable._journal.owner import Beat, Liveness, Owner
from strands_durable._sqlite.catalog import Catalog
from strands_durable.testing import call
from tests import dispatched
from tests.dispatched import dispatch, kill, result, worker
from tests.processes import Child, run
from tests.script import calls, in_new_process, ledger
from tests.waiting import until

HOUR = 3600.0
WAITS = [call("book", city="Paris"), call("wait_for", path="go"), call("book", city="Rome"), "Done."]
SHORT = {"lease_seconds": 0.6}


def _elsewhere(folder: str, options: dict[str, Any]) -> Any:
    """Run the script as a process of another machine."""
    os.chdir(folder)
    socket.gethostname = lambda: "elsewhere"
    return calls(WAITS, ["Go"], options)


def _ahead(folder: str, options: dict[str, Any]) -> Any:
    """Run the script on a machine whose clock is an hour ahead."""
    os.chdir(folder)
    now = time.time
    time.time = lambda: now() + HOUR
    return calls(WAITS, ["Go"], options)


def _worker_elsewhere(folder: str, options: dict[str, Any]) -> None:
    socket.gethostname = lambda: "elsewhere"
    dispatched._work(folder, options)


def _worker_ahead(folder: str, options: dict[str, Any]) -> None:
    now = time.time
    time.time = lambda: now() + HOUR
    dispatched._work(folder, options)


def booked() -> list[str]:
    return [entry["city"] for entry in ledger.read() if entry.get("name") == "book"]


def query(sql: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


def move_elsewhere(lease_until: float) -> None:
    """Move a dead owner to another machine, so that its death cannot be observed from here."""
    owner = Owner(host="elsewhere", boot_id="b", pid_namespace="n", pid=1, started="1").recorded()
    query("UPDATE executions SET owner = ?, lease_until = ?", owner, lease_until)


def test_c08_a_dead_owner_whose_clock_was_ahead_is_replaced_within_one_lease() -> None:
    owner = Child(_elsewhere, os.getcwd(), SHORT)
    until(Path("waiting").exists)
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    move_elsewhere(time.time() + HOUR)
    Path("go").touch()
    began = time.monotonic()
    assert in_new_process(WAITS, ["Go"], SHORT).checked()[0]["text"] == "Done."
    assert 0.5 < time.monotonic() - began < 10
    assert booked() == ["Paris", "Rome"]


def test_c08_a_contender_whose_clock_is_ahead_leaves_a_living_owner_in_place() -> None:
    owner = Child(_elsewhere, os.getcwd(), SHORT)
    until(Path("waiting").exists)
    (outcome,) = run(_ahead, os.getcwd(), SHORT).checked()
    assert outcome["error"] == "ExecutionBusyError"
    assert "elsewhere" in outcome["text"]
    Path("go").touch()
    assert owner.join().checked()[0]["text"] == "Done."
    assert booked() == ["Paris", "Rome"]


def test_c08_the_length_of_the_owners_lease_counts_and_not_that_of_who_waits() -> None:
    owner = Child(_elsewhere, os.getcwd(), {"lease_seconds": 3.0})
    until(Path("waiting").exists)
    assert in_new_process(WAITS, ["Go"], {"lease_seconds": 0.1}).checked()[0]["error"] == "ExecutionBusyError"
    Path("go").touch()
    assert owner.join().checked()[0]["text"] == "Done."


def test_c08_a_worker_claims_from_a_dead_one_whose_clock_was_ahead() -> None:
    handle = dispatch([{"tool": "wait_for", "path": "go"}, "Done."], "run")
    first = worker(lease_seconds=0.6)
    until(Path("waiting").exists)
    kill(first)
    move_elsewhere(time.time() + HOUR)
    Path("go").touch()
    second = worker(lease_seconds=0.6)
    assert str(result(handle, 20)) == "Done.\n"
    dispatched.stop(second)


def test_c08_a_worker_whose_clock_is_ahead_leaves_a_living_one_in_place() -> None:
    handle = dispatch([{"tool": "wait_for", "path": "go"}, "Done."], "run")
    first = Child(_worker_elsewhere, os.getcwd(), SHORT)
    until(Path("waiting").exists)
    second = Child(_worker_ahead, os.getcwd(), SHORT)
    dispatch(["Hello."], "other")
    until(lambda: dispatched.status("other") == "COMPLETED")
    (before,) = query("SELECT beat FROM executions WHERE execution_id = 'run'")
    until(lambda: query("SELECT beat FROM executions WHERE execution_id = 'run'")[0][0] > before[0] + 3)
    assert query("SELECT fence FROM executions WHERE execution_id = 'run'") == [(1,)]
    Path("go").touch()
    assert str(result(handle)) == "Done.\n"
    dispatched.stop(first, second)


def test_c03_a_cancel_from_a_clock_that_is_ahead_asks_a_living_owner() -> None:
    owner = Child(_elsewhere, os.getcwd(), SHORT)
    until(Path("waiting").exists)
    query("UPDATE executions SET lease_until = 1")

    async def cancel() -> Any:
        handle = await connect("sqlite:///runs.db?worker=off").get("trip")
        await handle.cancel()
        return (await handle.status()).value

    assert asyncio.run(cancel()) == "RUNNING", "its owner may be alive: it is asked"
    Path("go").touch()
    assert owner.join().checked()[0]["error"] == "ExecutionCancelledError"


def test_an_owner_that_is_seen_at_work_is_listed_whatever_the_clocks_say() -> None:
    owner = Child(_ahead, os.getcwd(), SHORT)
    until(Path("waiting").exists)
    query("UPDATE executions SET lease_until = 1")
    (found,) = Catalog("runs.db").executions()
    assert found.owner == f"process {owner.pid} on {socket.gethostname()}"
    Path("go").touch()
    owner.join()


@pytest.mark.parametrize("seconds", [-HOUR, 5.0, 9e9])
@pytest.mark.parametrize("where", ["here", "gone", "elsewhere"])
def test_an_owner_is_shown_exactly_when_no_process_would_replace_it(
    where: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls([call("book", city="Paris"), "Done."], ["Go"], {})
    other = {"here": {}, "gone": {"started": "1"}, "elsewhere": {"host": "elsewhere"}}
    owner, lease_until = Owner(**{**vars(Owner.me()), **other[where]}), time.time() + seconds
    query("UPDATE executions SET owner = ?, lease_seconds = 10, lease_until = ?", owner.recorded(), lease_until)
    (found,) = Catalog("runs.db").executions()
    now, liveness = 100.0, Liveness()
    monkeypatch.setattr("strands_durable._journal.owner.time.monotonic", lambda: now)
    beat = Beat(1, owner.recorded(), 1, 1, 10.0)
    assert liveness.dead([beat]) == ([beat] if where == "gone" else []), "no other owner is dead at the first look"
    for _ in range(0 if seconds == 5.0 else 3):  # else its last beat is a lease ago, or its end was never one
        now += 4
        liveness.is_alive(beat)
    assert found.owner == (str(owner) if liveness.is_alive(beat) else None)


def test_a_long_time_without_a_look_does_not_make_an_owner_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("strands_durable._journal.owner.time.monotonic", lambda: now)
    liveness = Liveness()
    owner = Owner(host="elsewhere", boot_id="b", pid_namespace="n", pid=1, started="1").recorded()

    def is_alive(beat: int = 1) -> bool:
        return liveness.is_alive(Beat(1, owner, 1, beat, 10.0))

    assert is_alive(), "no owner is dead at the first look"
    now += 1000
    assert is_alive(), "this process may have slept, and the owner with it"
    now += 3
    assert is_alive()
    assert is_alive(beat=2), "it beats"
    for _ in range(3):
        now += 3
        assert is_alive(beat=2)
    now += 3
    assert not is_alive(beat=2)


def test_a_worker_looks_at_a_process_once_however_much_it_owns(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr("strands_durable._journal.owner._state_of", lambda pid, started: looked.append(pid) or "gone")
    owner = Owner.me().recorded()
    beats = [Beat(row_id, owner, 1, 1, 10.0) for row_id in range(3)]
    assert Liveness().dead(beats) == beats
    assert looked == [os.getpid()]


def test_an_owner_that_cannot_be_read_is_some_process_elsewhere() -> None:
    for text in (
        "",
        "{",
        "[]",
        '{"host": 1}',
        '{"host":"a","boot_id":"b","pid_namespace":"c","pid":"x","started":"1"}',
        '{"host":"a","boot_id":"b","pid_namespace":"c","pid":1e999,"started":"1"}',
        Owner(**{**vars(Owner.me()), "pid": -1}).recorded(),
    ):
        owner = Owner.parse(text)
        assert (owner.is_gone(), owner.is_at_work()) == (False, False)
