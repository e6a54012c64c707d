"""C53 to C56 on AWS Lambda: what its durable executions hold, wrong keys, changed results, new keys, and kills."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from strands import Agent, ToolContext, tool

from strands_durable import Cipher, ExecutionHandle, ExecutionStatus, durable_agent, errors
from strands_durable._records.cipher_setting import KEYS_VARIABLE
from strands_durable.backends.aws_lambda import LambdaBackend, LambdaDurability, lambda_handler
from strands_durable.testing import ScriptedModel, agents, call
from strands_durable.testing import aws_lambda as local
from strands_durable.testing.aws_lambda import LocalLambda
from strands_durable.testing.contract._bench import BOOK
from tests.aws_lambda.agents import ledger
from tests.aws_lambda.functions import apart
from tests.readable import is_readable
from tests.waiting import until

S = ExecutionStatus
SECRET = "Marzipan"
PATIENCE = 60.0
K1 = "k1=" + base64.b64encode(bytes([1]) * 32).decode()


def keys(**given: int) -> Cipher:
    return Cipher({key_id: bytes([number]) * 32 for key_id, number in given.items()}, current=next(iter(given)))


@tool(context=True)
def order(what: str, size: int, tool_context: ToolContext) -> str:
    """Order something that a person allows."""
    tool_context.agent.state.set("sweet", f"{SECRET} in state")
    answer = tool_context.interrupt("allowed", reason=f"{SECRET} asked")
    return f"{what} {answer} {SECRET} {secrets.token_hex(size // 2)}"


@tool
def refuse(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"{SECRET} refused {what}")


@durable_agent(name="lambda-encrypted")
def planner(flavour: str = "", fails: str = "", size: int = 10) -> Agent:
    script = [call("refuse", what=SECRET), call("order", what=f"{SECRET} input", size=size), f"{SECRET} answer"]
    model = ScriptedModel(_failing(fails) if fails else script)
    return Agent(model=model, tools=[order, refuse], system_prompt=f"{SECRET} system", callback_handler=None)


def _failing(until_there: str) -> Callable[[int, list[Any]], str]:
    def fail(turn: int, messages: list[Any]) -> str:
        if not Path(until_there).exists():
            raise RuntimeError(f"{SECRET} failure")
        return f"{SECRET} at last"

    return fail


class Recorded:
    """Everything that reached AWS: each request, and what the function returned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: list[bytes] = []
        request, called = local._request, local._called

        def recording(port: int, method: str, path: str, body: bytes, headers: Any = None) -> Any:
            found = request(port, method, path, body, headers)
            self.bodies += [path.encode(), body, found[2]]
            return found

        def returning(handler: Any, body: bytes, context: Any) -> Any:
            found = called(handler, body, context)
            self.bodies += [body, found[1]]
            return found

        monkeypatch.setattr(local, "_request", recording)
        monkeypatch.setattr(local, "_called", returning)

    def until_returned(self) -> None:
        """Wait until the function has returned the result of an execution, which is recorded after its last step."""
        begin = rb'{"Status": "SUCCEEDED", "Result": "{\"execution_id\": \"run\"'
        until(lambda: any(body.startswith(begin) for body in list(self.bodies)), PATIENCE)

    def readable(self, word: str = SECRET) -> list[bytes]:
        """Return the beginning of each body in which a word can be read."""
        return [body[:300] for body in {*self.bodies} if is_readable(word, body)]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


class Function:
    """A function with a cipher, or without, in threads of this process."""

    def __init__(self, aws: LocalLambda, cipher: Cipher | None, **settings: Any) -> None:
        self.aws, self.name, self._settings = aws, f"sealed-{uuid.uuid4().hex[:8]}", settings
        self.deploy(cipher)
        self.backend = LambdaBackend(self.url, cipher=cipher)

    @property
    def url(self) -> str:
        payloads = self._settings.get("payloads")
        return self.aws.url(self.name, **({"payloads": quote(payloads)} if payloads else {}))

    def deploy(self, cipher: Cipher | None) -> None:
        given = {"stop_poll_seconds": 0.2, "exits": False, **self._settings, "cipher": cipher}
        self.aws.add(self.name, lambda_handler(planner, agents.contract_agent, **given))

    def dispatch(self, prompt: str = f"{SECRET} prompt", execution_id: str = "run", **given: Any) -> ExecutionHandle:
        spec = planner.spec_with(flavour=f"{SECRET} flavour", **given)
        return asyncio.run(self.backend.dispatch(spec, prompt, execution_id=execution_id, tags={"tenant": "acme"}))

    def ordered(self, **given: Any) -> str:
        """Run the agent to its end, through a question."""
        handle = self.dispatch(**given)
        (asked,) = asyncio.run(handle.result(PATIENCE)).interrupts
        assert asked.reason == f"{SECRET} asked"
        asyncio.run(handle.respond({asked.id: f"{SECRET} allowed"}))
        return str(asyncio.run(handle.result(PATIENCE))).strip()

    def with_(self, cipher: Cipher | None) -> LambdaBackend:
        return LambdaBackend(self.url, cipher=cipher)


