"""Dispatches, answers and cancels with no worker connected: accepted at once, lost by nobody."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from dapr.ext.workflow import WorkflowStatus

from strands_durable import ExecutionHandle, ExecutionStatus, errors
from strands_durable._dispatch.requests import Requests
from strands_durable._enginekit.key_value.heartbeat import Workers
from strands_durable._enginekit.key_value.log import ask_key
from strands_durable._enginekit.key_value.store import Value
from strands_durable._enginekit.replica import Replica
from strands_durable._journal.owner import Owner
from strands_durable.backends.dapr import DaprBackend
from strands_durable.backends.dapr._worker import DaprWorker
from strands_durable.backends.dapr._workflows import Workflows
from strands_durable.testing import agents
from tests.dapr.running import DaprBench

S = ExecutionStatus
ASK = {"tool": "approve", "what": "trip"}


def test_a_dispatch_is_accepted_and_runs_as_soon_as_there_is_a_worker(bench: DaprBench) -> None:
    begun = time.monotonic()
    handles = [bench.dispatch("Hi.", execution_id=f"run-{number}") for number in range(5)]
    assert time.monotonic() - begun < 30, "Dapr itself does not answer without a worker"
    assert {bench.status(handle) for handle in handles} == {S.PENDING}
    with bench.worker():
        assert [str(bench.result(handle)) for handle in handles] == ["Hi.\n"] * 5
    assert len(bench.marks("model")) == 5


def test_an_answer_is_accepted_and_taken_by_the_next_worker(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(ASK, "Done.")
        (question,) = bench.result(handle).interrupts
    bench.run(handle.respond({question.id: "yes"}))
    assert bench.status(handle) is S.PENDING
    with bench.worker():
        assert str(bench.result(handle)) == "Done.\n"
    assert len(bench.marks("approve")) == 2


def test_a_cancel_is_final_at_once(bench: DaprBench) -> None:
    with bench.worker():
        asks = bench.dispatch(ASK, "Done.", execution_id="asks")
        bench.result(asks)
    pending = bench.dispatch("Hi.", execution_id="pending")
    for handle in (asks, pending):
        bench.run(handle.cancel())
        assert bench.status(handle) is S.CANCELLED
    with bench.worker():
        assert str(bench.result(bench.dispatch("Hi.", execution_id="other"))) == "Hi.\n"
        bench.until_workflow(WorkflowStatus.COMPLETED, "asks")
    assert len(bench.marks("model")) == 2


def test_an_ended_execution_is_removed_without_waiting_for_dapr(bench: DaprBench) -> None:
    with bench.worker():
        for execution_id in ("trip", "trip-2", "trip-3"):
            bench.result(bench.dispatch("Hi.", execution_id=execution_id))
            bench.until_workflow(WorkflowStatus.COMPLETED, execution_id)
    begun = time.monotonic()
    for execution_id in ("trip", "trip-2", "trip-3"):
        bench.run(bench.backend.remove(execution_id))
    assert time.monotonic() - begun < 14, "Dapr itself answers after 5 seconds without a worker, each time"
    handle = bench.dispatch("Hello.")
    assert bench.status(handle) is S.PENDING
    with bench.worker():
        assert str(bench.result(handle)) == "Hello.\n", "the workflow of before is replaced"


def test_a_failed_execution_is_resumed_by_the_next_worker(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch({"fails_until": "fixed"})
        bench.fails(handle, errors.ExecutionFailedError)
    bench.touch("fixed")
    bench.run(handle.resume())
    with bench.worker():
        assert str(bench.result(handle)) == "Fixed.\n"


def dispatch_and_die(bench: DaprBench, clock_is_off_by: float = 0.0) -> ExecutionHandle:
    """Record a dispatch as a client does that dies after its commit, before it notifies Dapr."""
    spec = agents.contract_agent.spec_with(folder=bench.folder, script=["Hi."])

    async def dispatch() -> ExecutionHandle:
        replica, engine = Replica.new("new"), bench.backend.engine
        Requests(replica).dispatch(spec, "Go", "trip", None, None)
        await engine.open._map.put("trip", time.time() + clock_is_off_by)
        await engine.log.append("trip", None, replica.changes())
        return await bench.backend.get("trip")

    handle: ExecutionHandle = bench.run(dispatch())
    return handle


@pytest.mark.parametrize("clock_is_off_by", [-3600.0, 0.0, 3600.0])
def test_what_a_client_recorded_before_it_died_is_run_whatever_its_clock_said(
    bench: DaprBench, clock_is_off_by: float
) -> None:
    with bench.worker():
        bench.until(lambda: bench.run(bench.backend.unattended()) is None)
        assert str(bench.result(dispatch_and_die(bench, clock_is_off_by))) == "Hi.\n"


def test_what_dapr_offers_to_no_worker_is_run_by_one_that_sees_it(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dapr loses the reminders of activities now and then."""

    async def lost(*_: object) -> None:
        pass

    monkeypatch.setattr(Workflows, "notify", lost)
    monkeypatch.setattr("strands_durable._enginekit.key_value.worker._ADOPT_SECONDS", 3.0)
    with bench.worker():
        handle = dispatch_and_die(bench)
        assert str(bench.result(handle)) == "Hi.\n"
        assert bench.workflow() is None
    assert len(bench.marks("model")) == 1


