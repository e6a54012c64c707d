"""The sync forms, for Flask, Django and Celery: threads without an event loop dispatch, wait, answer, follow and stop."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle, ExecutionStatus, StepSummary, SyncBackend, SyncHandle, connect, errors
from strands_durable._dispatch.background import _stop_all
from strands_durable._dispatch.ports import DurableBackend
from tests import threads
from tests.dispatched import fails_once, scripted
from tests.processes import Child
from tests.script import ledger
from tests.waiting import until

URL = "sqlite:///runs.db"


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    _stop_all()


def test_a_sync_handle_waits_for_the_result_and_shows_the_steps() -> None:
    handle = scripted.on(URL).dispatch("Go", execution_id="run", script=[{"tool": "book", "city": "Rome"}, "Done."])
    assert isinstance(handle, SyncHandle)
    assert str(handle.result(timeout=30)) == "Done.\n"
    assert handle.status() is ExecutionStatus.COMPLETED
    steps = handle.steps()
    assert [step.kind for step in steps] == ["model", "tool", "model"]
    assert all(isinstance(step, StepSummary) for step in steps)
    assert handle.detail().execution.execution_id == "run"
    assert [event["kind"] for event in handle.stream()] == ["model", "tool", "model"]
    assert [event["kind"] for event in handle.stream(after=1)] == ["tool", "model"]


def test_a_person_s_answer_comes_through_a_sync_handle_of_another_request() -> None:
    handle = scripted.on(URL).dispatch("Go", execution_id="run", script=[{"tool": "approve", "what": "trip"}, "Done."])
    (question,) = handle.result(timeout=30).interrupts
    other = connect(URL).sync.get("run")
    assert [found.id for found in other.interrupts()] == [question.id]
    other.respond({question.id: "yes"})
    assert str(other.result(timeout=30)) == "Done.\n"


def test_a_failed_run_is_resumed_and_a_running_one_cancelled() -> None:
    failed = fails_once.on(URL).dispatch("Go", execution_id="failed")
    with pytest.raises(errors.ExecutionFailedError):
        failed.result(timeout=30)
    failed.resume()
    assert str(failed.result(timeout=30)) == "Fixed.\n"
    running = scripted.on(URL).dispatch("Go", execution_id="run", script=[{"tool": "wait_for", "path": "go"}, "Done."])
    until(Path("waiting").exists)
    with pytest.raises(TimeoutError):
        running.result(timeout=0.01)
    running.cancel()
    Path("go").touch()
    with pytest.raises(errors.ExecutionCancelledError):
        running.result(timeout=30)


def test_many_threads_dispatch_and_wait_at_once_as_those_of_a_web_server() -> None:
    def request(number: int) -> str:
        script = [{"tool": "book", "city": f"city-{number}"}, f"Done {number}."]
        handle = scripted.on(URL).dispatch("Go", execution_id=f"run-{number}", script=script)
        return str(handle.result(timeout=60)).strip()

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(request, range(32))) == [f"Done {number}." for number in range(32)]
    booked = [entry["city"] for entry in ledger.read() if entry.get("name") == "book"]
    assert sorted(booked) == sorted(f"city-{number}" for number in range(32))


def test_a_sync_backend_lists_removes_and_does_not_know_what_is_not_there() -> None:
    scripted.on(URL).dispatch("Go", execution_id="run", script=["Hi."]).result(timeout=30)
    backend = connect(URL).sync
    assert isinstance(backend, SyncBackend)
    assert [found.execution_id for found in backend.list(status=ExecutionStatus.COMPLETED)] == ["run"]
    spec = scripted.spec_with(script=["Hi."])
    assert str(backend.dispatch(spec, "Go", execution_id="other").result(timeout=30)) == "Hi.\n"
    until(lambda: backend.get("run").detail().execution.owner is None)
    backend.remove("run")
    with pytest.raises(errors.ExecutionNotFoundError):
        backend.get("run")


def test_the_same_dispatch_again_attaches_and_another_input_does_not() -> None:
    agent = scripted.on(URL)
    first = agent.dispatch("Go", execution_id="run", script=["Hi."])
    assert str(agent.dispatch("Go", execution_id="run", script=["Hi."]).result(timeout=30)) == "Hi.\n"
    with pytest.raises(errors.InputMismatchError):
        agent.dispatch("Something else", execution_id="run", script=["Hi."])
    assert str(first.result()) == "Hi.\n"


def test_a_broken_off_sync_stream_leaves_the_run_alone() -> None:
    script = [{"tool": "book", "city": "Rome"}, {"tool": "wait_for", "path": "go"}, "Done."]
    handle = scripted.on(URL).dispatch("Go", execution_id="run", script=script)
    for event in handle.stream():
        if event["name"] == "book":
            break
    Path("go").touch()
    assert str(handle.result(timeout=30)) == "Done.\n"


def _forks(folder: str) -> list[str]:
    """Use the sync forms, fork as a prefork server does, and use them in the child."""
    os.chdir(folder)
    first = str(scripted.on(URL).dispatch("Go", execution_id="parent", script=["Hi."]).result(timeout=30)).strip()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = connect(URL).sync.get("parent").result(timeout=20)
            os.write(writer, str(found).strip().encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    return [first, os.read(reader, 100).decode()]


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    assert Child(_forks, os.getcwd()).join().checked() == ["Hi.", "Hi."]


def test_a_sync_handle_can_be_had_of_an_async_one() -> None:
    async def dispatched() -> ExecutionHandle:
        return await scripted.on(URL).dispatch_async("Go", execution_id="run", script=["Hi."])

    handle = asyncio.run(dispatched()).sync
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(str(handle.result(timeout=30))))
    thread.start()
    threads.join(thread)
    assert found == ["Hi.\n"]


@pytest.mark.parametrize(("form", "port"), [(SyncHandle, ExecutionHandle), (SyncBackend, DurableBackend)])
def test_the_sync_forms_have_what_the_async_ones_have(form: type, port: type) -> None:
    elsewhere = {"sync", "work", "working", "refuse_unreadable", "ends_at_once", "invoker", "listed"}
    names = {name for name in vars(port) if not name.startswith("_")} - elsewhere
    for name in names:
        ours, theirs = inspect.signature(getattr(form, name)), inspect.signature(getattr(port, name))
        assert list(ours.parameters) == list(theirs.parameters), name
