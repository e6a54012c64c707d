"""C26: workers leave alone what they do not have, say so once, and a rolling deploy finishes what both versions began."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from strands_durable._dispatch import registry
from strands_durable._dispatch.queue import Queue
from strands_durable._dispatch.requests import Requests
from strands_durable._dispatch.worker import Worker
from strands_durable._records.crash_points import listen
from strands_durable._sqlite.catalog import Catalog
from tests.dispatched import ask_to_stop, backend, dispatch, leaving, result, scripted, status, stop, version, worker
from tests.script import ledger
from tests.waiting import until


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let this process lack an agent."""
    return lambda name: monkeypatch.delitem(registry.agents, name)


def note_of(execution_id: str) -> str | None:
    return Catalog("runs.db").execution(execution_id).execution.note


def status_of(execution_id: str) -> str:
    return Catalog("runs.db").execution(execution_id).execution.status.value


def work_until(done: Any) -> None:
    """Work in this process until ``done``."""

    async def main() -> None:
        stop = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(stop, 5.0))
        while not done():
            await asyncio.sleep(0.01)
        stop.set()
        await working

    asyncio.run(asyncio.wait_for(main(), 30))


def dispatch_version(prompt: str, execution_id: str) -> Any:
    return asyncio.run(backend().dispatch(version(prompt).spec, "Go", execution_id=execution_id))


