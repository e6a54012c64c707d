"""C31 on dispatched agents: a Durability in the factory, servers that are down, and other odd things in a factory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect, errors
from strands_durable._dispatch.queue import Queue
from tests import dispatched
from tests.dispatched import (
    MCP_SERVER,
    backend,
    careful,
    dispatch,
    odd,
    regular,
    result,
    scripted,
    shopper,
    status,
    stop,
    worker,
)
from tests.processes import served
from tests.script import ledger
from tests.waiting import until


def test_c31_a_durability_inside_a_factory_lends_its_policies_and_not_its_store() -> None:
    handle = dispatch([{"tool": "book_and_die", "city": "Rome"}, "Done."], "run", agent=careful)
    worker().join()
    second = worker()
    (question,) = result(handle).interrupts
    assert question.name.startswith("strands-durable: in doubt")
    with pytest.raises(errors.InDoubtError):
        asyncio.run(handle.respond({question.id: "yes"}))
    asyncio.run(handle.respond({question.id: {"result": "it is booked"}}))
    assert str(result(handle)) == "Done.\n"
    stop(second)
    assert sum(entry.get("name") == "book_and_die" for entry in ledger.read()) == 1
    assert not Path("own.db").exists()
    assert [found.execution_id for found in asyncio.run(connect(dispatched.OFF).list())] == ["run"]


def test_c31_a_server_that_is_down_does_not_hide_the_result_of_a_finished_run() -> None:
    with served(MCP_SERVER, "http", "price") as (port, _):
        Path("url").write_text(f"http://127.0.0.1:{port}/mcp")
        handle = dispatch([], "run", agent=shopper)
        current = worker()
        assert str(result(handle)) == "Three.\n"
        stop(current)
    assert str(result(handle)) == "Three.\n"
    assert str(result(dispatch([], "run", agent=shopper))) == "Three.\n"
    assert [step.name for step in asyncio.run(handle.steps()) if step.kind == "tool"] == ["price"]


def test_c31_a_server_that_is_down_is_retried_then_fails_the_run_with_its_cause_and_resume_continues_it() -> None:
    with served(MCP_SERVER, "http", "price") as (port, _):
        url = f"http://127.0.0.1:{port}/mcp"
    Path("url").write_text(url)
    handle = dispatch([], "run", agent=shopper)
    current = worker(back_off=(0.01, 0.01))
    with pytest.raises(errors.ExecutionFailedError) as caught:
        result(handle)
    assert caught.value.__cause__ is not None
    assert "MCP" in str(caught.value) or "initializ" in str(caught.value)
    assert ledger.read() == [], "no model was asked"
    assert str(result(dispatch(["Hi."], "other"))) == "Hi.\n", "the worker is well"
    with served(MCP_SERVER, "http", "price") as (port, _):
        Path("url").write_text(f"http://127.0.0.1:{port}/mcp")
        asyncio.run(handle.resume())
        assert str(result(handle)) == "Three.\n"
        stop(current)
    (call,) = asyncio.run(handle.detail()).calls
    assert (call.attempt, len(call.failures)) == (2, 1)


def test_c31_a_server_that_is_down_for_a_moment_is_waited_for() -> None:
    with served(MCP_SERVER, "http", "price") as (down, _):
        pass
    with served(MCP_SERVER, "http", "price") as (port, _):
        Path("url").write_text(f"http://127.0.0.1:{down}/mcp")
        handle = dispatch([], "run", agent=shopper)
        current = worker(back_off=(1.0, 1.0))
        until(lambda: note_of(handle))
        Path("url").write_text(f"http://127.0.0.1:{port}/mcp")
        assert "could not be built" in note_of(handle)
        assert status("run") == "PENDING"
        assert str(result(handle)) == "Three.\n"
        stop(current)
    (call,) = asyncio.run(handle.detail()).calls
    assert (call.attempt, call.failures) == (1, ())


def note_of(handle: Any) -> str:
    return asyncio.run(handle.detail()).execution.note or ""


def test_c31_an_agent_that_cannot_be_recorded_fails_the_run_once() -> None:
    handle = dispatch([], "run", agent=odd)
    current = worker()
    with pytest.raises(errors.ExecutionFailedError) as caught:
        result(handle)
    assert isinstance(caught.value.__cause__, errors.NotSerializableError)
    stop(current)
    assert len(asyncio.run(handle.detail()).calls[0].failures) == 1


def test_c31_runs_share_a_connection_that_is_not_made_in_the_factory() -> None:
    handles = [dispatch([], f"run-{number}", agent=regular) for number in range(3)]
    current = worker(concurrency=1)
    assert [str(result(handle)) for handle in handles] == ["Three.\n"] * 3
    stop(current)
    assert Path("started").read_text() == "once "


def test_c31_the_default_backend_is_a_file_in_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDS_DURABLE_BACKEND", raising=False)
    assert str(connect().path).endswith(".strands/durable.db")  # type: ignore[attr-defined]
    monkeypatch.setenv("STRANDS_DURABLE_BACKEND", "sqlite:///elsewhere/runs.db")
    backend = connect()
    try:
        assert str(scripted.on(backend)("Go", script=["Hi."])) == "Hi.\n"
    finally:
        asyncio.run(backend.close())
    assert Path("elsewhere/runs.db").exists()


@pytest.mark.parametrize(
    "url", ["nowhere://x", "sqlite:///x.db?colour=red", "sqlite:///x.db?worker=maybe", "sqlite:///:memory:"]
)
def test_c31_a_url_that_names_nothing_is_a_named_error(url: str) -> None:
    with pytest.raises(errors.UnsupportedFeatureError):
        connect(url)


def test_c31_a_run_that_was_put_off_does_not_wait_for_a_clock_that_was_set_back() -> None:
    dispatch(["Hi."], "run")
    queue = Queue(backend().store)

    def put_off(seconds: float) -> list[str]:
        with backend().store.transaction("test") as connection:
            connection.update("dispatches", {"not_before": time.time() + seconds}, "1")
        return [found.execution_id for found in queue.claimable(refused=(), suspected=False, limit=9)]

    assert put_off(5) == []
    assert put_off(3600) == ["run"]
    assert put_off(-1) == ["run"]
