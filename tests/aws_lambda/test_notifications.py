"""C37 on AWS Lambda: hooks belong to the function, and a durable execution of its own delivers each report."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from strands_durable import Notification, Webhook, errors
from strands_durable._dispatch.notifications import hooks
from strands_durable._enginekit.operations import reports
from strands_durable.backends.aws_lambda import _operations, lambda_handler
from strands_durable.testing.aws_lambda import LocalLambda
from tests.aws_lambda import agents
from tests.aws_lambda.functions import Function, ask
from tests.receiver import SECRET, Receiver, is_signed, receiving, silent
from tests.waiting import until

FAILS: list[Any] = [{"tool": "book", "city": "Paris"}]
"""A script that is over before the agent is."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have failed deliveries tried again as soon as AWS allows."""
    monkeypatch.setattr(reports, "delay_seconds", lambda tries: 1.0)


def webhook(receiver: Receiver) -> dict[str, Any]:
    return {"webhooks": [Webhook(receiver.url, SECRET)]}


def deliveries(function: Function) -> list[dict[str, Any]]:
    """Return the durable executions that deliver reports."""
    found = asyncio.run(function.backend.client.executions())
    return [each for each in found if each["DurableExecutionName"].startswith("notice-")]


def have_ended(function: Function, count: int) -> bool:
    return [each["Status"] for each in deliveries(function)] == ["SUCCEEDED"] * count


def is_closed(function: Function, handle: Any) -> bool:
    return asyncio.run(function.backend.read(handle.execution_id)).closed is not None


def answer(handle: Any, value: Any = "yes") -> None:
    questions = asyncio.run(handle.interrupts())
    asyncio.run(handle.respond({each.interrupt_id: value for each in questions}))


def test_c37_questions_failures_and_ends_are_reported_with_what_they_are_about(make: Any, tmp_path: Path) -> None:
    with receiving() as receiver:
        function = make(**webhook(receiver))
        spec = agents.agent.spec_with(folder=str(tmp_path), script=["Done."])
        asyncio.run(function.backend.dispatch(spec, "Go", execution_id="done", tags={"tenant": "acme"}))
        function.dispatch(ask("trip"), execution_id="asks")
        function.dispatch(*FAILS, execution_id="fails")
        until(lambda: len(receiver.bodies) == 3)
        until(lambda: have_ended(function, 3))
    assert all(is_signed(*request) for request in receiver.requests)
    assert [header["Strands-Durable-Id"] for header, _ in receiver.requests] == [body["id"] for body in receiver.bodies]
    found = {body["execution_id"]: body for body in receiver.bodies}
    assert {name: body["event"] for name, body in found.items()} == {
        "done": "completed", "asks": "suspended", "fails": "failed",
    }  # fmt: skip
    assert (found["done"]["agent"], found["done"]["tags"]) == ("lambda-agent", {"tenant": "acme"})
    (question,) = found["asks"]["questions"]
    assert (question["name"], question["reason"]) == ("approve trip", {"what": "trip"})
    assert "its script has 1" in found["fails"]["error"]
    assert found["done"]["error"] is None
    assert {each.execution_id for each in asyncio.run(function.backend.list())} == {"done", "asks", "fails"}


def test_c37_a_receiver_that_fails_twice_gets_the_same_notification_again(make: Any) -> None:
    with receiving(failures=2) as receiver:
        function = make(**webhook(receiver))
        assert function.text("Done.") == "Done."
        until(lambda: receiver.bodies)
        until(lambda: have_ended(function, 1))
    assert receiver.answered == [500, 500, 204]
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 1
    assert all(is_signed(*request) for request in receiver.requests)


def test_c37_a_function_that_raises_is_called_again_and_one_that_does_not_is_not(make: Any) -> None:
    calls: Counter[str] = Counter()
    ids = set[str]()

    async def fails_once(notification: Notification) -> None:
        calls["fails"] += 1
        ids.add(notification.notification_id)
        if calls["fails"] == 1:
            raise ValueError("not yet")

    with receiving() as receiver:
        function = make(on_completed=fails_once, on_failed=pytest.fail, **webhook(receiver))
        function.text("Done.")
        until(lambda: have_ended(function, 1))
    assert calls == {"fails": 2}
    assert {body["id"] for body in receiver.bodies} == ids
    assert receiver.answered == [204]


