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
    with Site(temporal, tmp_path) as call_context:
        yield call_context


def freeze(worker: Child) -> None:
    os.kill(worker.pid, signal.SIGSTOP)


def thaw(call_context: Site, frozen: Child, other: Child) -> None:
    """Wake a worker up, and wait until it does what only it can do."""
    os.kill(other.pid, signal.SIGKILL)
    os.kill(frozen.pid, signal.SIGCONT)
    later = call_context.dispatch("later", BOOK, "Later.")
    assert str(call_context.result(later)) == "Later.\n"
    assert {entry["pid"] for entry in call_context.ledger(execution_id="later")} == {frozen.pid}


def recorded(call_context: Site, handle: ExecutionHandle) -> tuple[object, object]:
    """Return all that is shown of an execution."""
    return call_context.seen(handle), call_context.run(handle.steps())


def test_c08_a_worker_frozen_inside_tools_and_model_calls_writes_nothing_and_starts_nothing_more(
    call_context: Site,
) -> None:
    fails = call_context.dispatch("fails", WAIT, BOOK, "Done.", in_doubt="fail")
    asks = call_context.dispatch("asks", WAIT, BOOK, "Done.", in_doubt="ask")
    models = call_context.dispatch("models", BOOK, "Done.", waits_for="said")
    frozen = call_context.worker()
    call_context.until_logged(2, what="wait")
    call_context.until_logged(what="model", execution_id="models")
    freeze(frozen)
    call_context.touch("said")
    other = call_context.worker()
    assert str(call_context.result(fails)) == "Done.\n"
    (question,) = call_context.result(asks).interrupts
    call_context.run(asks.respond({question.id: {"result": "by hand"}}))
    assert str(call_context.result(asks)) == "Done.\n"
    assert str(call_context.result(models)) == "Done.\n"
    before = [recorded(call_context, handle) for handle in (fails, asks, models)]
    call_context.touch("go")
    thaw(call_context, frozen, other)
    call_context.until_logged(2, what="waited")
    assert [recorded(call_context, handle) for handle in (fails, asks, models)] == before
    assert len(call_context.ledger(what="wait")) == 2, "no tool in doubt ran again"
    for execution_id in ("fails", "asks", "models"):
        assert {entry["pid"] for entry in call_context.ledger(what="book", execution_id=execution_id)} == {other.pid}
        calls = [entry["pid"] for entry in call_context.ledger(what="model", execution_id=execution_id)]
        assert calls == [frozen.pid, other.pid, other.pid]


def test_c08_a_worker_frozen_before_it_heard_that_a_tool_may_start_does_not_start_it_too(call_context: Site) -> None:
    paths = [f"go-{number}" for number in range(12)]
    for path in paths:
        call_context.touch(path)
    waits = [{"tool": "wait", "path": path} for path in paths]
    handle = call_context.dispatch("run", [{"tool": "freeze"}, *waits], "Done.", in_doubt="fail")
    frozen = call_context.worker()
    call_context.until_logged(what="freeze")
    other = call_context.worker()
    assert str(call_context.result(handle)) == "Done.\n"
    elsewhere = {entry["path"] for entry in call_context.ledger(what="wait", pid=other.pid)}
    thaw(call_context, frozen, other)
    call_context.until_logged(what="thawed")
    here = {entry["path"] for entry in call_context.ledger(what="wait", pid=frozen.pid)}
    assert not here & elsewhere
