"""ExecutionBusyError as each of its callers renders it: what the execution is doing, and advice that fits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import Durability, ExecutionStatus, connect, durable_agent
from strands_durable._journal.owner import Owner
from strands_durable._plugin.attach import OrchestratorSubject, running_orchestrators
from strands_durable.backends.temporal import TemporalBackend, _backend
from strands_durable.errors import ExecutionBusyError
from strands_durable.testing import ScriptedModel, call, forget_process
from tests.script import in_new_process, start_process
from tests.waiting import until

WAIT = [call("wait_for", path="go"), "Done."]


@tool
def wait_for(path: str) -> str:
    """Wait until a file exists."""
    Path("waiting").touch()
    until(Path(path).exists)
    return "done"


def agent(script: Any = ("Hi.",), **options: Any) -> Agent:
    plugin = Durability("runs.db", execution_id="trip", **options)
    return Agent(model=ScriptedModel(list(script)), tools=[wait_for], plugins=[plugin], callback_handler=None)


def dispatch(prompt: str = "Wait") -> None:
    @durable_agent(name="busy")
    def build() -> Agent:
        return Agent(model=ScriptedModel(["Hi."]), callback_handler=None)

    asyncio.run(build.on("sqlite:///runs.db?worker=off").dispatch_async(prompt, execution_id="trip"))


def text_of(refused: Any) -> str:
    assert isinstance(refused, ExecutionBusyError)
    return str(refused)


def test_of_another_process_that_runs_it() -> None:
    owner = start_process(WAIT, ["Wait"])
    until(Path("waiting").exists)
    with pytest.raises(ExecutionBusyError) as call_refused:
        agent()("Wait")
    with pytest.raises(ExecutionBusyError) as removal_refused:
        asyncio.run(connect("sqlite:///runs.db?worker=off").remove("trip"))
    Path("go").touch()
    owner.join().checked()
    running = f"Execution 'trip' is running in process {owner.pid} on {Owner.me().host}."
    advice = "Wait for it to end, or stop that process and run this one again."
    assert text_of(call_refused.value) == f"{running} {advice}"
    assert text_of(removal_refused.value) == (f"{running} Before it can be removed, run 'strands-durable cancel trip'.")


def test_of_an_inline_execution_whose_process_has_exited() -> None:
    in_new_process([call("book_and_die", city="Rome"), "Done."], ["Wait"])
    with pytest.raises(ExecutionBusyError) as refused:
        dispatch()
    assert text_of(refused.value) == (
        "Execution 'trip' was started inline, and its process has exited. Run that script again to resume it."
    )


def test_of_a_dispatched_execution_that_no_worker_has_started() -> None:
    dispatch()
    with pytest.raises(ExecutionBusyError) as refused:
        agent()("Wait")
    assert text_of(refused.value) == (
        "Execution 'trip' was dispatched, and no worker has started it yet. Start a worker, or wait for its handle's result."
    )


def test_of_a_call_and_of_a_stream_in_this_process() -> None:
    async def both() -> tuple[str, str]:
        first = asyncio.create_task(agent(WAIT).invoke_async("Wait"))
        while not Path("waiting").exists():
            await asyncio.sleep(0.01)
        with pytest.raises(ExecutionBusyError) as in_a_call:
            await agent().invoke_async("Wait")
        Path("go").touch()
        await first
        forget_process()
        stream = agent(WAIT, on_completed="restart").stream_async("Wait")
        await anext(stream)
        with pytest.raises(ExecutionBusyError) as in_a_stream:
            await agent(on_completed="restart").invoke_async("Wait")
        await stream.aclose()
        return text_of(in_a_call.value), text_of(in_a_stream.value)

    in_a_call, in_a_stream = asyncio.run(both())
    running = f"Execution 'trip' is running in {Owner.me()}. Another call in this process has not ended yet."
    assert in_a_call == f"{running} Wait for it to end."
    assert in_a_stream == (
        f"{running} Wait for it to end. If you no longer read its stream, close it: await stream.aclose()."
    )


def test_of_a_tool_that_still_runs_in_a_thread() -> None:
    async def service() -> str:
        first = asyncio.create_task(agent(WAIT, lease_seconds=0.2).invoke_async("Wait"))
        while not Path("waiting").exists():
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait({first})
        with pytest.raises(ExecutionBusyError) as refused:
            await agent(WAIT, lease_seconds=0.2).invoke_async("Wait")
        Path("go").touch()
        return text_of(refused.value)

    assert asyncio.run(service()) == (
        f"Execution 'trip' is running in {Owner.me()}. A call of this process has ended, but its tool 'wait_for' still runs in "
        f"a thread. Wait for it to return."
    )


def test_of_an_orchestrator_that_is_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Team:
        pass

    team = Team()
    adapter: Any = SimpleNamespace(me=team, name="crew", kind="graph")
    monkeypatch.setitem(running_orchestrators, team, SimpleNamespace(execution_id="trip"))
    with pytest.raises(ExecutionBusyError) as refused:
        OrchestratorSubject(adapter, None).original("Go", {})
    assert text_of(refused.value) == (
        f"Execution 'trip' is running in {Owner.me()}. The graph 'crew' is in another call and runs one at a time. Wait for "
        f"that call to end."
    )


def test_of_a_workflow_that_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe(self: TemporalBackend, execution_id: str) -> None:
        return None

    async def status_of(description: None) -> ExecutionStatus:
        return ExecutionStatus.SUSPENDED

    monkeypatch.setattr(TemporalBackend, "describe", describe)
    monkeypatch.setattr(_backend, "status_of", status_of)
    with pytest.raises(ExecutionBusyError) as refused:
        asyncio.run(TemporalBackend("temporal://127.0.0.1:1").remove("trip"))
    assert text_of(refused.value) == (
        "Execution 'trip' is SUSPENDED. Before it can be removed, run 'strands-durable cancel trip'."
    )


def test_without_an_owner_or_a_detail_it_is_still_a_sentence() -> None:
    assert str(ExecutionBusyError("trip", "")).startswith("Execution 'trip' is running in another process. Wait for it")