def test_c37_a_receiver_that_is_down_holds_neither_the_result_nor_the_durable_execution(make: Any) -> None:
    with receiving(failures=1_000) as receiver:
        function = make(**webhook(receiver))
        handle = function.dispatch("Done.")
        until(lambda: receiver.requests)
        assert str(function.result(handle)).strip() == "Done."
        until(lambda: is_closed(function, handle))
        assert receiver.bodies == []
        receiver.failures = 0
        until(lambda: receiver.bodies)
        until(lambda: have_ended(function, 1))


def test_c37_an_answer_is_used_while_the_question_is_still_being_delivered(make: Any) -> None:
    with receiving(failures=1_000) as receiver:
        function = make(**webhook(receiver))
        handle = function.dispatch(ask("trip"), "Done.")
        function.result(handle)
        until(lambda: receiver.requests)
        answer(handle)
        until(lambda: is_closed(function, handle))
        assert str(function.result(handle)).strip() == "Done."
        assert receiver.bodies == []
        receiver.failures = 0
        until(lambda: have_ended(function, 2))
    assert {body["event"] for body in receiver.bodies} == {"suspended", "completed"}
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 2


@pytest.mark.parametrize(("settings", "more"), [
    ({}, 0), ({"on_failed": print}, 0), ({"on_suspended": lambda _: None}, 1),
    ({"on_suspended": lambda _: None, "on_completed": lambda _: None}, 2),
])  # fmt: skip
def test_c37_only_what_has_a_hook_costs_an_operation(make: Any, settings: Any, more: int) -> None:
    function = make(**settings)
    handle = function.dispatch(ask("trip"), "Done.")
    function.result(handle)
    answer(handle)
    until(lambda: is_closed(function, handle))
    names = [event.get("Name") for event in function.events(handle) if event["EventType"] == "StepStarted"]
    assert sum(name.startswith("start notice-") for name in names) == more
    assert [name for name in names if not name.startswith("start notice-")] == [
        "start the agent", "claimed", "model model", "tool approve", "continue", "claimed", "tool approve", "model model",
    ]  # fmt: skip
    until(lambda: have_ended(function, more))


@pytest.mark.parametrize("has_hooks", [False, True])
def test_c37_a_deployment_may_add_and_remove_hooks_while_an_execution_waits(
    aws: LocalLambda, tmp_path: Path, has_hooks: bool
) -> None:
    name, found = f"f-{uuid.uuid4().hex[:8]}", list[Notification]()
    hooked = lambda_handler(agents.agent, exits=False, on_suspended=found.append, on_completed=found.append)
    bare = lambda_handler(agents.agent, exits=False)
    function = Function(aws, aws.add(name, hooked if has_hooks else bare), tmp_path)
    handle = function.dispatch(ask("trip"), "Done.")
    function.result(handle)
    until(lambda: have_ended(function, has_hooks))
    aws.add(name, bare if has_hooks else hooked)
    answer(handle)
    until(lambda: is_closed(function, handle))
    assert str(function.result(handle)).strip() == "Done."
    until(lambda: have_ended(function, 1))
    assert [each.event for each in found] == ["suspended" if has_hooks else "completed"]


def test_c37_an_answer_that_cannot_be_used_is_no_further_event(make: Any) -> None:
    with receiving() as receiver:
        function = make(**webhook(receiver))
        handle = function.dispatch(ask("trip"), "Done.")
        function.result(handle)
        (before,) = function.open_callbacks(handle).values()
        function.aws.client().send_durable_execution_callback_success(CallbackId=before, Result=b"null")
        until(lambda: function.open_callbacks(handle) and before not in function.open_callbacks(handle).values())
        answer(handle)
        function.result(handle)
        until(lambda: have_ended(function, 2))
    assert Counter(body["event"] for body in receiver.bodies) == {"suspended": 1, "completed": 1}


def test_c37_each_failure_of_an_execution_is_reported(make: Any) -> None:
    found: list[Notification] = []
    function = make(on_failed=found.append)
    handle = function.dispatch(*FAILS)
    for count in (1, 2):
        with pytest.raises(errors.ExecutionFailedError):
            function.result(handle)
        until(lambda: is_closed(function, handle))
        until(lambda count=count: have_ended(function, count))  # type: ignore[misc]
        if count == 1:
            asyncio.run(handle.resume())
    assert len({each.notification_id for each in found}) == 2


