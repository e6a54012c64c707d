"""Interleavings on AWS Lambda: answers, clients, deploys, stops and limits that meet at the wrong moment."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from strands_durable import errors
from strands_durable._enginekit import payloads
from strands_durable._enginekit.operations import run as operation_run
from strands_durable._enginekit.operations.answers import together
from strands_durable._enginekit.payloads import PayloadStore
from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing.aws_lambda import LocalLambda
from tests.aws_lambda import agents
from tests.aws_lambda.functions import Function, apart, ask
from tests.waiting import until


class Gate:
    """A function whose invocations wait until a test lets them begin, as those that start slowly do."""

    def __init__(self, aws: LocalLambda, folder: Path, **settings: Any) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = self.dies = 0
        self.inner = lambda_handler(agents.agent, **{"stop_poll_seconds": 0.2, "exits": False, **settings})
        self.name = f"f-{uuid.uuid4().hex[:8]}"

        def handler(event: Any, context: Any) -> Any:
            self.asked += 1
            self.open.wait(60)
            if self.dies:
                self.dies -= 1
                raise RuntimeError("the process died")
            return self.inner(event, context)

        self.function = Function(aws, aws.add(self.name, handler), folder)


def questions(function: Any, handle: Any) -> list[Any]:
    found = function.result(handle).interrupts
    until(lambda: len(function.open_callbacks(handle)) >= len(found))
    return list(found)


def status(handle: Any) -> str:
    return asyncio.run(handle.status()).value


def test_the_same_answer_again_beside_a_new_one(make: Any) -> None:
    function = make()
    handle = function.dispatch([ask("paint"), ask("wood")], "Done.")
    first, second = questions(function, handle)
    asyncio.run(handle.respond({first.id: "yes"}))
    until(lambda: status(handle) == "SUSPENDED" and len(asyncio.run(handle.interrupts())) == 1)
    time.sleep(1)
    asyncio.run(handle.respond({first.id: "yes", second.id: "no"}))
    assert str(function.result(handle)).strip() == "Done."


def test_an_answer_beside_an_unusable_one_is_not_lost(aws: LocalLambda, tmp_path: Path) -> None:
    gate = Gate(aws, tmp_path)
    function = gate.function
    handle = function.dispatch(ask("paint"), "Done.")
    (question,) = questions(function, handle)
    gate.open.clear()
    callback = function.open_callbacks(handle)[question.id]
    aws.client().send_durable_execution_callback_success(CallbackId=callback, Result=b"null")
    threading.Timer(1, gate.open.set).start()
    asyncio.run(handle.respond({question.id: "yes"}))
    until(lambda: status(handle) == "COMPLETED", 10)
    (call,) = asyncio.run(handle.detail()).calls
    assert [found.answer for found in call.answers] == ["yes"]


def same(what: str) -> dict[str, str]:
    return {"tool": "approve", "what": what, "tool_use_id": "same"}


def test_baseline_the_same_question_twice(make: Any) -> None:
    function = make()
    handle = function.dispatch(same("paint"), same("paint"), "Done.")
    (question,) = questions(function, handle)
    asyncio.run(handle.respond({question.id: "first"}))
    until(lambda: function.count(handle, "CallbackStarted") == 2, 10)
    (again,) = questions(function, handle)
    assert again.id == question.id
    asyncio.run(handle.respond({question.id: "second"}))
    assert str(function.result(handle)).strip() == "Done."
    results = [
        str(step.result) for step in asyncio.run(handle.steps()) if step.name == "approve" and step.status == "done"
    ]
    assert "first" in results[0]
    assert "second" in results[1]


def test_a_refused_function_uses_an_answer_once(aws: LocalLambda, tmp_path: Path) -> None:
    from strands_durable.testing.agents import contract_agent

    name = f"f-{uuid.uuid4().hex[:8]}"
    good = lambda_handler(agents.agent, exits=False)
    function = Function(aws, aws.add(name, good), tmp_path)
    handle = function.dispatch(same("paint"), same("paint"), "Done.")
    (question,) = questions(function, handle)
    aws.add(name, lambda_handler(contract_agent, exits=False))
    asyncio.run(handle.respond({question.id: "first"}))
    until(lambda: asyncio.run(handle.detail()).execution.note)
    aws.add(name, good)
    until(lambda: function.names().count("model") >= 2, 20)
    time.sleep(3)
    asked = [event for event in function.events(handle) if event["EventType"] == "CallbackStarted"]
    asked = [event for event in asked if event["Name"].startswith("answer")]
    assert len(asked) == 2, "the second question was answered by the answer to the first"
    assert status(handle) == "SUSPENDED"


@pytest.mark.parametrize("which", [0, 1])
def test_two_clients_answer_and_none_is_told_a_lie(aws: LocalLambda, tmp_path: Path, which: int) -> None:
    """Client 1 answers both (its first callback got through), client 2 answers the other one: its answer was accepted."""
    gate = Gate(aws, tmp_path)
    function = gate.function
    handle = function.dispatch([ask("paint"), ask("wood")], "Done.")
    found = questions(function, handle)
    one, other = found[which], found[1 - which]
    gate.open.clear()
    open_ = function.open_callbacks(handle)
    client = aws.client()
    # both clients have read the history; client 2's answer is accepted by AWS first, client 1's callback of `one` after it
    client.send_durable_execution_callback_success(
        CallbackId=open_[other.id], Result=together({other.id: "client 2"}, "two").encode()
    )
    client.send_durable_execution_callback_success(
        CallbackId=open_[one.id], Result=together({one.id: "client 1", other.id: "client 1"}, "one").encode()
    )
    gate.dies = 1  # the invocation that the first answer woke dies, the next one sees both
    gate.open.set()
    assert str(function.result(handle)).strip() == "Done."
    (call,) = asyncio.run(handle.detail()).calls
    given = {a.interrupt_id if hasattr(a, "interrupt_id") else a.name: (a.answer, a.by) for a in call.answers}
    print(given)
    assert sorted(a.answer for a in call.answers) == ["client 1", "client 2"], given


def drifted(aws: LocalLambda, tmp_path: Path) -> tuple[Any, Any, str]:
    from strands_durable.testing.agents import contract_agent

    name = f"f-{uuid.uuid4().hex[:8]}"
    function = Function(aws, aws.add(name, lambda_handler(contract_agent)), tmp_path)
    handle = function.dispatch({"tool": "book", "city": "Rome"}, "Done.")
    until(lambda: asyncio.run(handle.detail()).execution.note)
    aws.add(name, lambda_handler(agents.agent, exits=False))
    return function, handle, name


def test_a_cancel_is_not_undone_by_another_client_that_accepts_drift(aws: LocalLambda, tmp_path: Path) -> None:
    function, handle, _ = drifted(aws, tmp_path)
    known = asyncio.run(function.backend.read("run"))  # the other client has read it
    asyncio.run(handle.cancel())
    assert status(handle) == "CANCELLED"
    asyncio.run(handle._resumed(known))
    time.sleep(2)
    assert status(handle) == "CANCELLED"
    assert function.names() == []


def test_two_clients_accept_drift_and_no_running_attempt_is_stopped(aws: LocalLambda, tmp_path: Path) -> None:
    from strands_durable.testing.agents import contract_agent

    name = f"f-{uuid.uuid4().hex[:8]}"
    function = Function(aws, aws.add(name, lambda_handler(contract_agent)), tmp_path)
    handle = function.dispatch({"tool": "work", "seconds": 4}, "Done.", in_doubt="fail")
    until(lambda: asyncio.run(handle.detail()).execution.note)
    aws.add(name, lambda_handler(agents.agent, exits=False, stop_poll_seconds=0.2))
    known = asyncio.run(function.backend.read("run"))  # the second client has read it
    asyncio.run(handle.resume(accept_drift=True))
    until(lambda: "work" in function.names())
    assert not asyncio.run(handle._resumed(known)), "it looks again"
    assert str(function.result(handle)).strip() == "Done."
    steps = [step for step in asyncio.run(handle.steps()) if step.name == "work"]
    assert "worked" in str(steps[-1].result), "a step that ran well is in doubt"


# Segments


@pytest.fixture
def make_long(tmp_path: Path) -> Any:
    """A function in threads, known to the runner, so that it can be invoked by itself."""
    handlers: dict[str, Any] = {}
    with LocalLambda({"seg": lambda event, context: handlers["seg"](event, context)}) as found:

        def made(**settings: Any) -> Function:
            given = {"stop_poll_seconds": 0.2, "exits": False, "boto3_client": found.client(), **settings}
            handlers["seg"] = lambda_handler(agents.agent, **given)
            return Function(found, found.url("seg"), tmp_path)

        yield made


def long_script(count: int) -> list[Any]:
    return [{"tool": "book", "city": str(number)} for number in range(count)]


def test_a_continued_execution_that_is_cancelled_slowly_is_cancelled(make_long: Any, monkeypatch: Any) -> None:
    """AWS invokes the root as soon as the segment was stopped, before the client has stopped the root."""
    function = make_long(max_operations=9)
    handle = function.dispatch(*long_script(9), {"tool": "work", "seconds": 20}, "Done.")
    until(lambda: "work" in function.names(), 30)
    stop = function.backend.client.stop

    async def slowly(*given: Any) -> None:
        await stop(*given)
        await asyncio.sleep(1.5)

    monkeypatch.setattr(function.backend.client, "stop", slowly)
    asyncio.run(handle.cancel())
    assert status(handle) == "CANCELLED"


def test_no_segment_runs_on_after_a_cancel(make_long: Any, monkeypatch: Any) -> None:
    """Between the client's look and its stop, the root has gone on to the next segment."""
    function = make_long(max_operations=10)
    function.dispatch(*[{"tool": "work", "seconds": 0.8} for _ in range(20)], "Done.")
    read = function.backend.read
    until(lambda: asyncio.run(read("run")).root.segment, 30)

    async def stale(execution_id: str) -> Any:
        found = await read(execution_id)
        while True:
            now = await read(execution_id)
            if now.log.name != found.log.name:
                return found
            await asyncio.sleep(0.05)

    with monkeypatch.context() as patch:
        patch.setattr(function.backend, "read", stale)
        asyncio.run(function.backend.ask_to_stop("run"))
    time.sleep(1)
    before = len(function.names())
    time.sleep(4)
    assert len(function.names()) == before, "it still works after it was cancelled"


