"""C8 and C2 on dispatched executions: workers that sleep, stop, die and are stopped; each step runs as its policy says."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect, errors
from strands_durable._dispatch.requests import Requests
from strands_durable._dispatch.worker import Worker
from strands_durable._sqlite.journal import Journal
from tests import dispatched
from tests.dispatched import ask_to_stop, dispatch, kill, result, status, stop, worker
from tests.processes import Child, freeze
from tests.script import ledger
from tests.waiting import until

WAITS = [
    {"tool": "book", "city": "Paris"},
    {"tool": "wait_for", "path": "go"},
    {"tool": "book", "city": "Rome"},
    "Done.",
]
ROOT = Path(__file__).parents[2]


def booked() -> list[str]:
    return [entry["city"] for entry in ledger.read() if entry.get("name") == "book"]


def query(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_c08_a_worker_that_slept_through_its_lease_writes_nothing_more() -> None:
    handle = dispatch(WAITS, "run")
    sleeper = worker(lease_seconds=0.5)
    until(Path("waiting").exists)
    freeze(sleeper.pid)
    taker = worker(lease_seconds=0.5)
    until(lambda: query("SELECT fence FROM executions") == [(2,)])
    Path("go").touch()
    assert str(result(handle)) == "Done.\n"
    stop(taker)
    before = query("SELECT * FROM steps"), query("SELECT * FROM messages"), query("SELECT * FROM executions")
    os.kill(sleeper.pid, signal.SIGCONT)
    stop(sleeper)
    assert (query("SELECT * FROM steps"), query("SELECT * FROM messages"), query("SELECT * FROM executions")) == before
    assert booked() == ["Paris", "Rome"]


def test_c08_a_killed_worker_is_replaced_at_once() -> None:
    handle = dispatch(WAITS, "run")
    first = worker(lease_seconds=600)
    until(Path("waiting").exists)
    second = worker(lease_seconds=600)
    kill(first)
    Path("go").touch()
    assert str(result(handle, 15)) == "Done.\n"
    stop(second)
    assert booked() == ["Paris", "Rome"]
    assert query("SELECT attempt, status FROM steps WHERE name = 'wait_for' ORDER BY attempt") == [
        (1, "started"),
        (2, "done"),
    ]


def test_c08_a_worker_that_is_stopped_ends_its_step_and_another_resumes() -> None:
    handle = dispatch(WAITS, "run")
    first = worker()
    until(Path("waiting").exists)
    ask_to_stop(first)
    Path("go").touch()
    first.join().checked()
    assert (status("run"), booked()) == ("RUNNING", ["Paris"])
    assert query("SELECT attempt, status FROM steps WHERE name = 'wait_for'") == [(1, "done")]
    second = worker()
    assert str(result(handle)) == "Done.\n"
    stop(second)
    assert booked() == ["Paris", "Rome"]


@pytest.mark.parametrize("agent", ["scripted", "careful"])
def test_c12_a_step_longer_than_the_drain_is_in_doubt_and_follows_its_policy(agent: str) -> None:
    script = [{"tool": "wait_for", "path": "go"}, "Done."]
    handle = dispatch(script, "run", agent=getattr(dispatched, agent))
    first = worker(drain_seconds=0.1)
    until(Path("waiting").exists)
    ask_to_stop(first)
    second = worker()
    until(Path(f"ready-{second.pid}").exists)
    with pytest.raises(TimeoutError):  # its tool still runs, in a thread of a process that lives
        result(handle, 1.5)
    kill(first)
    if agent == "scripted":
        until(lambda: query("SELECT max(attempt) FROM steps WHERE name = 'wait_for'") == [(2,)])
    else:
        assert str(result(handle)) == "Done.\n", "policy fail: the model hears of it, and the tool does not run again"
    Path("go").touch()
    assert str(result(handle)) == "Done.\n"
    stop(second)
    steps = query("SELECT attempt, status FROM steps WHERE name = 'wait_for' ORDER BY attempt")
    assert steps[0] == (1, "started"), "the step that was cut off wrote nothing when it ended"
    assert steps[-1][1] == "done"


def test_c04_an_answer_survives_the_death_of_the_worker_that_took_it() -> None:
    script = [{"tool": "approve", "what": "trip"}, {"tool": "book_and_die", "city": "Rome"}, "Done."]
    handle = dispatch(script, "run")
    (question,) = result_with_worker(handle).interrupts
    asyncio.run(handle.respond({question.id: "yes"}))
    assert query("SELECT answer FROM replies") == [('"yes"',)], "it is on record before any worker has it"
    first = worker()
    first.join()
    second = worker()
    assert str(result(handle)) == "Done.\n"
    stop(second)
    assert query("SELECT answer FROM answers") == [('"yes"',)]
    assert query("SELECT count(*) FROM replies") == [(0,)]


def result_with_worker(handle: Any) -> Any:
    current = worker()
    try:
        return result(handle)
    finally:
        stop(current)


@pytest.mark.parametrize("tool", ["leave", "leave_soon"])
def test_c02_a_tool_that_ends_the_process_fails_its_execution_and_not_the_worker(tool: str) -> None:
    bad = dispatch([[{"tool": tool}, {"tool": "book", "city": "Oslo"}], "Never."], "bad")
    current = worker()
    with pytest.raises(errors.ExecutionFailedError):
        result(bad)
    good = dispatch([{"tool": "book", "city": "Paris"}, "Done."], "good")
    assert str(result(good)) == "Done.\n"
    assert current.process.is_alive()
    stop(current)


def test_c01_a_new_process_resumes_what_a_killed_script_left() -> None:
    code = textwrap.dedent("""
        from tests.dispatched import scripted
        script = [{"tool": "book", "city": "Paris"}, {"tool": "book_and_die", "city": "Rome"}, "Done."]
        print(scripted.on("sqlite:///runs.db")("Go", execution_id="trip", script=script), end="")
    """)

    def run() -> Any:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        )  # fmt: skip

    assert run().returncode == -signal.SIGKILL
    second = run()
    assert (second.returncode, second.stdout) == (0, "Done.\n"), second.stderr
    third = run()
    assert third.stdout == "Done.\n"
    assert booked() == ["Paris"]
    assert [entry["attempt"] for entry in ledger.read() if entry.get("name") == "book_and_die"] == [1, 2]


def test_c02_a_script_that_ends_while_its_worker_is_at_work_spoils_nothing() -> None:
    """Python takes no more work for threads once the script has ended, and still waits for the threads that run."""
    code = textwrap.dedent("""
        import asyncio
        from pathlib import Path
        from tests.dispatched import scripted
        from tests.script import ledger
        from tests.waiting import until
        agent = scripted.on("sqlite:///runs.db")
        books = [{"tool": "book", "city": str(number)} for number in range(300)]
        asyncio.run(agent.dispatch_async("Go", execution_id="long", script=[{"tool": "wait_for", "path": "go"}, "Done."]))
        asyncio.run(agent.dispatch_async("Go", execution_id="many", script=[*books, "Done."]))
        until(lambda: Path("waiting").exists() and any(entry.get("name") == "book" for entry in ledger.read()))
        print("leaving", flush=True)
    """)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    script = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    assert script.stdout is not None
    assert script.stdout.readline() == "leaving\n"
    until(
        lambda: (
            status("many") == "COMPLETED"
            or query("SELECT owner FROM executions WHERE execution_id = 'many'") == [(None,)]
        ),
        90,
    )
    Path("go").touch()
    assert script.wait(90) == 0
    script.stdout.close()
    current = worker()
    for execution_id in ("long", "many"):
        assert str(result(asyncio.run(connect(dispatched.OFF).get(execution_id)))) == "Done.\n"
    stop(current)
    assert booked() == [str(number) for number in range(300)]
    assert query("SELECT count(*) FROM steps WHERE kind = 'tool' AND result LIKE '%after%shutdown%'") == [(0,)]


def dispatch_all(folder: str, number: int) -> list[str]:
    os.chdir(folder)
    ids = []
    for each in range(125):
        which = (each * 7 + number * 13) % 50
        handle = dispatch([{"tool": "book", "city": str(which)}, "Done."], f"run-{which}")
        ids.append(handle.execution_id)
    return ids


def test_c01_the_same_ids_from_many_processes_are_one_execution_each() -> None:
    workers = [worker(concurrency=5) for _ in range(2)]
    callers = [Child(dispatch_all, os.getcwd(), number) for number in range(4)]
    ids = [execution_id for caller in callers for execution_id in caller.join().checked()]
    assert (len(ids), len(set(ids))) == (500, 50)
    until(lambda: {status(execution_id) for execution_id in set(ids)} == {"COMPLETED"})
    stop(*workers)
    assert Counter(booked()) == {str(number): 1 for number in range(50)}
    assert query("SELECT count(*) FROM executions") == query("SELECT count(*) FROM calls") == [(50,)]


def respond_from_elsewhere(folder: str) -> str:
    os.chdir(folder)
    handle = asyncio.run(connect(dispatched.OFF).get("run"))
    (question,) = asyncio.run(handle.interrupts())
    asyncio.run(handle.respond({question.id: "yes"}))
    return question.name


def test_c27_who_waits_and_an_idle_worker_see_what_another_process_does() -> None:
    idle = worker()
    until(Path(f"ready-{idle.pid}").exists)
    handle = dispatch([{"tool": "approve", "what": "trip"}, {"tool": "wait_for", "path": "go"}, "Done."], "run")
    assert result(handle, 10).stop_reason == "interrupt"
    assert Child(respond_from_elsewhere, os.getcwd()).join().checked() == "approval"

    async def wait() -> Any:
        waiting = asyncio.ensure_future(handle.result(10))
        while not Path("waiting").exists():
            await asyncio.sleep(0.01)
        assert not waiting.done()
        Path("go").touch()
        return await waiting

    assert str(asyncio.run(wait())) == "Done.\n"
    stop(idle)


def test_c04_an_answer_that_comes_while_others_are_taken_up_is_not_left_lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has read the first answer and not yet recorded that it resumes; the second arrives in between."""
    script = [[{"tool": "approve", "what": "trip"}, {"tool": "approve", "what": "hotel"}], "Done."]
    handle = dispatch(script, "run")
    first, second = result_with_worker(handle).interrupts
    asyncio.run(handle.respond({first.id: "yes"}))
    plainly, late = Journal.replies, [{second.id: "no"}]

    def replies(self: Journal, call_id: int) -> dict[str, Any]:
        found = plainly(self, call_id)
        if late and self.lease.fence > 0:
            Requests(self.store).respond("run", late.pop())
        return found

    monkeypatch.setattr(Journal, "replies", replies)

    async def main() -> str:
        ends = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(ends, 5.0))
        while late:
            await asyncio.sleep(0.01)
        found = await handle.result(20)
        ends.set()
        await working
        return f"{found.status.value} {found}"

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "COMPLETED Done.\n"
