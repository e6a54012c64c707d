"""C8: leases are fenced, dead owners are replaced at once on the same machine, sleepers that were replaced write nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from strands_durable import errors
from strands_durable._journal import owner as owners
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.lease import Owner, acquire
from strands_durable.testing import call
from tests.processes import freeze
from tests.script import calls, in_new_process, ledger, start_process
from tests.waiting import until

WAITS = [call("book", city="Paris"), call("wait_for", path="go"), call("book", city="Rome"), "Done."]


def owner_row() -> tuple[Any, ...]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute("SELECT owner, fence, lease_until, beat FROM executions").fetchone()
    finally:
        connection.close()


def test_c08_after_a_kill_on_this_machine_the_next_start_resumes_at_once() -> None:
    owner = start_process(WAITS, ["Go"], {"lease_seconds": 600.0})
    until(Path("waiting").exists)
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    Path("go").touch()
    assert in_new_process(WAITS, ["Go"], {"lease_seconds": 600.0}).checked()[0]["text"] == "Done."
    assert [entry["city"] for entry in ledger.read() if entry.get("name") == "book"] == ["Paris", "Rome"]


def test_c08_a_killed_owner_that_was_not_reaped_counts_as_gone() -> None:
    code = "from tests.script import calls; from tests.contract.test_c08_owners import WAITS; calls(WAITS, ['Go'], %r)"
    options = {"lease_seconds": 600.0}
    root = Path(__file__).parents[2]
    owner = subprocess.Popen([sys.executable, "-c", code % options], env={**os.environ, "PYTHONPATH": str(root)})
    until(Path("waiting").exists)
    owner.send_signal(signal.SIGKILL)
    until(lambda: psutil.Process(owner.pid).status() == psutil.STATUS_ZOMBIE)
    Path("go").touch()
    assert calls(WAITS, ["Go"], options)[0]["text"] == "Done."
    owner.wait()


def test_c08_an_owner_elsewhere_is_replaced_within_one_lease() -> None:
    script = [call("book_and_die", city="Rome"), "Hi."]
    assert in_new_process(script, ["Go"], {"lease_seconds": 1.0}).exitcode == -signal.SIGKILL
    elsewhere = Owner(host="elsewhere", boot_id="b", pid_namespace="n", pid=1, started="1")
    with sqlite3.connect("runs.db") as connection:
        connection.execute(
            "UPDATE executions SET owner = ?, lease_until = ?",
            (elsewhere.recorded(), time.time() + 0.5),
        )
    connection.close()
    began = time.monotonic()
    assert in_new_process(script, ["Go"], {"lease_seconds": 1.0}).checked()[0]["text"] == "Hi."
    assert time.monotonic() - began >= 0.4, "it waited for the lease"


def test_c08_a_stopped_owner_that_lost_its_lease_writes_nothing_more() -> None:
    sleeper = start_process(WAITS, ["Go"], {"lease_seconds": 0.5})
    until(Path("waiting").exists)
    freeze(sleeper.pid)
    Path("go").touch()
    taker = in_new_process(WAITS, ["Go"], {"lease_seconds": 0.5}).checked()[0]
    before = Path("runs.db").stat().st_size, dump()
    os.kill(sleeper.pid, signal.SIGCONT)
    woken = sleeper.join().checked()[0]
    assert taker["text"] == "Done."
    assert woken["error"] == "LeaseLostError"
    assert "This process recorded nothing more" in woken["text"]
    assert (Path("runs.db").stat().st_size, dump()) == before
    assert [entry["city"] for entry in ledger.read() if entry.get("name") == "book"] == ["Paris", "Rome"]


def test_c08_an_owner_that_is_seen_at_work_is_not_replaced_although_its_lease_is_over() -> None:
    owner = start_process(WAITS, ["Go"], {"lease_seconds": 600.0})
    until(Path("waiting").exists)
    with sqlite3.connect("runs.db") as connection:
        connection.execute("UPDATE executions SET lease_until = 1")
    connection.close()
    assert in_new_process(WAITS, ["Go"], {"lease_seconds": 0.2}).checked()[0]["error"] == "ExecutionBusyError"
    Path("go").touch()
    assert owner.join().checked()[0]["text"] == "Done."


def dump() -> list[str]:
    connection = sqlite3.connect("runs.db")
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_c08_a_lease_that_ran_out_but_was_not_taken_is_renewed() -> None:
    sleeper = start_process(WAITS, ["Go"], {"lease_seconds": 0.5})
    until(Path("waiting").exists)
    os.kill(sleeper.pid, signal.SIGSTOP)
    until(lambda: owner_row()[2] < time.time())
    os.kill(sleeper.pid, signal.SIGCONT)
    until(lambda: owner_row()[2] > time.time())
    Path("go").touch()
    assert sleeper.join().checked()[0]["text"] == "Done."


def test_c08_the_heartbeat_renews_a_lease_while_a_tool_runs_long() -> None:
    owner = start_process(WAITS, ["Go"], {"lease_seconds": 0.6})
    until(Path("waiting").exists)
    _, fence, lease_until, beat = owner_row()
    until(lambda: owner_row()[3] >= beat + 3)
    assert owner_row()[1] == fence
    assert owner_row()[2] > lease_until
    Path("go").touch()
    assert owner.join().checked()[0]["text"] == "Done."


def test_c08_every_write_checks_the_fence() -> None:
    store = Store(Path("runs.db").resolve())
    mine = asyncio.run(acquire(store, "trip", 10))
    theirs = asyncio.run(acquire(store, "trip", 10))
    assert theirs.fence == mine.fence + 1
    with pytest.raises(errors.LeaseLostError), store.transaction("test", mine.journal()) as connection:
        connection.execute("UPDATE executions SET status = 'FAILED'")
    with store.transaction("test", theirs.journal()) as connection:
        connection.execute("UPDATE executions SET status = 'RUNNING'")
    assert store.read("SELECT status FROM executions") == [("RUNNING",)]
    store.close()


def test_c08_an_owner_is_named_so_that_a_later_process_is_not_mistaken_for_it() -> None:
    me = Owner.me()
    assert not me.is_gone()
    assert Owner(**{**vars(me), "started": "1"}).is_gone(), "the number was given to another process"
    assert not Owner(**{**vars(me), "boot_id": "other"}).is_gone(), "on another machine it cannot be observed"
    assert Owner.parse(me.recorded()) == me


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts from the boot")
def test_c08_an_owner_is_recorded_as_before_and_stays_the_same_when_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me, boot_time = Owner.me(), psutil.boot_time()
    assert me.started == Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time + 3600)
    assert me.is_at_work()
    set_just_now = iter([boot_time, boot_time + 1])
    monkeypatch.setattr("psutil.boot_time", lambda: next(set_just_now, boot_time + 3600))
    assert me.is_at_work()


@pytest.fixture
def without_exact_starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have processes as a machine without /proc has them, such as a Mac."""
    monkeypatch.setattr(owners, "_IS_EXACT", False)
    owners._owner.cache_clear()
    yield
    owners._owner.cache_clear()


@pytest.mark.usefixtures("without_exact_starts")
def test_c08_where_starts_are_times_of_day_a_dead_owner_is_gone_and_a_doubtful_one_is_judged_by_its_heartbeat() -> None:
    me = Owner.me()
    assert float(me.started) == pytest.approx(psutil.Process().create_time())
    assert me.is_at_work()
    for started in ("1.5", ""):  # the number of a later process, or a record of an earlier version
        assert Owner(**{**vars(me), "started": started}).state() == "unknown"
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert Owner(**{**vars(me), "pid": child.pid}).is_gone()


def test_c08_where_processes_cannot_be_seen_the_heartbeat_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("/proc/stat")

    me = Owner.me()
    monkeypatch.setattr("psutil.boot_time", refuse)
    monkeypatch.setattr("psutil.Process", refuse)
    assert me.state() == "unknown"
    owners._owner.cache_clear()
    assert Owner.me().started == ""
    monkeypatch.undo()
    assert Owner.me().state() == "unknown"
    owners._owner.cache_clear()
