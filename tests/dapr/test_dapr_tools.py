"""What Dapr's own tools show and do: the status names the step, terminate cancels, pause pauses, purge forgets the workflow."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from dapr.ext.workflow import WorkflowStatus

from strands_durable import ExecutionStatus, errors
from strands_durable.backends.dapr._workflows import Workflows
from strands_durable.testing.contract._bench import BOOK, WAIT
from strands_durable.testing.dapr import DaprCluster
from tests.dapr.running import DaprBench

S, W = ExecutionStatus, WorkflowStatus
ASK = {"tool": "approve", "what": "trip"}


def events(bench: DaprBench, name: str) -> int:
    history = bench.tools.get_workflow_history("trip")
    return sum(name in str(event).lower() for event in history)


def test_the_custom_status_names_the_step_and_steps_are_events(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(BOOK, WAIT, BOOK, "Done.")
        bench.until(lambda: "tool wait: started" in bench.shows())
        bench.touch()
        bench.result(handle)
        bench.until_workflow(W.COMPLETED)
        assert bench.workflow().serialized_custom_status == "COMPLETED"
        assert '"Done.' in bench.workflow().serialized_output
        assert events(bench, "eventraised") >= 1


def test_a_workflow_that_is_not_told_about_steps_has_a_short_history(dapr: DaprCluster, tmp_path: Path) -> None:
    bench = DaprBench(dapr, str(tmp_path), "&steps=off")
    with bench.worker():
        handle = bench.dispatch(*[BOOK] * 30, WAIT, "Done.")
        bench.until_waiting()
        bench.touch()
        bench.result(handle)
        bench.until_workflow(W.COMPLETED)
        history = bench.tools.get_workflow_history("trip")
        assert events(bench, "eventraised") == 0
        assert len(history) < 10
        assert sum(len(str(event)) for event in history) < 10_000
    bench.close()


def test_what_is_terminated_while_it_runs_is_cancelled(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(WAIT, BOOK, "Done.")
        bench.until_waiting()
        bench.tools.terminate_workflow("trip")
        bench.fails(handle, errors.ExecutionCancelledError)
        bench.until(lambda: bench.marks("cancel seen"))
        assert bench.status(handle) is S.CANCELLED
    assert bench.booked() == []


def test_what_is_terminated_while_it_waits_for_a_person_is_cancelled(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(ASK, "Done.")
        bench.result(handle)
        bench.until(lambda: "SUSPENDED" in bench.shows())
        bench.tools.terminate_workflow("trip")
        bench.until(lambda: bench.status(handle) is S.CANCELLED)
        bench.fails(handle, errors.ExecutionCancelledError)
        (record,) = bench.run(bench.backend.list())
        assert record.status is S.CANCELLED


def test_what_is_terminated_and_purged_while_it_runs_is_cancelled(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(WAIT, BOOK, "Done.")
        bench.until_waiting()
        bench.tools.terminate_workflow("trip")
        bench.until_workflow(W.TERMINATED)
        bench.tools.purge_workflow("trip")
        bench.until(lambda: bench.marks("cancel seen"))
        bench.until(lambda: bench.status(handle) is S.CANCELLED)
    assert bench.booked() == []


def test_what_is_terminated_and_purged_is_cancelled_though_dapr_had_not_answered_for_its_workflow_before(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def without_an_answer(self: Workflows, execution_id: str, head: object) -> None:
        return None

    monkeypatch.setattr(Workflows, "of", without_an_answer)
    with bench.worker():
        bench.dispatch(WAIT, BOOK, "Done.")
        bench.until_waiting()
        bench.tools.terminate_workflow("trip")
        bench.until_workflow(W.TERMINATED)
        bench.tools.purge_workflow("trip")
        bench.until(lambda: bench.marks("cancel seen"))
    assert bench.booked() == []


def test_a_paused_execution_leaves_its_worker_after_the_step_and_continues_when_it_is_resumed(
    bench: DaprBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with bench.worker():
        handle = bench.dispatch(*({"tool": "wait", "path": f"go-{number}"} for number in range(3)), "Done.")
        bench.until_waiting()
        bench.tools.pause_workflow("trip")
        bench.until(lambda: "paused with Dapr's tools" in caplog.text)
        for number in range(3):
            bench.touch(f"go-{number}")
        bench.until(lambda: bench.run(bench.backend.presence("trip")).owner is None)
        assert len(bench.marks("wait")) == 1, "the step under way has ended, and no other one has begun"
        bench.until(lambda: "is paused" in str(bench.run(handle.detail()).execution.note))
        bench.tools.resume_workflow("trip")
        assert str(bench.result(handle)) == "Done.\n"
    assert len(bench.marks("wait")) == 3, "no step is lost, and none is repeated"


def test_an_answer_to_a_paused_execution_is_taken_when_it_is_resumed(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(ASK, "Done.")
        (question,) = bench.result(handle).interrupts
        bench.tools.pause_workflow("trip")
        bench.until_workflow(W.SUSPENDED)
        bench.run(handle.respond({question.id: "yes"}))
        assert bench.status(handle) is S.PENDING
        bench.tools.resume_workflow("trip")
        assert str(bench.result(handle)) == "Done.\n"


def test_an_execution_outlives_its_purged_workflow_and_can_be_resumed(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(BOOK, {"fails_until": "fixed"})
        bench.fails(handle, errors.ExecutionFailedError)
        bench.until_workflow(W.FAILED)
        assert "the model is out of order" in str(bench.workflow().to_json())
        bench.tools.purge_workflow("trip")
        assert bench.workflow() is None
        assert [record.status for record in bench.run(bench.backend.list())] == [S.FAILED]
        bench.touch("fixed")
        bench.run(handle.resume())
        assert str(bench.result(handle)) == "Fixed.\n"
    assert bench.booked() == ["Paris"]


def test_an_id_that_was_terminated_removed_and_dispatched_again_gets_no_answer_of_before(bench: DaprBench) -> None:
    with bench.worker():
        for number in range(3):
            handle = bench.dispatch(WAIT, "Never.", execution_id="trip")
            bench.until_waiting(number + 1)
            bench.tools.terminate_workflow("trip")
            bench.until(lambda handle=handle: bench.status(handle) is S.CANCELLED)  # type: ignore[misc]
            bench.run(bench.backend.remove("trip"))
            again = bench.dispatch(f"Hi {number}.", execution_id="trip")
            assert str(bench.result(again)) == f"Hi {number}.\n"
            bench.until_workflow(W.COMPLETED)
            assert f"Hi {number}." in bench.workflow().serialized_output
            bench.run(bench.backend.remove("trip"))
    assert bench.run(bench.backend.list()) == []