def test_an_execution_that_is_too_large_to_be_continued_says_what_to_do(make_long: Any) -> None:
    function = make_long(max_operations=25, hard_operations=28)
    handle = function.dispatch({"tool": "large", "size": 3_000_000}, *long_script(10), "Done.")
    with pytest.raises(errors.ExecutionFailedError, match="payloads="):
        function.result(handle)


def test_an_execution_that_is_too_large_to_be_resumed_says_what_to_do(make: Any, tmp_path: Path) -> None:
    function = make()
    handle = function.dispatch(
        {"tool": "large", "size": 3_000_000}, {"tool": "block", "seconds": 0}, "Done.", max_attempts=1
    )
    (tmp_path / "throttled").write_text("0")
    until(lambda: "large" in function.names())
    (tmp_path / "throttled").write_text("1")
    with pytest.raises(errors.ExecutionFailedError):
        function.result(handle)
    with pytest.raises(errors.PayloadTooLargeError, match="payloads="):
        asyncio.run(handle.resume())


def test_an_answer_to_a_callback_of_the_root_is_not_lost_at_a_segment_boundary(make_long: Any) -> None:
    asked: list[Any] = []
    function = make_long(max_operations=11, notify=lambda callback, about: asked.append((about["name"], callback)))
    handle = function.dispatch([ask("paint"), ask("wood")], "Done.")
    until(lambda: len(asked) == 2)
    first, second = asked
    client = function.aws.client()
    client.send_durable_execution_callback_success(CallbackId=first[1], Result=b'"yes"')
    until(lambda: len(asyncio.run(handle.interrupts())) == 1, 20)
    assert function.count(handle, "ChainedInvokeStarted") == 0, "a further one would not hear of this callback"
    client.send_durable_execution_callback_success(CallbackId=second[1], Result=b'"yes"')  # the mail has this callback
    until(lambda: status(handle) == "COMPLETED", 10)


