"""On Dapr, a worker or a sidecar is frozen beyond every timeout: another resumes, and neither does harm when it wakes up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable import ExecutionHandle
from tests.crash.sidecars import SILENT_SECONDS, DaprSite
from tests.processes import Child

WAIT, BOOK = {"tool": "wait", "path": "go"}, {"tool": "book", "city": "Rome"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DaprSite]:
    with DaprSite(tmp_path) as site:
        yield site


def freeze(worker: Child) -> None:
    os.kill(worker.pid, signal.SIGSTOP)


def thaw(site: DaprSite, frozen: Child, other: Child) -> None:
    """Wake a worker up, and wait until it does what only it can do."""
    site.killed(other)
    os.kill(frozen.pid, signal.SIGCONT)
    later = site.dispatch("later", BOOK, "Later.")
    assert str(site.result(later)) == "Later.\n"
    assert {entry["pid"] for entry in site.ledger(execution_id="later")} == {frozen.pid}


def recorded(site: DaprSite, handle: ExecutionHandle) -> tuple[object, object]:
    """Return all that is shown of an execution."""
    return site.seen(handle), site.run(handle.steps())


@pytest.mark.timeout(240)
def test_c08_a_worker_frozen_inside_tools_and_model_calls_writes_nothing_and_starts_nothing_more(
    site: DaprSite,
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


@pytest.mark.timeout(240)
def test_c08_a_worker_frozen_before_it_heard_that_a_tool_may_start_does_not_start_it_too(site: DaprSite) -> None:
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


@pytest.mark.timeout(240)
def test_c08_the_only_worker_frozen_and_thawed_resumes_what_it_had_begun(site: DaprSite) -> None:
    handle = site.dispatch("run", BOOK, WAIT, "Done.", in_doubt="fail")
    worker = site.worker()
    site.until_logged(what="wait")
    freeze(worker)
    time.sleep(SILENT_SECONDS + 10)  # what is tested is time itself
    site.touch("go")
    os.kill(worker.pid, signal.SIGCONT)
    assert str(site.result(handle)) == "Done.\n"
    assert (len(site.ledger(what="wait")), len(site.ledger(what="book"))) == (1, 1)


@pytest.mark.timeout(240)
def test_c08_a_frozen_sidecar_is_succeeded_and_its_worker_commits_nothing_when_it_is_back(site: DaprSite) -> None:
    handle = site.dispatch("run", BOOK, WAIT, BOOK, "Done.")
    first = site.worker()
    site.until_logged(what="wait")
    site.sidecar_of(first).freeze()
    second = site.worker()
    assert site.until_logged(2, what="wait")["pid"] == second.pid
    site.touch("go")
    assert str(site.result(handle)) == "Done.\n"
    before = recorded(site, handle)
    site.until_logged(2, what="waited")
    site.sidecar_of(first).thaw()
    site.killed(second)
    later = site.dispatch("later", BOOK, "Later.")
    assert str(site.result(later)) == "Later.\n"
    assert {entry["pid"] for entry in site.ledger(execution_id="later")} == {first.pid}
    assert recorded(site, handle) == before
    assert len(site.ledger(what="book", execution_id="run")) == 2
