"""C54 on AWS Lambda: processes without the key at the worst moments, and key services that fail, end nothing and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aws_durable_execution_sdk_python import RetryableSerDesError
from strands import Agent, tool

from strands_durable import ExecutionStatus, durable_agent, policy
from strands_durable.backends.aws_lambda import _operations, lambda_handler
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.aws_lambda import LocalLambda
from tests.contract.test_lambda_encryption import PATIENCE, Function, keys
from tests.waiting import until

S = ExecutionStatus
CHARGED: list[str] = []


@policy(in_doubt="fail")
@tool
def charge(what: str) -> str:
    """Charge a card."""
    CHARGED.append(what)
    return "charged"


@durable_agent(name="charger")
def charger() -> Agent:
    return Agent(model=ScriptedModel([call("charge", what="card"), "Done."]), tools=[charge], callback_handler=None)


class Charger(Function):
    def deploy(self, cipher: Any) -> None:
        given = {"stop_poll_seconds": 0.2, "exits": False, **self._settings}
        self.aws.add(self.name, lambda_handler(charger, cipher=cipher, **given))


def dies_before(monkeypatch: pytest.MonkeyPatch, name: str, then: Callable[[], None]) -> None:
    """Let one process die before an operation, and something happen before the next process."""
    step, died = _operations.LambdaOperations.step, list[str]()

    def dying(self: Any, operation: str, body: Callable[[], str], *, once: bool) -> str:
        if operation.startswith(name) and not died:
            died.append(operation)
            then()
            raise RetryableSerDesError("the process died here")
        return step(self, operation, body, once=once)

    monkeypatch.setattr(_operations.LambdaOperations, "step", dying)


def note(function: Function) -> str:
    return str(asyncio.run(function.backend.presence("run")).note)


def test_c54_a_process_without_the_key_puts_no_tool_in_doubt(aws: LocalLambda, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the turn of the operation in which the tool would have run; the tool has certainly not begun."""
    CHARGED.clear()
    function = Charger(aws, keys(k1=1))
    dies_before(monkeypatch, "tool charge", lambda: function.deploy(None))
    handle = asyncio.run(function.backend.dispatch(charger.spec, "Go", execution_id="run"))
    until(lambda: "k1" in note(function), PATIENCE)
    function.deploy(keys(k1=1))
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == "Done."
    assert CHARGED == ["card"]
    steps = asyncio.run(handle.steps())
    assert [(step.kind, step.name, step.status) for step in steps][1:2] == [("tool", "charge", "done")]