def test_a_question_that_is_open_when_aws_would_end_the_execution_is_asked_again(make_long: Any) -> None:
    asked: list[Any] = []
    settings = {"max_operations": 9, "hard_operations": 9}
    function = make_long(**settings, notify=lambda callback, about: asked.append((about["name"], callback)))
    handle = function.dispatch([ask("paint"), ask("wood")], "Done.")
    until(lambda: len(asked) == 2)
    client = function.aws.client()
    client.send_durable_execution_callback_success(CallbackId=asked[0][1], Result=b'"yes"')
    until(lambda: len(asked) == 3, 20)
    assert function.count(handle, "ChainedInvokeStarted") >= 1
    assert asked[2][0] == asked[1][0]
    assert asked[2][1] != asked[1][1], "the one that continues it has a callback of its own"
    client.send_durable_execution_callback_success(CallbackId=asked[2][1], Result=b'"yes"')
    assert str(function.result(handle)).strip() == "Done."


def test_steps_inside_a_tool_do_not_exceed_the_operations(make_long: Any) -> None:
    function = make_long(max_operations=12, hard_operations=14)
    handle = function.dispatch({"tool": "many", "count": 60}, "Done.")
    assert str(function.result(handle)).strip() == "Done."
    assert function.count(handle, "StepSucceeded") < 30, "AWS ends an execution at 3,000 operations"


