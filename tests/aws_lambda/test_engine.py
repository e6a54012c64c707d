"""What is special about AWS Lambda: callbacks, waits, sizes, limits, time, and errors that say what to do."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aws_durable_execution_sdk_python import durable_execution

from strands_durable import connect, errors
from strands_durable.backends.aws_lambda import LambdaBackend, LambdaDurability, lambda_handler
from strands_durable.backends.aws_lambda._history import EventLog
from strands_durable.backends.aws_lambda._protocol import attempt_of, execution_name
from strands_durable.testing.aws_lambda import LocalLambda
from tests.aws_lambda import agents
from tests.aws_lambda.agents import ledger
from tests.aws_lambda.functions import Function, apart, ask
from tests.waiting import until

# Callbacks


def test_c04_an_answer_may_come_through_the_api_of_aws_as_any_json(make: Any) -> None:
    function = make()
    handle = function.dispatch(ask("paint"), "Done.")
    assert function.result(handle).interrupts
    until(lambda: function.open_callbacks(handle))
    ((question, callback),) = function.open_callbacks(handle).items()
    function.aws.client().send_durable_execution_callback_success(CallbackId=callback, Result=b'{"colour": "blue"}')
    assert str(function.result(handle)).strip() == "Done."
    (call,) = asyncio.run(handle.detail()).calls
    assert [(found.answer, found.by) for found in call.answers] == [({"colour": "blue"}, "a callback")]
    assert question.startswith("v1:tool_call")


@pytest.mark.parametrize("result", [b"not JSON", b"null"])
def test_c04_an_answer_that_cannot_be_used_opens_the_question_again(make: Any, result: bytes) -> None:
    asked: list[Any] = []
    function = make(notify=lambda callback, about: asked.append((callback, about)))
    handle = function.dispatch(ask("paint"), "Done.")
    until(lambda: len(asked) == 1)
    function.aws.client().send_durable_execution_callback_success(CallbackId=asked[0][0], Result=result)
    until(lambda: len(asked) == 2)
    assert asked[1][0] != asked[0][0]
    assert asked[1][1]["rejected"]
    (question,) = function.result(handle).interrupts
    asyncio.run(handle.respond({question.id: "yes"}))
    assert str(function.result(handle)).strip() == "Done."


def test_c04_notify_is_told_of_each_question_with_its_callback_and_reason(make: Any) -> None:
    asked: dict[str, Any] = {}
    function = make(notify=lambda callback, about: asked.setdefault(about["name"], (callback, about)))
    handle = function.dispatch([ask("paint"), ask("wood")], "Done.")
    until(lambda: len(asked) == 2)
    assert {about["reason"]["what"] for _, about in asked.values()} == {"paint", "wood"}
    assert {about["execution_id"] for _, about in asked.values()} == {"run"}
    client = function.aws.client()
    client.send_durable_execution_callback_success(CallbackId=asked["approve wood"][0], Result=b'"second first"')
    until(lambda: len(asyncio.run(handle.interrupts())) == 1)
    client.send_durable_execution_callback_success(CallbackId=asked["approve paint"][0], Result=b'"then first"')
    assert str(function.result(handle)).strip() == "Done."


def test_c04_a_question_that_nobody_answers_in_time_is_an_error_for_the_tool_that_asked(make: Any) -> None:
    function = make(answer_seconds=1)
    handle = function.dispatch(ask("paint"), "Done.")
    until(lambda: asyncio.run(handle.status()).value == "COMPLETED")
    step = next(step for step in asyncio.run(handle.steps()) if step.name == "approve" and step.status == "done")
    assert "error" in str(step.result)
    assert "timed out" in str(step.result)


def test_c04_a_callback_that_was_answered_meanwhile_is_another_answer(make: Any) -> None:
    function = make()
    handle = function.dispatch(ask("paint"), {"tool": "work", "seconds": 0.5}, "Done.")
    (question,) = function.result(handle).interrupts
    until(lambda: function.open_callbacks(handle))
    asyncio.run(handle.respond({question.id: "yes"}))
    with pytest.raises(errors.InputMismatchError):
        asyncio.run(handle.respond({question.id: "no"}))
    asyncio.run(handle.respond({question.id: "yes"}))
    assert str(function.result(handle)).strip() == "Done."


def test_c33_an_execution_that_aws_has_ended_while_it_waited_asks_again(make: Any) -> None:
    function = make()
    handle = function.dispatch({"tool": "book", "city": "Rome"}, ask("paint"), "Done.")
    assert function.result(handle).interrupts
    known = asyncio.run(function.backend.read("run"))
    assert asyncio.run(function.backend.resume_attempt(known)), "as resume() does after AWS's own timeout"
    until(lambda: function.open_callbacks(handle))
    (question,) = function.result(handle).interrupts
    asyncio.run(handle.respond({question.id: "yes"}))
    assert str(function.result(handle)).strip() == "Done."
    assert function.names().count("book Rome") == 1


def test_c26_accepted_drift_loses_nothing_that_was_recorded_in_the_meantime(aws: LocalLambda, tmp_path: Path) -> None:
    from strands_durable.testing.agents import contract_agent

    name = f"f-{uuid.uuid4().hex[:8]}"
    function = Function(aws, aws.add(name, lambda_handler(contract_agent)), tmp_path)
    handle = function.dispatch({"tool": "book", "city": "Rome"}, "Done.")
    until(lambda: asyncio.run(handle.detail()).execution.note)
    aws.add(name, lambda_handler(agents.agent, exits=False))
    asyncio.run(handle.resume(accept_drift=True))
    assert str(function.result(handle)).strip() == "Done."
    assert function.names() == ["model", "book Rome", "model"]
    asyncio.run(handle.resume(accept_drift=True))
    assert function.names() == ["model", "book Rome", "model"]


# Waits


def test_c17_a_sleep_suspends_the_function_and_the_tool_starts_over_in_a_new_process(tmp_path: Path) -> None:
    with apart(tmp_path) as function:
        handle = function.dispatch([{"tool": "nap", "seconds": 3}, {"tool": "book", "city": "Rome"}], "Done.")
        assert str(function.result(handle)).strip() == "Done."
        assert sorted(function.names()) == ["book Rome", "model", "model", "nap", "nap", "woke"]
        assert function.count(handle, "WaitSucceeded") >= 1
        assert len({entry["pid"] for entry in ledger(tmp_path)}) == 2
        steps = asyncio.run(handle.steps())
        assert {step.status for step in steps} == {"done"}, "no step is in doubt"


def test_c17_a_short_sleep_is_not_worth_a_suspension(make: Any) -> None:
    function = make()
    handle = function.dispatch({"tool": "nap", "seconds": 0.3}, "Done.")
    assert str(function.result(handle)).strip() == "Done."
    assert function.count(handle, "WaitStarted") == 0
    assert function.names() == ["model", "nap", "woke", "model"]


def test_c13_a_throttled_model_is_a_wait_and_its_counter_survives_the_suspension(tmp_path: Path) -> None:
    (tmp_path / "throttled").write_text("2")
    with apart(tmp_path) as function:
        handle = function.dispatch("Done.")
        assert str(function.result(handle)).strip() == "Done."
        assert function.names() == ["model"] * 3
        assert function.count(handle, "WaitSucceeded") >= 1
        (tmp_path / "throttled").write_text("9")
        handle = function.dispatch("Done.", execution_id="too-often", max_attempts=3)
        with pytest.raises(errors.ExecutionFailedError, match="slow down"):
            function.result(handle)
        assert function.names() == ["model"] * 6, "three attempts, over several processes"


# Sizes


def test_c15_a_large_result_is_recorded_in_pieces(make: Any) -> None:
    function = make()
    handle = function.dispatch({"tool": "large", "size": 700_000}, {"tool": "book", "city": "Rome"}, "Done.")
    assert str(function.result(handle)).strip() == "Done."
    assert function.names() == ["model", "large", "model", "book Rome", "model"]
    step = next(step for step in asyncio.run(handle.steps()) if step.name == "large")
    assert len(str(step.result)) > 690_000
    payloads = [
        event["StepSucceededDetails"]["Result"]["Payload"]
        for event in function.events(handle)
        if event["EventType"] == "StepSucceeded"
    ]
    assert max(map(len, payloads)) < 262_144, "AWS refuses more, the local runner does not"
    assert sum('"piece"' in payload for payload in payloads) >= 2


def test_c15_a_result_that_is_too_large_names_its_tool_before_aws_does(make: Any) -> None:
    function = make()
    handle = function.dispatch({"tool": "large", "size": 5_000_000}, "Done.")
    with pytest.raises(errors.ExecutionFailedError, match="'large'") as caught:
        function.result(handle)
    assert isinstance(caught.value.__cause__, errors.PayloadTooLargeError)


def test_c15_with_a_store_results_of_any_size_are_put_there(make: Any, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/payloads"
    function = make(payloads=store)
    function = Function(function.aws, f"{function.url}&payloads={store}", tmp_path)
    handle = function.dispatch({"tool": "large", "size": 5_000_000}, "Done.")
    assert str(function.result(handle)).strip() == "Done."
    step = next(step for step in asyncio.run(handle.steps()) if step.name == "large")
    assert len(str(step.result)) > 4_900_000
    assert any((tmp_path / "payloads").iterdir())


def test_c15_an_input_that_is_too_large_is_refused_by_the_client(make: Any) -> None:
    with pytest.raises(errors.PayloadTooLargeError, match="dispatched"):
        make().dispatch("Done.", prompt=os.urandom(900_000).hex())


def test_c15_a_truncated_payload_of_the_history_is_an_error() -> None:
    cut = {"EventType": "StepSucceeded", "SubType": "strands-durable", "Id": "1", "EventId": 1,
           "StepSucceededDetails": {"Result": {"Payload": "{", "Truncated": True}}}  # fmt: skip

    class Cut:
        def get_durable_execution_history(self, **_: Any) -> Any:
            return {"Events": [cut]}

    with pytest.raises(errors.BackendUnavailableError, match="truncated"):
        EventLog("arn", LambdaBackend("lambda://f:1").payload_store).update(Cut())


# Operations and time


def test_c30_an_execution_that_has_used_up_its_operations_is_continued_by_further_ones(tmp_path: Path) -> None:
    cities = [{"tool": "book", "city": str(number)} for number in range(12)]
    with apart(tmp_path, max_operations=9) as function:
        handle = function.dispatch(*cities, ask("all"), "Done.")
        (question,) = function.result(handle).interrupts
        asyncio.run(handle.respond({question.id: "yes"}))
        assert str(function.result(handle)).strip() == "Done."
        booked = [name for name in function.names() if name.startswith("book")]
        assert booked == [f"book {number}" for number in range(12)]
        assert function.count(handle, "ChainedInvokeSucceeded") > 1
        assert len([step for step in asyncio.run(handle.steps()) if step.status == "done"]) == 27


def test_c03_a_continued_execution_is_stopped_with_what_continues_it(tmp_path: Path) -> None:
    cities = [{"tool": "book", "city": str(number)} for number in range(9)]
    with apart(tmp_path, max_operations=9) as function:
        handle = function.dispatch(*cities, {"tool": "work", "seconds": 60}, "Done.")
        until(lambda: "work" in function.names())
        asyncio.run(handle.cancel())
        with pytest.raises(errors.ExecutionCancelledError):
            function.result(handle)
        known = asyncio.run(function.backend.read("run"))
        assert known.log is not known.root
        client = function.aws.client()
        statuses = [
            client.get_durable_execution(DurableExecutionArn=arn)["Status"] for arn in (known.root.name, known.log.name)
        ]
        assert statuses == ["STOPPED", "STOPPED"]


def test_an_invocation_is_left_between_steps_before_its_time_is_over(tmp_path: Path) -> None:
    steps = [{"tool": "work", "seconds": 1.2} for _ in range(5)]
    with apart(tmp_path, timeout_seconds=6) as function:
        handle = function.dispatch(*steps, "Done.")
        assert str(function.result(handle)).strip() == "Done."
        assert function.names().count("work") == 5, "no step was cut off"
        assert len({entry["pid"] for entry in ledger(tmp_path)}) > 1
        assert {step.attempt for step in asyncio.run(handle.steps())} == {1}


@pytest.mark.parametrize("tool", ["work", "block"])
def test_a_step_that_outlasts_the_invocation_fails_and_nothing_of_it_lives_on(tmp_path: Path, tool: str) -> None:
    with apart(tmp_path, timeout_seconds=4) as function:
        handle = function.dispatch({"tool": tool, "seconds": 30}, "Done.")
        with pytest.raises(errors.ExecutionFailedError, match=r"timeout of [1-4] s") as caught:  # less its start
            function.result(handle)
        assert isinstance(caught.value.__cause__, errors.StepTooLongError)
        assert function.names() == ["model", tool]
        (pid,) = {entry["pid"] for entry in ledger(tmp_path) if entry["name"] == tool}
        until(lambda: not Path(f"/proc/{pid}").exists())


def test_c12_a_step_that_must_not_run_twice_is_recorded_before_it_begins(make: Any) -> None:
    function = make()
    handle = function.dispatch({"tool": "work", "seconds": 0}, "Done.", in_doubt="fail")
    assert str(function.result(handle)).strip() == "Done."
    texts = [
        event.get("StepSucceededDetails", {}).get("Result", {}).get("Payload") for event in function.events(handle)
    ]
    messages = [json.loads(text) for text in texts if text]
    assert [message.get("next") for message in messages if message.get("strict")] == ["tool work"]


# Names, versions and errors


def test_c01_ids_that_aws_does_not_allow_are_encoded(make: Any) -> None:
    ids = ["tenant:7@shop.example+1", "a--2", "x" * 100, "plain-id_7", "a.b", "a:b"]
    names = [execution_name(each, 1) for each in ids]
    assert len(set(names)) == len(ids)
    assert all(
        len(name) <= 64 and name.replace("-", "").replace("_", "").isalnum() and name.isascii() for name in names
    )
    assert names[3] == "plain-id_7--1"
    assert [attempt_of(name)[1] for name in names] == [1] * len(ids)  # type: ignore[index]
    function = make()
    assert function.text("Done.", execution_id=ids[0]) == "Done."
    assert [record.execution_id for record in asyncio.run(function.backend.list())] == [ids[0]]


@pytest.mark.parametrize("url", ["lambda://planner", "lambda://arn:aws:lambda:us-east-1:123456789012:function:planner",
                                 "lambda://planner:1?colour=red", "lambda://"])  # fmt: skip
def test_a_url_without_a_version_is_refused(url: str) -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="lambda://FUNCTION:QUALIFIER"):
        connect(url)


def test_a_function_that_is_not_there_is_a_named_error(aws: LocalLambda) -> None:
    backend = connect(aws.url("unknown"))
    spec = agents.agent.spec_with(folder=".", script=[])
    with pytest.raises(errors.BackendUnavailableError, match=r"no such function.*Check the name"):
        asyncio.run(backend.dispatch(spec, "Go"))


def test_an_execution_that_has_expired_is_not_found(make: Any) -> None:
    function = make()
    with pytest.raises(errors.ExecutionNotFoundError):
        asyncio.run(function.backend.get("never"))


@pytest.mark.parametrize(("code", "says"), [
    ("AccessDeniedException", "lambda:InvokeFunction"),
    ("InvalidParameterValueException", "DurableConfig"),
    ("RequestTooLargeException", "The input"),
])  # fmt: skip
def test_what_aws_refuses_says_what_to_do(code: str, says: str) -> None:
    spec = agents.agent.spec_with(folder=".", script=[])
    with _refusing(code) as url, pytest.raises(errors.DurableError, match=says):
        asyncio.run(connect(url).dispatch(spec, "Go"))


@contextmanager
def _refusing(code: str) -> Iterator[str]:
    """Have a server that refuses everything as AWS does."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"Message": "no"}).encode()
            self.send_response(400)
            self.send_header("X-Amzn-Errortype", code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"lambda://f:1?region=us-east-1&endpoint=http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_c26_an_agent_that_the_function_does_not_have_is_named(aws: LocalLambda, tmp_path: Path) -> None:
    from strands_durable.testing.agents import contract_agent

    function = Function(aws, aws.add(f"f-{uuid.uuid4().hex[:8]}", lambda_handler(contract_agent)), tmp_path)
    handle = function.dispatch("Done.")
    until(lambda: asyncio.run(handle.detail()).execution.note)
    with pytest.raises(TimeoutError, match="no agent 'lambda-agent' in this function"):
        function.result(handle, 0.5)


def test_a_worker_for_lambda_is_refused() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="AWS invokes the function"):
        asyncio.run(connect("lambda://f:1").work())


