"""A worker on Temporal is frozen for longer than a heartbeat: another resumes, and it does no harm when it wakes up."""

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
    """Return all that is shown of an execution."""
    return site.seen(handle), site.run(handle.steps())


def test_c08_a_worker_frozen_inside_tools_and_model_calls_writes_nothing_and_starts_nothing_more(
    site: Site,
) -> None:
    fails = site.dispatch("fails", WAIT, BOOK, "Done.", in_doubt="fail")
    asks = site.dispatch("asks", WAIT, BOOK, "Done.", in_doubt="ask")
    models = site.dispatch("models", BOOK, "Done.", waits_for="said")
    frozen = site.worker()
    site.until_logged(2, what="wait")
    site.until_logged(what="model", execution_id="models")
    freeze(frozen)
    site.touch("said")
    other = site.worker()
    assert str(site.result(fails)) == "Done.\n"
    (question,) = site.result(asks).interrupts
    site.run(asks.respond({question.id: {"result": "by hand"}}))
    assert str(site.result(asks)) == "Done.\n"
    assert str(site.result(models)) == "Done.\n"
    before = [recorded(site, handle) for handle in (fails, asks, models)]
    site.touch("go")
    thaw(site, frozen, other)
    site.until_logged(2, what="waited")
    assert [recorded(site, handle) for handle in (fails, asks, models)] == before
    assert len(site.ledger(what="wait")) == 2, "no tool in doubt ran again"
    for execution_id in ("fails", "asks", "models"):
        assert {entry["pid"] for entry in site.ledger(what="book", execution_id=execution_id)} == {other.pid}
        calls = [entry["pid"] for entry in site.ledger(what="model", execution_id=execution_id)]
        assert calls == [frozen.pid, other.pid, other.pid]


def test_c08_a_worker_frozen_before_it_heard_that_a_tool_may_start_does_not_start_it_too(site: Site) -> None:
    paths = [f"go-{number}" for number in range(12)]
    for path in paths:
        site.touch(path)
    waits = [{"tool": "wait", "path": path} for path in paths]
    handle = site.dispatch("run", [{"tool": "freeze"}, *waits], "Done.", in_doubt="fail")
    frozen = site.worker()
    site.until_logged(what="freeze")
    other = site.worker()
    assert str(site.result(handle)) == "Done.\n"
    elsewhere = {entry["path"] for entry in site.ledger(what="wait", pid=other.pid)}
    thaw(site, frozen, other)
    site.until_logged(what="thawed")
    here = {entry["path"] for entry in site.ledger(what="wait", pid=frozen.pid)}
    assert not here & elsewhere