# Sizes and names


def sizes(function: Any, handle: Any) -> int:
    return max(
        len(event["StepSucceededDetails"]["Result"]["Payload"])
        for event in function.events(handle)
        if event["EventType"] == "StepSucceeded"
    )


def test_many_questions_fit_into_a_step(make: Any) -> None:
    function = make()
    handle = function.dispatch([ask(f"{number} " + uuid.uuid4().hex * 500) for number in range(16)], "Done.")
    questions(function, handle)
    assert sizes(function, handle) < 262_144


def test_a_long_error_fits_into_a_step(make: Any) -> None:
    function = make()
    handle = function.dispatch("long-error", "Done.")
    with pytest.raises(errors.ExecutionFailedError):
        function.result(handle)
    assert sizes(function, handle) < 262_144


def test_a_question_whose_id_is_not_ascii_can_be_answered(make: Any) -> None:
    function = make()
    handle = function.dispatch({"tool": "approve", "what": "paint", "tool_use_id": "prüf-1"}, "Done.")
    assert function.result(handle).interrupts
    (question,) = questions(function, handle)
    asyncio.run(handle.respond({question.id: "yes"}))
    assert str(function.result(handle)).strip() == "Done."


# Stores that fail


def test_a_store_that_cannot_be_read_for_a_moment_is_not_a_failure(
    aws: LocalLambda, tmp_path: Path, monkeypatch: Any
) -> None:
    store = f"file://{tmp_path}/payloads"
    gate = Gate(aws, tmp_path, payloads=store)
    function = Function(aws, f"{gate.function.url}&payloads={store}", tmp_path)
    handle = function.dispatch({"tool": "large", "size": 700_000}, ask("paint"), "Done.")
    (question,) = questions(function, handle)
    get, failed = PayloadStore._get, []

    def flaky(self: Any, digest: str) -> bytes:
        import traceback

        if not failed and any(
            frame.filename.endswith("_enginekit/operations/run.py") for frame in traceback.extract_stack()
        ):
            failed.append(1)
            raise errors.BackendUnavailableError(store, "throttled")
        return get(self, digest)

    monkeypatch.setattr(PayloadStore, "_get", flaky)
    asyncio.run(handle.respond({question.id: "yes"}))
    until(lambda: status(handle) in ("COMPLETED", "FAILED"), 20)
    assert failed
    assert status(handle) == "COMPLETED"