@pytest.mark.parametrize("place", ["in pieces", "in a folder"])
def test_c53_nothing_is_readable_of_what_reaches_aws(
    aws: LocalLambda, recorded: Recorded, tmp_path: Path, place: str
) -> None:
    told, notified = list[Any](), list[Any]()

    def take(notification: Any) -> None:
        notified.append(notification)
        if len(notified) == 1:
            raise RuntimeError(f"{SECRET} receiver failed")

    def tell(callback_id: str, about: dict[str, Any]) -> None:
        told.append(about)
        if len(told) == 1:
            raise RuntimeError(f"{SECRET} hook failed")

    settings: dict[str, Any] = {"on_suspended": take, "on_completed": take, "on_failed": take, "notify": tell}
    folder = tmp_path / "payloads"
    if place == "in a folder":
        settings["payloads"] = f"file://{folder}"
    function = Function(aws, keys(k1=1), **settings)
    assert function.ordered(size=1_000_000) == f"{SECRET} answer"
    failing = function.dispatch(execution_id="failing", fails=str(tmp_path / "fixed"))
    with pytest.raises(errors.ExecutionFailedError, match=f"{SECRET} failure"):
        asyncio.run(failing.result(PATIENCE))
    (tmp_path / "fixed").touch()
    asyncio.run(failing.resume())
    assert str(asyncio.run(failing.result(PATIENCE))).strip() == f"{SECRET} at last"
    until(lambda: {each.event for each in notified} == {"suspended", "failed", "completed"}, PATIENCE)
    assert f"{SECRET} asked" in str([each.questions for each in notified])
    assert [each["reason"] for each in told] == [f"{SECRET} asked"] * 2, "the hook was called again after its error"
    detail = asyncio.run(asyncio.run(function.backend.get("run")).detail())
    assert SECRET in str([step.result for step in detail.steps])
    recorded.until_returned()
    assert any(b"large batch" in body for body in recorded.bodies) == (place == "in pieces")
    assert recorded.readable() == []
    stored = list(folder.iterdir()) if folder.exists() else []
    assert bool(stored) == (place == "in a folder")
    assert [path.name for path in stored if is_readable(SECRET, path.read_bytes())] == []


def test_c53_the_search_finds_what_is_recorded_in_plain_text(aws: LocalLambda, recorded: Recorded) -> None:
    function = Function(aws, None)
    assert function.ordered() == f"{SECRET} answer"
    recorded.until_returned()
    found = b"\n".join(recorded.readable()).decode("utf-8", "replace")
    assert '"ExecutionName"' in found, "the input of the function"
    assert '"CheckpointToken"' in found, "the results of its steps"
    assert '"Status": "SUCCEEDED"' in found, "what it returns"


def test_c53_lists_show_ids_statuses_and_times_without_a_key(aws: LocalLambda, tmp_path: Path) -> None:
    function = Function(aws, keys(k1=1))
    function.ordered(execution_id="ended")
    asyncio.run(function.dispatch(execution_id="asking").result(PATIENCE))
    with pytest.raises(errors.ExecutionFailedError):
        asyncio.run(function.dispatch(execution_id="failed", fails=str(tmp_path / "never")).result(PATIENCE))
    expected = {"ended": S.COMPLETED, "asking": S.SUSPENDED, "failed": S.FAILED}
    assert {each.execution_id: each.status for each in asyncio.run(function.backend.list())} == expected
    for wrong in (None, keys(k1=9)):
        found = asyncio.run(function.with_(wrong).list())
        assert {each.execution_id: each.status for each in found} == expected
        assert {each.agent for each in found} == {"lambda-encrypted"}
        assert all(each.created_at and each.updated_at >= each.created_at for each in found)
        assert all("k1" in str(each.note) and not each.tags for each in found)