# Handlers of one's own


def test_a_durable_agent_inside_a_handler_of_ones_own(aws: LocalLambda, tmp_path: Path) -> None:
    @durable_execution
    def handler(event: Any, context: Any) -> Any:
        before = context.step(lambda _: "first", "before")
        durability = LambdaDurability(context)
        given = {"folder": str(tmp_path), "script": [{"tool": "book", "city": "Rome"}, ask("it"), "Done."]}
        result = durability.invoke(agents.agent, event["trip"], execution_id="inside", **given)
        again = durability.invoke(agents.agent, "Go", **{**given, "script": ["Again."]})
        return [before, str(result).strip(), str(again).strip(), context.step(lambda _: "last", "after")]

    url = aws.add("own", handler)
    client = aws.client()
    started = client.invoke(
        FunctionName="own", InvocationType="Event", DurableExecutionName="mine", Payload=b'{"trip": "7"}'
    )
    arn = started["DurableExecutionArn"]

    def callback() -> Any:
        events = client.get_durable_execution_history(DurableExecutionArn=arn, IncludeExecutionData=True)["Events"]
        return [event for event in events if event["EventType"] == "CallbackStarted"]

    until(callback)
    callback_id = callback()[0]["CallbackStartedDetails"]["CallbackId"]
    client.send_durable_execution_callback_success(CallbackId=callback_id, Result=b'"yes"')
    until(lambda: client.get_durable_execution(DurableExecutionArn=arn)["Status"] != "RUNNING")
    ended = client.get_durable_execution(DurableExecutionArn=arn)
    assert json.loads(ended["Result"]) == ["first", "Done.", "Again.", "last"]
    assert url
    assert [entry["name"] for entry in ledger(tmp_path)] == ["model", "book Rome", "model", "model", "model"]