def test_c37_an_execution_that_aws_has_ended_while_it_waited_is_reported_when_it_asks_again(make: Any) -> None:
    with receiving() as receiver:
        function = make(**webhook(receiver))
        handle = function.dispatch(ask("trip"), "Done.")
        function.result(handle)
        until(lambda: have_ended(function, 1))
        known = asyncio.run(function.backend.read("run"))
        assert asyncio.run(function.backend.resume_attempt(known)), "as resume() does after AWS's own timeout"
        until(lambda: have_ended(function, 2))
        answer(handle)
        function.result(handle)
        until(lambda: have_ended(function, 3))
    assert Counter(body["event"] for body in receiver.bodies) == {"suspended": 2, "completed": 1}
    assert len({body["id"] for body in receiver.bodies}) == 3
    assert all(body["questions"] for body in receiver.bodies if body["event"] == "suspended")


def test_c37_an_execution_in_segments_is_reported_once(tmp_path: Path) -> None:
    handlers: dict[str, Any] = {}
    with LocalLambda({"seg": lambda *given: handlers["seg"](*given)}) as aws, receiving() as receiver:
        given = {"exits": False, "boto3_client": aws.client(), "max_operations": 6, **webhook(receiver)}
        handlers["seg"] = lambda_handler(agents.agent, **given)
        function = Function(aws, aws.url("seg"), tmp_path)
        books = [{"tool": "book", "city": str(number)} for number in range(6)]
        handle = function.dispatch(*books, ask("trip"), "Done.")
        function.result(handle)
        answer(handle)
        until(lambda: is_closed(function, handle))
        assert asyncio.run(function.backend.read("run")).root.segment is not None
        until(lambda: have_ended(function, 2))
    assert Counter(body["event"] for body in receiver.bodies) == {"suspended": 1, "completed": 1}
    assert {body["execution_id"] for body in receiver.bodies} == {"run"}


def test_c37_what_is_never_taken_is_given_up_and_logged(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reports, "GIVE_UP_SECONDS", 1.0)
    monkeypatch.setattr(reports, "GIVE_UP_TRIES", 2)
    with receiving(failures=1_000) as receiver, caplog.at_level(logging.WARNING):
        function = make(**webhook(receiver))
        function.text("Done.")
        until(lambda: have_ended(function, 1))
    assert len(receiver.requests) == 2
    (given_up,) = [each.getMessage() for each in caplog.records if "given up" in each.getMessage()]
    assert "it answered 500" in given_up


def test_c37_a_day_and_ten_tries_pass_before_anything_is_given_up() -> None:
    last = next(tries for tries in range(1, 3_000) if reports.is_over(tries))
    assert last >= hooks.GIVE_UP_TRIES
    assert sum(min(hooks.MAX_DELAY_SECONDS, 2.0**count) for count in range(last - 1)) >= hooks.GIVE_UP_SECONDS
    assert 2 * last < 2_500, "a step and a wait for each fit into one durable execution"


def test_c37_a_large_reason_is_left_out(make: Any) -> None:
    with receiving() as receiver:
        function = make(**webhook(receiver))
        function.dispatch(ask("x" * 30_000), "Done.")
        until(lambda: receiver.bodies)
    (question,) = receiver.bodies[0]["questions"]
    assert question["reason"] is None


class Refusing:
    """A client of AWS Lambda that may not invoke the function."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def invoke(self, **_: Any) -> Any:
        found = {"Error": {"Code": "AccessDeniedException", "Message": "no"}, "ResponseMetadata": {}}
        raise ClientError(found, "Invoke")


def test_c37_a_function_that_may_not_invoke_itself_runs_and_logs_what_it_needs(
    aws: LocalLambda, make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_operations, "_START_TRIES", 1)
    function = make(on_completed=print, boto3_client=Refusing(aws.client()))
    handle = function.dispatch("Done.")
    assert str(function.result(handle)).strip() == "Done."
    until(lambda: is_closed(function, handle))
    (lost,) = [each.getMessage() for each in caplog.records if "notification lost" in each.getMessage()]
    assert "lambda:InvokeFunction" in lost
    assert deliveries(function) == []


def test_c37_hooks_of_a_client_are_refused_by_name(make: Any) -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="Pass the hooks to lambda_handler"):
        make().backend.notify(on_failed=print)


def test_c37_a_receiver_that_never_answers_delays_no_other_hook(make: Any) -> None:
    with silent() as first, receiving() as second:
        never = Webhook(first.url, SECRET, timeout_seconds=28)
        function = make(webhooks=[never, replace(never, events=("completed",)), Webhook(second.url, SECRET)])
        for number in range(4):
            function.dispatch("Done.", execution_id=f"trip-{number}")
        until(lambda: len(second.bodies) == 4 or first.has_lost)
        assert not first.has_lost, "its first request was given up before the others were delivered"
        assert len({body["execution_id"] for body in second.bodies}) == 4
