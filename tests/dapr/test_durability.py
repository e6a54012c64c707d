"""The low-level form: a durable agent inside a user's own Dapr workflow."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from dapr.ext.workflow import DaprWorkflowContext, WorkflowActivityContext, WorkflowRuntime, WorkflowStatus

from strands_durable import ExecutionStatus, errors
from strands_durable.backends.dapr import DaprDurability
from strands_durable.testing import agents
from strands_durable.testing.contract._bench import BOOK, WAIT
from tests.dapr.running import DaprBench

S, W = ExecutionStatus, WorkflowStatus
ASK = {"tool": "approve", "what": "trip"}


def upper(_: WorkflowActivityContext, text: str) -> str:
    return text.upper()


def travel(ctx: DaprWorkflowContext, given: dict[str, Any]) -> Generator[Any, Any, Any]:
    """A workflow of a user's own, with an agent in the middle."""
    planner = DaprDurability(ctx, agents.contract_agent)
    result = yield from planner.invoke("Go", execution_id=given.pop("execution_id", None), **given)
    text = yield ctx.call_activity("upper", input=str(result))
    return [text, result.status.value, result.stop_reason, result.execution_id]


def careful(ctx: DaprWorkflowContext, given: dict[str, Any]) -> Generator[Any, Any, Any]:
    """Continues when its agent has failed, was cancelled, or was not started."""
    try:
        yield from DaprDurability(ctx, "contract_agent").invoke("Go", **given)
    except errors.DurableError as error:
        return [type(error).__name__, str(error)]
    return []


@pytest.fixture
def working(bench: DaprBench) -> Iterator[DaprBench]:
    runtime = WorkflowRuntime("127.0.0.1", str(bench.sidecars[0].grpc_port))
    for workflow in (travel, careful):
        workflow.__dict__.clear()  # Dapr notes on a function that it was registered, and refuses it a second time
        runtime.register_workflow(workflow)
    upper.__dict__.clear()
    runtime.register_activity(upper)
    with bench.worker(runtime=runtime):
        yield bench


def start(bench: DaprBench, workflow: Any, *script: Any, **given: Any) -> str:
    arguments = {"folder": bench.folder, "script": list(script), **given}
    started: list[str] = []

    def is_started() -> bool:
        """The worker may not be connected yet."""
        try:
            started.append(bench.tools.schedule_new_workflow(workflow, input=arguments))
        except Exception:
            return False
        return True

    bench.until(lambda: bench.run(bench.backend.unattended()) is None)
    bench.until(is_started)
    return started[0]


def output(bench: DaprBench, instance_id: str) -> Any:
    state = bench.tools.wait_for_workflow_completion(instance_id, timeout_in_seconds=60)
    assert state is not None
    assert state.runtime_status is W.COMPLETED, state.to_json()
    return json.loads(state.serialized_output)


def test_c31_an_agent_runs_in_the_middle_of_a_workflow(working: DaprBench) -> None:
    instance_id = start(working, travel, BOOK, "Booked.")
    text, status, stop_reason, execution_id = output(working, instance_id)
    assert (text, status, stop_reason) == ("BOOKED.\n", "COMPLETED", "end_turn")
    assert execution_id.startswith(f"{instance_id}:contract_agent:")
    assert working.booked() == ["Paris"]
    handle = working.run(working.backend.get(execution_id))
    assert [step.kind for step in working.run(handle.steps())] == ["model", "tool", "model"]


def test_c31_its_questions_are_answered_by_its_handle(working: DaprBench) -> None:
    instance_id = start(working, travel, ASK, "Approved.", execution_id="trip")
    working.until(lambda: [record.status for record in working.run(working.backend.list())] == [S.SUSPENDED])
    handle = working.run(working.backend.get("trip"))
    (question,) = working.run(handle.interrupts())
    working.run(handle.respond({question.id: "yes"}))
    assert output(working, instance_id)[0] == "APPROVED.\n"
    assert len(working.marks("approve")) == 2


def test_c31_a_failure_and_a_cancel_reach_the_workflow_as_errors(working: DaprBench) -> None:
    failed = start(working, careful, {"fails_until": "fixed"}, execution_id="fails")
    name, text = output(working, failed)
    assert (name, "the model is out of order" in text) == ("ExecutionFailedError", True)
    cancelled = start(working, careful, WAIT, "Done.", execution_id="cancelled")
    working.until_waiting()
    working.run(working.run(working.backend.get("cancelled")).cancel())
    assert output(working, cancelled)[0] == "ExecutionCancelledError"


def test_c31_a_child_workflow_that_is_terminated_fails_the_call_and_cancels_the_execution(working: DaprBench) -> None:
    instance_id = start(working, careful, ASK, "Done.", execution_id="trip")
    working.until(lambda: [record.status for record in working.run(working.backend.list())] == [S.SUSPENDED])
    working.tools.terminate_workflow("trip")
    name, text = output(working, instance_id)
    assert (name, "its workflow was terminated" in text) == ("ExecutionFailedError", True)
    working.until(lambda: working.status(working.run(working.backend.get("trip"))) is S.CANCELLED)


def test_c31_an_id_that_is_in_use_is_refused(working: DaprBench) -> None:
    working.result(working.dispatch("Hi.", execution_id="trip"))
    name, text = output(working, start(working, careful, "Hi.", execution_id="trip"))
    assert name == "ExecutionBusyError"
    assert "earlier call" in text


def test_c31_outside_of_a_workflow_it_is_a_named_error() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="DaprDurability outside of a workflow"):
        DaprDurability(None, agents.contract_agent)