def test_a_store_that_cannot_be_written_for_a_moment_is_not_a_failure(
    make: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    store = f"file://{tmp_path}/payloads"
    function = make(payloads=store)
    function = Function(function.aws, f"{function.url}&payloads={store}", tmp_path)
    put, failed = payloads._write_whole, []

    def flaky(path: Path, data: bytes) -> None:
        if not failed and len(data) > 100_000:
            failed.append(1)
            raise OSError("SlowDown: please reduce your request rate")
        put(path, data)

    monkeypatch.setattr(payloads, "_write_whole", flaky)
    handle = function.dispatch({"tool": "large", "size": 700_000}, "Done.")
    until(lambda: status(handle) in ("COMPLETED", "FAILED"), 20)
    assert failed
    assert status(handle) == "COMPLETED"


# Time, threads, hooks


def test_an_agent_that_is_built_slowly_makes_progress(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("1.2")
    with apart(tmp_path, timeout_seconds=6) as function:
        handle = function.dispatch("Done.")
        until(lambda: status(handle) == "COMPLETED" or function.count(handle, "WaitStarted") > 4, 60)
        print([e.get("Name") for e in function.events(handle) if e["EventType"].endswith("Started")])
        assert status(handle) == "COMPLETED"


def test_a_hook_that_cannot_notify_does_not_end_the_execution(make: Any) -> None:
    def notify(callback: str, about: Any) -> None:
        raise RuntimeError("no mail today")

    function = make(notify=notify)
    handle = function.dispatch(ask("paint"), "Done.")
    (question,) = questions(function, handle)
    until(lambda: function.count(handle, "StepFailed") >= 1, 60)  # it was tried three times
    asyncio.run(handle.respond({question.id: "yes"}))
    assert str(function.result(handle)).strip() == "Done."


def test_a_thread_that_is_left_behind_ends_before_a_suspension(make: Any, monkeypatch: Any) -> None:
    exits: list[int] = []

    class Exited(BaseException): ...

    def exit_(code: int) -> None:
        exits.append(code)

    monkeypatch.setattr(operation_run.os, "_exit", exit_)
    function = make(exits=True)
    handle = function.dispatch([{"tool": "block", "seconds": 20}, ask("paint")], "Done.", in_doubt="ask", timeout=0.5)
    until(lambda: status(handle) == "SUSPENDED", 20)
    until(lambda: exits or "blocked" in function.names())
    assert "blocked" not in function.names()
    assert exits, "the thread of the tool goes on when AWS thaws the process for another execution"


def test_a_late_answer_to_an_old_callback_does_not_hide_the_new_question(make: Any) -> None:
    """A client answers two questions: the function uses both answers with the first callback, and asks one again."""
    function = make()
    handle = function.dispatch([ask("paint"), same("wood")], same("wood"), "Done.")
    paint, wood = questions(function, handle)
    old = function.open_callbacks(handle)
    client = function.aws.client()
    given = together({paint.id: "yes", wood.id: "first"}, "me").encode()
    client.send_durable_execution_callback_success(CallbackId=old[paint.id], Result=given)
    until(lambda: function.count(handle, "CallbackStarted") == 3, 20)
    client.send_durable_execution_callback_success(
        CallbackId=old[wood.id], Result=given
    )  # the second call of that client
    time.sleep(1)
    assert status(handle) == "SUSPENDED"
    assert [found.id for found in asyncio.run(handle.interrupts())] == [wood.id]
    asyncio.run(handle.respond({wood.id: "second"}))
    assert str(function.result(handle, 10)).strip() == "Done."


def test_an_id_whose_first_attempt_aws_has_forgotten_is_not_started_again(
    make: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    function = make()
    (tmp_path / "throttled").write_text("1")
    script = [{"tool": "book", "city": "Rome"}, ask("paint"), "Done."]
    handle = function.dispatch(*script, max_attempts=1)
    with pytest.raises(errors.ExecutionFailedError):
        function.result(handle)
    asyncio.run(handle.resume())
    questions(function, handle)
    # the retention of the failed attempt is over: AWS does not list it any more and takes its name again
    later = Function(function.aws, function.url, tmp_path)
    find = later.backend.client.find

    async def forgotten(name: str) -> Any:
        return None if name == "run--1" else await find(name)

    monkeypatch.setattr(later.backend.client, "find", forgotten)
    assert asyncio.run(later.backend.get("run"))


def test_an_execution_that_cannot_be_read_here_waits(aws: LocalLambda, tmp_path: Path, monkeypatch: Any) -> None:
    """What the runner puts aside is tried again and again, without a pause."""
    from strands_durable._dispatch import runner

    gate = Gate(aws, tmp_path)

    async def unreadable(*_: Any) -> None:
        raise errors.TypeNotRegisteredError("LambdaMoney", [])

    monkeypatch.setattr(runner.ExecutionRunner, "_call", unreadable)
    handle = gate.function.dispatch("Done.")
    time.sleep(4)
    count = gate.function.count(handle, "StepSucceeded")
    asyncio.run(handle.cancel())
    assert count < 15, f"{count} operations in 4 seconds"


def test_an_invocation_state_that_cannot_be_read_here_is_refused_not_failed(aws: LocalLambda, tmp_path: Path) -> None:
    from dataclasses import dataclass

    from strands_durable import register_type
    from strands_durable._records import registered_types

    @dataclass
    class LambdaMoney:
        amount: int

    register_type(LambdaMoney, name="LambdaMoney")
    gate = Gate(aws, tmp_path)
    gate.open.clear()
    spec = agents.agent.spec_with(folder=str(tmp_path), script=["Done."])
    handle = asyncio.run(
        gate.function.backend.dispatch(spec, "Go", execution_id="run", invocation_state={"m": LambdaMoney(3)})
    )
    kept = registered_types._by_name.pop("LambdaMoney")
    gate.open.set()
    time.sleep(3)
    registered_types._by_name["LambdaMoney"] = kept
    assert status(handle) in ("PENDING", "RUNNING", "COMPLETED"), "a new version with the type could have run it"


class Died(BaseException): ...


def test_kills_at_every_operation_with_pieces_and_questions(aws: LocalLambda, tmp_path: Path) -> None:
    """Each invocation fails at one point: between pieces, between callbacks, before and after each operation."""
    from collections import Counter

    from strands_durable._records import crash_points

    script = [{"tool": "large", "size": 700_000}, [ask("paint"), ask("wood"), {"tool": "work", "seconds": 0}], "Done."]
    seen: list[str] = []
    state: dict[str, Any] = {"mine": None, "counts": Counter()}

    def listen(name: str) -> None:
        if name.startswith(("operation:", "callback:")):
            state["counts"][name] += 1
            point = f"{name}@{state['counts'][name]}"
            seen.append(point)
            if point == state["mine"]:
                state["mine"] = None
                raise Died

    def run(number: int, mine: str | None) -> list[str]:
        folder = tmp_path / str(number)
        folder.mkdir()
        gate = Gate(aws, folder)
        state.update(mine=mine, counts=Counter())
        function = gate.function
        crash_points.listen(listen)
        try:
            handle = function.dispatch(*script, execution_id=f"r{number}", in_doubt="fail")
            first, second = questions(function, handle)
            asyncio.run(handle.respond({second.id: "b"}))
            until(
                lambda: (
                    [q.id for q in asyncio.run(handle.interrupts())] == [first.id] and status(handle) == "SUSPENDED"
                ),
                30,
            )
            asyncio.run(handle.respond({first.id: "a"}))
            assert str(function.result(handle, 30)).strip() == "Done."
        finally:
            crash_points.listen(None)
        (call,) = asyncio.run(handle.detail()).calls
        assert {a.interrupt_id: a.answer for a in call.answers} == {first.id: "a", second.id: "b"}
        return function.names()

    whole = run(0, None)
    points = sorted(set(seen))
    print(len(points), points, whole)
    bad = []
    for number, point in enumerate(points, 1):
        try:
            names = run(number, point)
        except BaseException as error:
            bad.append((point, repr(error)[:200]))
            continue
        print(point, names)
        if names.count("work") > 1:
            bad.append((point, names))
    assert not bad, bad
