"""On Dapr, a worker, its sidecar, both, or everything is killed in a tool: nothing is lost, nothing finished is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle
from tests.crash.sidecars import DaprSite
from tests.processes import Child
from tests.waiting import until

SCRIPT = [
    [{"tool": "book", "city": "Paris"}, {"tool": "book", "city": "Rome"}, {"tool": "wait", "path": "go"}],
    {"tool": "book", "city": "Oslo"},
    "Done.",
]
"""Two tools that end at once, beside one that takes as long as a test wants."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DaprSite]:
    with DaprSite(tmp_path) as site:
        yield site


def inside(site: DaprSite) -> tuple[ExecutionHandle, Child]:
    """Return an execution whose quick tools are recorded, and the worker that is inside its slow one."""
    handle, worker = site.dispatch("run", *SCRIPT), site.worker()
    site.until_logged(what="wait")
    until(lambda: tools(site, handle).count(("book", 1, "done")) == 2)
    return handle, worker


def tools(site: DaprSite, handle: ExecutionHandle) -> list[tuple[str, int, str]]:
    """Return name, attempt and state of each tool that is recorded."""
    return [(step.name, step.attempt, step.state) for step in site.run(handle.steps()) if step.kind == "tool"]


def assert_ended(site: DaprSite, handle: ExecutionHandle, waits: int) -> None:
    """Let the slow tool end, and compare what is recorded with what was really done."""
    site.touch("go")
    assert str(site.result(handle)) == "Done.\n"
    cities = [entry["city"] for entry in site.ledger(what="book")]
    assert sorted(cities) == ["Oslo", "Paris", "Rome"], "no tool was repeated, none was lost"
    assert len(site.ledger(what="wait")) == waits
    assert [each for each in tools(site, handle) if each[2] == "done"] == [
        ("book", 1, "done"),
        ("book", 1, "done"),
        ("wait", waits, "done"),
        ("book", 1, "done"),
    ]


def test_c08_a_worker_is_killed_and_another_one_resumes(site: DaprSite, record_property: Any) -> None:
    handle, first = inside(site)
    second = site.worker()
    site.killed(first)
    assert site.until_logged(2, what="wait")["pid"] == second.pid
    assert_ended(site, handle, waits=2)
    record_property("kills", 1)


def test_c08_a_worker_is_killed_with_its_sidecar_and_another_one_resumes(site: DaprSite, record_property: Any) -> None:
    handle, first = inside(site)
    second = site.worker()
    site.sidecar_of(first).kill()
    site.killed(first)
    assert site.until_logged(2, what="wait")["pid"] == second.pid
    assert_ended(site, handle, waits=2)
    record_property("kills", 2)


def test_c08_a_sidecar_is_killed_and_started_again_and_nothing_is_repeated(
    site: DaprSite, record_property: Any
) -> None:
    handle, worker = inside(site)
    site.sidecar_of(worker).restart()
    assert_ended(site, handle, waits=1)
    assert {entry["pid"] for entry in site.ledger()} == {worker.pid}
    record_property("kills", 1)


def test_c08_a_tool_that_ends_while_the_sidecar_is_away_is_recorded_when_it_is_back(
    site: DaprSite, record_property: Any
) -> None:
    handle, worker = inside(site)
    site.sidecar_of(worker).kill()
    site.touch("go")
    site.until_logged(what="waited")
    site.sidecar_of(worker).start()
    assert_ended(site, handle, waits=1)
    record_property("kills", 1)


@pytest.mark.timeout(200)
def test_c08_a_worker_whose_sidecar_stays_away_is_succeeded_and_commits_nothing_when_it_is_back(
    site: DaprSite, record_property: Any
) -> None:
    handle, first = inside(site)
    second = site.worker()
    site.sidecar_of(first).kill()
    assert site.until_logged(2, what="wait")["pid"] == second.pid
    assert_ended(site, handle, waits=2)
    before = site.seen(handle), site.run(handle.steps())
    until(lambda: len(site.ledger(what="waited")) == 2)  # also the first one has ended its tool
    site.sidecar_of(first).start()
    site.killed(second)
    later = site.dispatch("later", {"tool": "book", "city": "Bern"}, "Later.")
    assert str(site.result(later)) == "Later.\n"
    assert {entry["pid"] for entry in site.ledger(execution_id="later")} == {first.pid}
    assert (site.seen(handle), site.run(handle.steps())) == before
    record_property("kills", 2)


@pytest.mark.timeout(200)
def test_c08_scheduler_and_placement_are_killed_and_a_running_agent_continues(
    site: DaprSite, record_property: Any
) -> None:
    handle, worker = inside(site)
    site.cluster.scheduler.kill()
    site.cluster.placement.kill()
    site.touch("go")
    until(lambda: tools(site, handle).count(("book", 1, "done")) == 3)  # the agent commits without them
    site.cluster.start()
    assert_ended(site, handle, waits=1)
    assert {entry["pid"] for entry in site.ledger()} == {worker.pid}
    later = site.dispatch("later", {"tool": "book", "city": "Bern"}, "Later.")
    assert str(site.result(later)) == "Later.\n"
    record_property("kills", 2)


@pytest.mark.timeout(200)
def test_c08_everything_is_killed_and_started_again(site: DaprSite, record_property: Any) -> None:
    handle, worker = inside(site)
    processes = len(site.cluster.processes) + 1
    site.cluster.kill()
    site.killed(worker)
    site.cluster.start()
    site.worker()
    assert_ended(site, handle, waits=2)
    record_property("kills", processes)


@pytest.mark.timeout(200)
def test_c04_answers_and_dispatches_without_a_worker_are_kept_until_one_is_there(
    site: DaprSite, record_property: Any
) -> None:
    asks = site.dispatch(
        "asks", {"tool": "wait", "path": "go"}, {"tool": "book", "city": "Rome"}, "Done.", in_doubt="ask"
    )
    first = site.worker()
    site.until_logged(what="wait")
    site.killed(first)
    second = site.worker()
    (question,) = site.result(asks).interrupts
    site.killed(second)
    site.run(asks.respond({question.id: {"result": "by hand"}}))
    later = site.dispatch("later", {"tool": "book", "city": "Bern"}, "Later.")
    assert site.status(later) == "PENDING"
    site.worker()
    assert str(site.result(asks)) == "Done.\n"
    assert str(site.result(later)) == "Later.\n"
    assert len(site.ledger(what="wait")) == 1
    assert [entry["city"] for entry in site.ledger(what="book", execution_id="asks")] == ["Rome"]
    record_property("kills", 2)


def test_c08_a_sidecar_that_ends_in_order_leaves_its_worker_alone(site: DaprSite) -> None:
    handle, worker = inside(site)
    site.sidecar_of(worker).stop()
    site.sidecar_of(worker).start()
    assert_ended(site, handle, waits=1)