def test_a_workflow_that_lost_its_activity_is_replaced_once_the_execution_is_at_rest(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("strands_durable._enginekit.key_value.worker._REST_SECONDS", 3.0)
    with bench.worker(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(DaprWorker, "run_agent", lost)
        patched.setattr("strands_durable._enginekit.key_value.worker._ADOPT_SECONDS", 1e9)
        handle = bench.dispatch(ASK, "Done.")
        bench.until(lambda: bench.workflow() is not None)
        patched.setattr("strands_durable._enginekit.key_value.worker._ADOPT_SECONDS", 3.0)
        (question,) = bench.result(handle).interrupts
        patched.undo()
        bench.until(lambda: "SUSPENDED" in bench.shows())
        bench.run(handle.respond({question.id: "yes"}))
        assert str(bench.result(handle)) == "Done.\n"
        bench.until_workflow(WorkflowStatus.COMPLETED)
    assert len(bench.marks("approve")) == 2


def test_a_cancel_that_came_too_late_does_not_stop_what_is_resumed(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch({"fails_until": "fixed"})
        bench.fails(handle, errors.ExecutionFailedError)
        failed = bench.run(bench.backend.head("trip"))
        bench.run(bench.client().save(Value(key=ask_key("trip", failed), data=b"cancel")))
        bench.touch("fixed")
        bench.run(handle.resume())
        assert str(bench.result(handle)) == "Fixed.\n"


def test_a_heartbeat_that_is_missing_is_no_sign_of_death_until_it_has_been_missing_for_a_while(
    bench: DaprBench,
) -> None:
    elsewhere = replace(Owner.me(), host="elsewhere").within("some-worker").recorded()
    workers = Workers(bench.client())
    assert bench.run(workers.is_alive(elsewhere)), "a read may miss a value that is there"
    assert not bench.run(workers.seems_alive(elsewhere)), "but it is not shown as alive"
    bench.until(lambda: not bench.run(workers.is_alive(elsewhere)))


def test_clients_are_told_that_no_worker_is_connected(bench: DaprBench) -> None:
    handle = bench.dispatch("Hi.")
    said = bench.run(bench.backend.unattended())
    assert f"no worker is connected to daprd at {bench.backend.config.address}" in said
    assert "strands-durable worker FILE --backend" in said
    with pytest.raises(TimeoutError, match="no worker is connected to daprd"):
        bench.run(handle.result(0.2))
    with bench.worker():
        bench.result(handle)
        assert bench.run(bench.backend.unattended()) is None
    bench.until(lambda: bench.run(bench.backend.unattended()) is not None)


def test_a_sidecar_that_is_not_there_is_an_error_with_its_address(bench: DaprBench) -> None:
    backend = DaprBackend("dapr://127.0.0.1:1")
    backend._sidecar._patience_seconds = 0.5
    with pytest.raises(errors.BackendUnavailableError, match=r"no daprd answers at 127\.0\.0\.1:1"):
        bench.run(backend.get("trip"))


def test_a_state_store_that_is_not_there_is_an_error_with_its_name(bench: DaprBench) -> None:
    backend = DaprBackend(bench.url().replace("store=statestore", "store=other"))
    backend._sidecar._patience_seconds = 0.5
    with pytest.raises(errors.BackendUnavailableError, match="other"):
        bench.run(backend.get("trip"))