def test_c26_a_worker_that_lacks_the_agent_leaves_it_and_says_so_once(
    without: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        dispatch(["Hi."], f"run-{number}")
    without("scripted")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until(lambda: all(note_of(f"run-{number}") for number in range(3)))
    assert caplog.text.count("left unclaimed") == 1
    assert "no agent 'scripted' here" in caplog.text
    assert {status(f"run-{number}") for number in range(3)} == {"PENDING"}
    assert "no agent 'scripted' here" in str(note_of("run-2")), "ls shows it"
    assert Catalog("runs.db").execution("run-0").steps == ()


def test_c26_executions_left_for_the_same_reason_are_one_line_with_a_count(
    without: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(7):
        dispatch([f"Hi {number}."], f"run-{number}")  # with arguments of its own, each is a version of its own
    without("scripted")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until(lambda: all(note_of(f"run-{number}") for number in range(7)))
    lines = [record.getMessage() for record in caplog.records if "left unclaimed" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(
        "executions=<7>, execution_ids=<run-0, run-1, run-2 and 4 more> | left unclaimed: no agent"
    )


def test_c26_a_worker_with_another_version_leaves_it_and_logs_which(caplog: pytest.LogCaptureFixture) -> None:
    dispatch_version("one", "old")
    Path("go").touch()
    two = version("two")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until(lambda: note_of("old"))
    assert caplog.text.count("left unclaimed") == 1
    assert two.spec.fingerprint[:12] in str(note_of("old"))
    assert status("old") == "PENDING"


def test_c26_the_note_goes_when_a_worker_that_has_it_comes() -> None:
    handle = dispatch_version("one", "old")
    Path("go").touch()
    version("two")
    work_until(lambda: note_of("old"))
    right = worker(version="one")
    assert str(result(handle)) == "one!\n"
    stop(right)
    assert note_of("old") is None


def test_c26_a_rolling_deploy_finishes_what_each_version_began() -> None:
    old = [dispatch_version("one", f"old-{number}") for number in range(2)]
    one = worker(version="one")
    until(lambda: {status(f"old-{number}") for number in range(2)} == {"RUNNING"})
    two = worker(version="two")
    new = [dispatch_version("two", f"new-{number}") for number in range(2)]
    until(lambda: {status(f"new-{number}") for number in range(2)} == {"RUNNING"})
    stop_late = worker(version="one")
    Path("go").touch()
    assert {str(result(handle)) for handle in old} == {"one!\n"}
    assert {str(result(handle)) for handle in new} == {"two!\n"}
    stop(one, two, stop_late)


def test_c26_what_an_old_worker_left_is_left_to_the_old_version() -> None:
    handle = dispatch_version("one", "old")
    one = worker(version="one")
    until(Path("waiting").exists)
    ask_to_stop(one)
    Path("go").touch()
    one.join().checked()
    two = worker(version="two")
    until(lambda: note_of("old"))
    assert status("old") == "RUNNING"
    one = worker(version="one")
    assert str(result(handle)) == "one!\n"
    stop(one, two)
    assert [entry["turn"] for entry in ledger.read() if entry["kind"] == "model"] == [1, 3]


def test_c26_on_drift_warn_takes_a_run_of_another_version() -> None:
    handle = dispatch_version("one", "old")
    Path("go").touch()
    two = worker(version="two", on_drift="warn")
    assert str(result(handle)) == "two!\n"
    stop(two)


def test_c26_an_agent_with_a_factory_that_fails_here_is_reported_and_not_claimed_for_ever() -> None:
    spec = registry.registered("wrong").spec
    handle = asyncio.run(backend().dispatch(spec, "Go", execution_id="run"))
    broken = worker(back_off=(0.01, 0.01))
    with pytest.raises(Exception, match="the factory is out of order") as caught:
        result(handle)
    assert isinstance(caught.value.__cause__, RuntimeError)
    Path("fixed").touch()
    asyncio.run(handle.resume())
    assert str(result(handle)) == "Built.\n"
    stop(broken)
    (call,) = asyncio.run(handle.detail()).calls
    assert (call.attempt, [failure.attempt for failure in call.failures]) == (2, [1])


def test_c33_a_resume_right_after_a_failure_is_not_lost() -> None:
    handle = asyncio.run(backend().dispatch(registry.registered("fails_once").spec, "Go", execution_id="run"))
    resumed = []

    def resume_at_once(point: str) -> None:
        if point == "call.failed:after" and not resumed:
            resumed.append(point)
            Requests(backend().store).resume("run")

    before = listen(resume_at_once)
    try:
        work_until(lambda: Catalog("runs.db").execution("run").execution.status.value in ("FAILED", "COMPLETED"))
    finally:
        listen(before)
    assert resumed
    assert str(result(handle)) == "Fixed.\n"


def test_c26_two_workers_of_one_process_do_not_take_from_each_other(caplog: pytest.LogCaptureFixture) -> None:
    handles = [dispatch([{"tool": "wait_for", "path": "go"}, "Done."], f"run-{number}") for number in range(4)]

    async def main() -> list[str]:
        ends = asyncio.Event()
        path = Path("runs.db").resolve()
        workers = [asyncio.ensure_future(Worker(path, concurrency=2).run(ends, 5.0)) for _ in range(2)]
        while {status_now(handle) for handle in handles} != {"RUNNING"}:
            await asyncio.sleep(0.01)
        for _ in range(3):  # each worker looks again with every change
            await backend().dispatch(scripted.spec_with(script=["Hi."]), "Go")
            await asyncio.sleep(0.1)
        Path("go").touch()
        found = [str(await handle.result(20)) for handle in handles]
        ends.set()
        await asyncio.gather(*workers)
        return found

    def status_now(handle: Any) -> str:
        return Catalog("runs.db").execution(handle.execution_id).execution.status.value

    with caplog.at_level(logging.INFO, logger="strands_durable"):
        assert asyncio.run(asyncio.wait_for(main(), 30)) == ["Done.\n"] * 4
    assert "taken over" not in caplog.text
    assert caplog.text.count("| claimed") <= 4 + 3


def test_c26_an_agent_that_is_registered_later_is_not_refused_for_ever(without: Any) -> None:
    handle = dispatch(["Hi."], "run")
    without("scripted")

    async def main() -> str:
        ends = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(ends, 5.0))
        while not note_of("run"):
            await asyncio.sleep(0.01)
        registry.agents["scripted"] = scripted
        found = str(await handle.result(20))
        ends.set()
        await working
        return found

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "Hi.\n"


def test_c26_what_is_refused_does_not_hold_up_what_comes_behind_it() -> None:
    specs = [version(f"Version {number}").spec for number in range(40)]
    for number, spec in enumerate(specs):
        asyncio.run(backend().dispatch(spec, "Go", execution_id=f"old-{number}"))
    version("Another")
    handle = dispatch(["Hi."], "run")
    looks: list[int] = []

    class Counting(Worker):
        def _look(self, *given: Any) -> None:
            looks.append(1)
            super()._look(*given)

    async def main() -> None:
        ends = asyncio.Event()
        working = asyncio.ensure_future(Counting(Path("runs.db").resolve()).run(ends, 5.0))
        while not any(record.owner for record in await backend().list()) and not note_of("old-39"):
            await asyncio.sleep(0.01)
        assert len(looks) <= 3, "one look at most for its factory, one for the others, and one to come to it"
        assert str(await handle.result(20)) == "Hi.\n"
        ends.set()
        await working

    asyncio.run(asyncio.wait_for(main(), 30))


def test_c26_a_factory_that_ends_the_process_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    fine, spec = dispatch(["Hi."], "fine"), leaving.spec
    asyncio.run(backend().dispatch(spec, "Go", execution_id="run"))
    leaving._specs.clear()
    monkeypatch.setenv("LEAVE", "1")
    monkeypatch.setattr("strands_durable._dispatch.runner._BACK_OFF_SECONDS", (0.01,))
    work_until(lambda: status_of("run") == "FAILED" and status_of("fine") == "COMPLETED")
    assert str(result(fine)) == "Hi.\n"


def test_c26_an_error_while_it_looks_for_work_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [RuntimeError("once"), RuntimeError("twice")]
    plainly = Queue.claimable

    def waiting(self: Queue, **given: Any) -> Any:
        if errors:
            raise errors.pop()
        return plainly(self, **given)

    monkeypatch.setattr(Queue, "claimable", waiting)
    monkeypatch.setattr("strands_durable._dispatch.worker.LOOK_SECONDS", 0.01)
    dispatch(["Hi."], "run")
    work_until(lambda: status_of("run") == "COMPLETED")
    assert caplog.text.count("cannot look for work") == 2