def test_lambda_durability_outside_of_a_durable_handler_is_refused() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="outside of a durable handler"):
        LambdaDurability(object())


@pytest.mark.parametrize("more", [{}, {"notice": {"of": "the caller"}}], ids=["plain", "with a key of ours"])
def test_a_function_may_be_started_without_our_client(make: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    function = make()
    name = function.backend.config.function
    arguments = {"folder": str(tmp_path), "script": ["Done."]}
    given = {"prompt": "Go", "execution_id": "direct", "arguments": arguments, **more}
    function.aws.client().invoke(
        FunctionName=name, InvocationType="Event", DurableExecutionName="direct--1", Payload=json.dumps(given).encode()
    )
    until(lambda: function.names() == ["model"])
    handle = asyncio.run(function.backend.get("direct"))
    assert str(function.result(handle)).strip() == "Done."


def test_an_input_that_is_none_is_refused(aws: LocalLambda, make: Any) -> None:
    function = make()
    client = aws.client()
    name = function.backend.config.function
    arn = client.invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")["DurableExecutionArn"]
    until(lambda: client.get_durable_execution(DurableExecutionArn=arn)["Status"] == "FAILED")
    assert "prompt" in client.get_durable_execution(DurableExecutionArn=arn)["Error"]["ErrorMessage"]


def test_a_handler_without_agents_is_refused() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="names no agent"):
        lambda_handler()