def test_c54_a_function_without_the_key_waits_and_fails_nothing(aws: LocalLambda) -> None:
    for wrong in (None, keys(k1=9), keys(k2=2)):
        function = Function(aws, wrong)
        function.backend = function.with_(keys(k1=1))
        handle = function.dispatch()
        until(lambda function=function: "k1" in str(asyncio.run(function.backend.presence("run")).note), PATIENCE)
        assert asyncio.run(handle.status()) is S.PENDING
        function.deploy(keys(k1=1))
        (asked,) = asyncio.run(handle.result(PATIENCE)).interrupts
        function.deploy(wrong)
        asyncio.run(handle.respond({asked.id: f"{SECRET} allowed"}))
        until(lambda function=function: "k1" in str(asyncio.run(function.backend.presence("run")).note), PATIENCE)
        function.deploy(keys(k1=1))
        assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"
        steps = asyncio.run(handle.steps())
        assert [step.name for step in steps if step.kind == "tool"] == ["refuse", "order", "order"]
        assert f"{SECRET} allowed" in str(steps[-2].result)


def test_c54_answers_and_prompts_may_be_given_with_the_tools_of_aws(aws: LocalLambda, recorded: Recorded) -> None:
    """They are in AWS as they were given; what the function makes of them is encrypted."""
    function = Function(aws, keys(k1=1))
    event = {"prompt": "Nougat", "execution_id": "own"}
    given = {"FunctionName": function.name, "Qualifier": "$LATEST", "Payload": json.dumps(event).encode()}
    aws.client().invoke(InvocationType="Event", DurableExecutionName="own--1", **given)
    until(lambda: is_asking(function, "own"), PATIENCE)
    ((question, callback_id),) = asyncio.run(function.backend.read("own")).log.callbacks.open.items()
    aws.client().send_durable_execution_callback_success(CallbackId=callback_id, Result=b'"yes"')
    handle = asyncio.run(function.backend.get("own"))
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"
    assert asyncio.run(handle.detail()).calls[0].input == "Nougat"
    assert question
    assert recorded.readable() == []
    with pytest.raises(errors.CipherError):
        asyncio.run(function.with_(None).read("own"))


def is_asking(function: Function, execution_id: str) -> bool:
    try:
        return bool(asyncio.run(function.backend.read(execution_id)).log.callbacks.open)
    except errors.ExecutionNotFoundError:
        return False


def test_c54_what_began_in_plain_text_is_read_with_a_cipher_and_continues_encrypted(
    aws: LocalLambda, recorded: Recorded
) -> None:
    function = Function(aws, None)
    handle = function.dispatch()
    (asked,) = asyncio.run(handle.result(PATIENCE)).interrupts
    function.deploy(keys(k1=1))
    function.backend = function.with_(keys(k1=1))
    recorded.bodies.clear()
    handle = asyncio.run(function.backend.get("run"))
    asyncio.run(handle.respond({asked.id: "Nougat allowed"}))
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"
    assert "Nougat allowed" in str(asyncio.run(handle.steps()))
    assert recorded.readable("Nougat") == []


