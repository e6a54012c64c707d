"""A worker on Temporal is frozen for longer than a heartbeat: another goes on, and it does no harm when it wakes up."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable import ExecutionHandle
from strands_durable.testing.temporal import TemporalServer
from tests.crash.temporal import Site
from tests.processes import Child

WAIT, BOOK = {"tool": "wait", "path": "go"}, {"tool": "book", "city": "Rome"}


@pytest.fixture
def site(temporal: TemporalServer, tmp_path: Path) -> Iterator[Site]:
    with Site(temporal, tmp_path) as site:
        yield site


def freeze(worker: Child) -> None:
    os.kill(worker.pid, signal.SIGSTOP)


def thaw(site: Site, frozen: Child, other: Child) -> None:
    """Wake a worker up, and wait until it does what only it can do."""
    os.kill(other.pid, signal.SIGKILL)
    os.kill(frozen.pid, signal.SIGCONT)
    later = site.dispatch("later", BOOK, "Later.")
    assert str(site.result(later)) == "Later.\n"
    assert {entry["pid"] for entry in site.ledger(execution_id="later")} == {frozen.pid}


def recorded(site: Site, handle: ExecutionHandle) -> tuple[object, object]:
    """Return all that is told of an execution."""
    return site.seen(handle), site.run(handle.steps())


@pytest.mark.parametrize("in_doubt", ["fail", "ask"])
def test_c08_a_worker_frozen_inside_a_tool_writes_nothing_and_starts_nothing_more(site: Site, in_doubt: str) -> None:
    handle = site.dispatch("run", WAIT, BOOK, "Done.", in_doubt=in_doubt)
    frozen = site.worker()
    site.until_told(what="wait")
    freeze(frozen)
    other = site.worker()
    result = site.result(handle)
    if in_doubt == "ask":
        assert result.stop_reason == "interrupt"
        site.run(handle.respond({result.interrupts[0].id: {"result": "by hand"}}))
        result = site.result(handle)
    assert str(result) == "Done.\n"
    before = recorded(site, handle)
    site.touch("go")
    thaw(site, frozen, other)
    site.until_told(what="waited")
    assert recorded(site, handle) == before
    assert len(site.ledger(what="wait")) == 1
    assert [entry["pid"] for entry in site.ledger(what="book", execution_id="run")] == [other.pid]
    assert [entry["pid"] for entry in site.ledger(what="model", execution_id="run")][1:] == [other.pid] * 2


def test_c08_a_worker_frozen_inside_a_model_call_writes_nothing_and_starts_nothing_more(site: Site) -> None:
    handle = site.dispatch("run", BOOK, "Done.", waits_for="go")
    frozen = site.worker()
    site.until_told(what="model")
    freeze(frozen)
    other = site.worker()
    site.until_told(2, what="model")
    site.touch("go")
    assert str(site.result(handle)) == "Done.\n"
    before = recorded(site, handle)
    thaw(site, frozen, other)
    assert recorded(site, handle) == before
    assert [entry["pid"] for entry in site.ledger(what="book", execution_id="run")] == [other.pid]
    assert [entry["pid"] for entry in site.ledger(what="model", execution_id="run")] == [frozen.pid, *[other.pid] * 2]


def test_c08_a_worker_frozen_before_it_heard_that_a_tool_may_start_does_not_start_it_too(site: Site) -> None:
    paths = [f"go-{number}" for number in range(12)]
    for path in paths:
        site.touch(path)
    waits = [{"tool": "wait", "path": path} for path in paths]
    handle = site.dispatch("run", [{"tool": "freeze"}, *waits], "Done.", in_doubt="fail")
    frozen = site.worker()
    site.until_told(what="freeze")
    other = site.worker()
    assert str(site.result(handle)) == "Done.\n"
    elsewhere = {entry["path"] for entry in site.ledger(what="wait", pid=other.pid)}
    thaw(site, frozen, other)
    site.until_told(what="thawed")
    here = {entry["path"] for entry in site.ledger(what="wait", pid=frozen.pid)}
    assert not here & elsewhere
