"""What `strands-durable show` says of an execution on AWS Lambda, where only AWS knows whether an invocation runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from strands import Agent, tool

from strands_durable import connect, durable_agent
from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.aws_lambda import LocalLambda
from tests.waiting import until

gate = threading.Event()


@tool
def wait() -> str:
    """Wait until a test has looked."""
    assert gate.wait(60)
    return "waited"


@durable_agent(name="lambda-patient")
def patient() -> Agent:
    return Agent(model=ScriptedModel([call("wait"), "Done."]), tools=[wait], callback_handler=None)


def test_a_step_that_runs_is_shown_as_running_with_its_owner_and_not_in_doubt(aws: LocalLambda) -> None:
    gate.clear()
    backend = connect(aws.add("patient", lambda_handler(patient, exits=False)))
    handle = asyncio.run(backend.dispatch(patient.spec, "Go", execution_id="patient"))

    def states() -> Any:
        return [step.state for step in asyncio.run(handle.detail()).steps]

    try:
        until(lambda: len(states()) == 2)
        assert states() == ["done", "running"]
        assert asyncio.run(handle.detail()).execution.owner is not None
    finally:
        gate.set()
    asyncio.run(handle.result(60))
    assert states() == ["done", "done", "done"]
    assert asyncio.run(handle.detail()).execution.owner is None