def test_c55_changed_exchanged_and_plain_results_are_noticed(aws: LocalLambda) -> None:
    function = Function(aws, keys(k1=1))
    function.ordered()
    events = _events(function, "run")
    messages = [event["StepSucceededDetails"]["Result"] for event in events if _rows(event)]
    first, second = json.loads(messages[0]["Payload"]), json.loads(messages[1]["Payload"])
    good = second["rows"]["packed"]
    data = bytearray(base64.b64decode(good))
    for place in (0, 1, 3, 20, 70, len(data) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        second["rows"]["packed"] = base64.b64encode(changed).decode()
        messages[1]["Payload"] = json.dumps(second)
        with pytest.raises(errors.CipherError):
            _reread(function, events)
    messages[1]["Payload"] = json.dumps({**second, "rows": first["rows"]})
    with pytest.raises(errors.CipherError, match="batch 1 of execution 'run' is not what was encrypted"):
        _reread(function, events)
    messages[1]["Payload"] = json.dumps({**second, "rows": {"format": 6, "tables": {}}})
    with pytest.raises(errors.CipherError, match="in plain text, and what was recorded before it is encrypted"):
        _reread(function, events)
    second["rows"]["packed"] = good
    messages[1]["Payload"] = json.dumps(second)
    assert _reread(function, events)


def _rows(event: dict[str, Any]) -> bool:
    found = event.get("StepSucceededDetails") or {}
    return event.get("SubType") == "strands-durable" and '"packed"' in str(found)


def _events(function: Function, execution_id: str) -> list[dict[str, Any]]:
    arn = asyncio.run(function.backend.read(execution_id)).root.name
    pages = function.aws.client().get_paginator("get_durable_execution_history")
    given = {"DurableExecutionArn": arn, "IncludeExecutionData": True, "PaginationConfig": {"PageSize": 1000}}
    return [event for page in pages.paginate(**given) for event in page["Events"]]


def _reread(function: Function, events: list[dict[str, Any]]) -> Any:
    """Return the rows of a history."""
    from strands_durable.backends.aws_lambda._history import EventLog

    log = EventLog("arn", function.backend.payload_store)
    for event in events:
        log._add(event)
    return log.rows


def test_c56_a_new_key_beside_the_old_one(aws: LocalLambda) -> None:
    function = Function(aws, keys(k1=1))
    handle = function.dispatch()
    (asked,) = asyncio.run(handle.result(PATIENCE)).interrupts
    both = keys(k2=2, k1=1)
    function.deploy(both)
    function.backend = function.with_(both)
    handle = asyncio.run(function.backend.get("run"))
    asyncio.run(handle.respond({asked.id: f"{SECRET} allowed"}))
    assert str(asyncio.run(handle.result(PATIENCE))).strip() == f"{SECRET} answer"
    for lacking in (keys(k1=1), keys(k2=2)):
        with pytest.raises(errors.CipherError, match="which the cipher does not have"):
            asyncio.run(function.with_(lacking).read("run"))
    with pytest.raises(errors.UnsupportedFeatureError, match="cannot be changed"):
        asyncio.run(function.backend.rekey())


def test_c53_a_full_log_is_continued_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Recorded
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, K1)
    booked = [f"{SECRET} {number}" for number in range(5)]
    with apart(tmp_path, max_operations=4) as function:
        script = [{"tool": "book", "city": city} for city in booked]
        assert function.text(*script, f"{SECRET} it is.", prompt=SECRET) == f"{SECRET} it is."
        assert [name for name in function.names() if name != "model"] == [f"book {city}" for city in booked]
    assert any(b"segment 1" in body for body in recorded.bodies)
    assert recorded.readable() == []


def test_c53_inside_a_handler_of_a_users_own_everything_of_the_agent_is_encrypted(
    aws: LocalLambda, recorded: Recorded, tmp_path: Path
) -> None:
    @durable_execution
    def handler(event: Any, context: DurableContext) -> str:
        inner = LambdaDurability(context, cipher=keys(k1=1))
        script = [{**BOOK, "city": SECRET}, f"{SECRET} it is."]
        result = inner.invoke(agents.contract_agent, f"{SECRET} prompt", folder=str(tmp_path), script=script)
        (tmp_path / "result").write_text(str(result))
        return "done"

    name = f"own-{uuid.uuid4().hex[:8]}"
    aws.add(name, handler)
    given = {"FunctionName": name, "Qualifier": "$LATEST", "Payload": b"{}"}
    aws.client().invoke(InvocationType="Event", DurableExecutionName="own", **given)
    until(lambda: (tmp_path / "result").exists(), PATIENCE)
    assert (tmp_path / "result").read_text() == f"{SECRET} it is.\n"
    assert recorded.readable() == []


def test_c53_a_killed_invocation_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Recorded
) -> None:
    """The keys come from the environment, as for a function that AWS deploys."""
    monkeypatch.setenv(KEYS_VARIABLE, K1)
    with apart(tmp_path) as function:
        handle = function.dispatch(
            {"tool": "book", "city": SECRET}, {"tool": "work", "seconds": 2}, f"{SECRET} it is.", prompt=SECRET
        )
        until(lambda: "work" in function.names(), PATIENCE)
        os.kill(ledger(tmp_path)[-1]["pid"], signal.SIGKILL)
        assert str(function.result(handle)).strip() == f"{SECRET} it is."
        assert function.names().count(f"book {SECRET}") == 1
        assert function.names().count("work") == 2
    assert recorded.readable() == []
