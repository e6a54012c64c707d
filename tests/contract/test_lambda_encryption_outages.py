"""C54 on AWS Lambda: processes without the key, and key services that fail, end nothing and lose nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext, RetryableSerDesError, durable_execution
from strands import Agent, tool

from strands_durable import Cipher, ExecutionStatus, durable_agent, errors, policy
from strands_durable._enginekit.encryption import Contents
from strands_durable._enginekit.operations.run import OperationRun
from strands_durable.backends.aws_lambda import LambdaDurability, _handler, _operations, lambda_handler
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.aws_lambda import LocalLambda
from tests.contract.test_lambda_encryption import PATIENCE, SECRET, Function, Recorded, _events, keys, planner
from tests.processes import run
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
def charger(times: int = 1) -> Agent:
    return Agent(
        model=ScriptedModel([*[call("charge", what="card")] * times, "Done."]), tools=[charge], callback_handler=None
    )


class Charger(Function):
    def __init__(self, aws: LocalLambda, cipher: Cipher | None, *, name: str | None = None, **settings: Any) -> None:
        self._name = name
        super().__init__(aws, cipher, **settings)

    def deploy(self, cipher: Any) -> None:
        self.name = self._name or self.name
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


def dies_after(monkeypatch: pytest.MonkeyPatch, status: str, then: Callable[[], None]) -> None:
    """Let one process die after it has recorded a status, and something happen before the next process."""
    operate, died = OperationRun._operate, list[str]()

    def dying(self: Any, name: str, once: bool) -> Any:
        message = operate(self, name, once)
        if message.get("status") == status and not died:
            died.append(name)
            then()
            raise RetryableSerDesError("the process died here")
        return message

    monkeypatch.setattr(OperationRun, "_operate", dying)


def aws_status(function: Function, execution_id: str = "run") -> str:
    """Return the status that AWS has for an execution."""
    found = function.aws.client().list_durable_executions_by_function(FunctionName=function.name)["DurableExecutions"]
    (status,) = {each["Status"] for each in found if each["DurableExecutionName"].startswith(f"{execution_id}--")}
    return str(status)


class Keys:
    """A key service that may be out of order."""

    current = "k1"

    def __init__(self, *, wraps: bool = True) -> None:
        self.wraps, self._keys = wraps, keys(k1=1)._service

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        if not self.wraps:
            raise OSError("the service is down")
        return self._keys.wrap(key_id, data_key)

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        return self._keys.unwrap(key_id, wrapped)


@pytest.mark.parametrize("lacking", [None, keys(k1=9), Cipher(Keys(wraps=False))], ids=["no key", "wrong", "outage"])
def test_c54_a_completed_execution_stays_completed_without_the_key(
    aws: LocalLambda, monkeypatch: pytest.MonkeyPatch, lacking: Cipher | None
) -> None:
    function = Charger(aws, keys(k1=1))
    dies_after(monkeypatch, "COMPLETED", lambda: function.deploy(lacking))
    handle = asyncio.run(function.backend.dispatch(charger.spec, "Go", execution_id="run"))
    until(lambda: "k1" in note(function), PATIENCE)
    assert asyncio.run(handle.status()) is S.COMPLETED
    until(lambda: len(refusals(function)) > 2, PATIENCE)
    assert refusals(function)[:3] == [1, 2, 4]
    assert aws_status(function) == "RUNNING"
    function.deploy(keys(k1=1))
    until(lambda: aws_status(function) == "SUCCEEDED", PATIENCE)
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == "Done."


def refusals(function: Function) -> list[int]:
    """Return the recorded waits after refusals."""
    results = [
        event.get("StepSucceededDetails", {}).get("Result", {}).get("Payload") for event in _events(function, "run")
    ]
    return [message["wait"] for message in (json.loads(text) for text in results if text) if "refused" in message]


def run_a_log_that_is_continued() -> tuple[str, str, bool]:
    """Run an execution whose log is continued by another one, and take the key away before the first one is continued.

    In a process of its own: AWS's SDK has one client for each process, and only a runner knows functions that start others.
    """
    segment = _handler.run_segment
    with LocalLambda({"continued": lambda event, context: None}) as aws:
        function = Charger(aws, keys(k1=1), name="continued", max_operations=4)

        def ending(run: Any) -> Any:
            end = segment(run)
            if end["status"] == "COMPLETED":
                function.deploy(None)
            return end

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(_handler, "run_segment", ending)
            handle = asyncio.run(function.backend.dispatch(charger.spec_with(times=4), "Go", execution_id="run"))
            until(lambda: aws_status(function) != "RUNNING", PATIENCE / 2)
        result = str(asyncio.run(handle.result(PATIENCE))).strip()
        return aws_status(function), result, asyncio.run(function.backend.read("run")).root.segment is not None


def test_c54_a_log_that_was_continued_elsewhere_needs_no_key() -> None:
    assert run(run_a_log_that_is_continued).checked() == ("SUCCEEDED", "Done.", True)


def test_c54_a_key_service_that_fails_ends_nothing(aws: LocalLambda) -> None:
    """A new process can decrypt what is recorded, and has no data key to encrypt with."""
    function = Function(aws, Cipher(Keys()))
    handle = function.dispatch()
    (asked,) = asyncio.run(handle.result(PATIENCE)).interrupts
    broken = Keys(wraps=False)
    function.deploy(Cipher(broken))
    asyncio.run(handle.respond({asked.id: "yes"}))
    until(lambda: "the service is down" in note(function), PATIENCE)
    until(lambda: len(refusals(function)) > 2, PATIENCE)
    broken.wraps = True
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"


def test_c54_a_key_service_that_fails_does_not_end_what_begins_with_the_tools_of_aws(aws: LocalLambda) -> None:
    broken = Keys(wraps=False)
    function = Charger(aws, Cipher(broken))
    event = json.dumps({"prompt": "Go", "execution_id": "run"}).encode()
    given = {"FunctionName": function.name, "Qualifier": "$LATEST", "Payload": event}
    aws.client().invoke(InvocationType="Event", DurableExecutionName="run--1", **given)
    until(lambda: [each["EventType"] for each in raw_events(function)].count("WaitSucceeded") > 1, PATIENCE)
    broken.wraps = True
    until(lambda: aws_status(function) == "SUCCEEDED", PATIENCE)
    assert str(asyncio.run(asyncio.run(function.backend.get("run")).result(PATIENCE))).strip() == "Done."


def raw_events(function: Function) -> list[dict[str, Any]]:
    found = function.aws.client().list_durable_executions_by_function(FunctionName=function.name)["DurableExecutions"]
    return [
        event
        for each in found
        for event in function.aws.client().get_durable_execution_history(
            DurableExecutionArn=each["DurableExecutionArn"], IncludeExecutionData=True
        )["Events"]
    ]


def answered_plainly(function: Function, answer: Any) -> None:
    """Answer the open question with the tools of AWS."""
    ((_, callback_id),) = asyncio.run(function.backend.read("run")).log.callbacks.open.items()
    given = {"CallbackId": callback_id, "Result": json.dumps(answer).encode()}
    function.aws.client().send_durable_execution_callback_success(**given)


def test_c54_a_function_with_the_earlier_key_takes_the_answer_of_a_client_with_a_new_one(aws: LocalLambda) -> None:
    function = Function(aws, keys(k1=1))
    (asked,) = asyncio.run(function.dispatch().result(PATIENCE)).interrupts
    handle = asyncio.run(function.with_(keys(k2=2, k1=1)).get("run"))
    asyncio.run(handle.respond({asked.id: "yes"}))
    assert str(asyncio.run(handle.result(PATIENCE / 2))).strip() == f"{SECRET} answer"


def test_c54_a_function_waits_ever_longer_for_the_key_of_an_answer(aws: LocalLambda) -> None:
    function = Function(aws, None)
    (asked,) = asyncio.run(function.dispatch().result(PATIENCE)).interrupts
    handle = asyncio.run(function.with_(keys(k1=1)).get("run"))
    asyncio.run(handle.respond({asked.id: "yes"}))
    until(lambda: len(refusals(function)) > 2, PATIENCE)
    assert refusals(function)[:3] == [1, 2, 4]
    function.deploy(keys(k1=1))
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"


def test_c54_a_damaged_answer_is_asked_again(aws: LocalLambda) -> None:
    function = Function(aws, keys(k1=1))
    handle = function.dispatch()
    (asked,) = asyncio.run(handle.result(PATIENCE)).interrupts
    ((_, first),) = asyncio.run(function.backend.read("run")).log.callbacks.open.items()
    answered_plainly(function, {"strands-durable sealed": "yes"})
    until(
        lambda: first not in (found := asyncio.run(function.backend.read("run")).log.callbacks.open.values()) and found,
        30,
    )
    asyncio.run(handle.respond({asked.id: "yes"}))
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"
    assert refusals(function) == []


def test_c54_without_a_cipher_an_answer_that_looks_encrypted_is_an_answer(aws: LocalLambda) -> None:
    function = Function(aws, None)
    handle = function.dispatch()
    asyncio.run(handle.result(PATIENCE))
    answered_plainly(function, {"strands-durable sealed": "yes"})
    until(lambda: asyncio.run(handle.status()) is S.COMPLETED, PATIENCE)
    assert "{'strands-durable sealed': 'yes'}" in str(asyncio.run(handle.steps())[-2].result)


def test_c53_inside_a_handler_of_a_users_own_the_error_of_an_agent_does_not_reach_aws(
    aws: LocalLambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes, recorded = list[str](), Recorded(monkeypatch)

    @durable_execution
    def handler(event: Any, context: DurableContext) -> str:
        try:
            return str(LambdaDurability(context, cipher=keys(k1=1)).invoke(planner, "Go", fails="/nowhere/at/all"))
        except errors.ExecutionFailedError as error:
            causes.append(str(error.__cause__))
            raise

    aws.add("own-failing", handler)
    given = {"FunctionName": "own-failing", "Qualifier": "$LATEST", "Payload": b"{}"}
    aws.client().invoke(InvocationType="Event", DurableExecutionName="own", **given)
    until(lambda: any(b"its error is encrypted" in body for body in list(recorded.bodies)), PATIENCE / 2)
    assert f"{SECRET} failure" in causes[0]
    assert recorded.readable() == []


def test_c54_a_notification_is_delivered_once_it_can_be_decrypted(
    aws: LocalLambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, run_delivery, has_key = list[Any](), _handler.run_delivery, False

    def lacking(operations: Any, given: Any, key: Any, contents: Contents) -> Any:
        return run_delivery(operations, given, key, contents if has_key else Contents(None, "AWS Lambda"))

    monkeypatch.setattr(_handler, "run_delivery", lacking)
    function = Function(aws, keys(k1=1), on_suspended=took.append)
    asyncio.run(function.dispatch().result(PATIENCE))
    until(lambda: "and no cipher was given" in str(raw_events(function)), PATIENCE / 3)
    has_key = True
    until(lambda: len(took) == 1, PATIENCE / 3)
    assert took[0].questions[0].reason == f"{SECRET} asked"


@pytest.mark.parametrize("hook", ["on_suspended", "notify"])
def test_c54_hooks_are_called_after_a_process_that_lacks_the_key(
    aws: LocalLambda, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    took = list[Any]()
    function = Function(aws, keys(k1=1), **{hook: lambda *given: took.append(given)})
    dies_after(monkeypatch, "SUSPENDED", lambda: function.deploy(None))
    monkeypatch.setattr(_operations, "delay_seconds", lambda tries: 1)
    monkeypatch.setattr(_operations, "_START_TRIES", 3)
    function.dispatch()
    until(lambda: str(raw_events(function)).count("and no cipher was given") > 4, PATIENCE / 2)
    function.deploy(keys(k1=1))
    until(lambda: len(took) == 1, PATIENCE / 2)
    assert f"{SECRET} asked" in str(took)


def test_c54_an_execution_of_another_id_is_not_found_with_and_without_a_cipher(aws: LocalLambda) -> None:
    """The function was started with the tools of AWS, and has recorded an id of its own."""
    for cipher in (None, keys(k1=1)):
        function = Charger(aws, cipher)
        given = {"FunctionName": function.name, "Qualifier": "$LATEST", "Payload": b'{"prompt": "Go"}'}
        aws.client().invoke(InvocationType="Event", DurableExecutionName="run--1", **given)
        until(lambda function=function: aws_status(function) == "SUCCEEDED", PATIENCE / 2)
        with pytest.raises(errors.ExecutionNotFoundError, match="Execution 'run' was not found"):
            asyncio.run(asyncio.run(function.backend.get("run")).status())


def test_c55_a_damaged_value_is_called_damaged() -> None:
    for cipher in (None, keys(k1=1)):
        with pytest.raises(errors.CipherError, match="the row is damaged: no key opens it"):
            Contents(cipher, "AWS Lambda").open(b"\x00\x01" + b"\0" * 32, "the row")
