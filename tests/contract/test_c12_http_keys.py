"""C12: `http_request` sends the idempotency key of its step, so that a server can recognize a request that is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import strands
import strands_tools.http_request
from strands import Agent
from strands.vended_tools import http_request, make_http_request

from strands_durable import Durability
from strands_durable._records.keys import idempotency_key
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.crash.audit import recorded_attempts
from tests.receiver import Receiver, receiving

TOOLS = {
    "vended": http_request,
    "renamed": make_http_request(name="http_request", description="Send an order."),
    "strands_tools": strands_tools.http_request,
}


@pytest.fixture(autouse=True)
def no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYPASS_TOOL_CONSENT", "true")


@pytest.fixture
def shop() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> Any:
    return TOOLS[request.param]


def agent_of(tool: Any, *requests: dict[str, Any], **more: Any) -> Agent:
    script = [[call("http_request", **found) for found in requests], "Done."]
    plugins = [Durability("runs.db", execution_id="trip")]
    return Agent(model=ScriptedModel(script), tools=[tool], plugins=plugins, callback_handler=None, **more)


def keys(shop: Receiver) -> list[str | None]:
    return [headers.get("Idempotency-Key") for headers, _ in shop.requests]


def keys_of_steps() -> set[str]:
    found = recorded_attempts(Path("runs.db"), "trip")
    return {idempotency_key("trip", 0, step) for step in found if "/model~" not in step}


def inputs(agent: Agent) -> list[Any]:
    return [block["toolUse"]["input"] for block in agent.messages[1]["content"]]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_c12_requests_that_change_something_carry_the_key_of_their_step(tool: Any, method: str, shop: Receiver) -> None:
    order = {"method": method, "url": shop.url, "body": "tea", "headers": {"X-Shop": "1"}}
    agent = agent_of(tool, order, {**order, "headers": {}})
    agent("Go")
    assert set(keys(shop)) == keys_of_steps()
    assert len(set(keys(shop))) == 2
    assert [found["X-Shop"] for found, _ in shop.requests if "X-Shop" in found] == ["1"]
    assert inputs(agent) == [order, {**order, "headers": {}}], "the recorded messages do not have it"


def test_c12_a_request_in_doubt_is_repeated_with_the_same_key(tool: Any, shop: Receiver) -> None:
    order = {"method": "POST", "url": shop.url, "body": "tea"}
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("tool.done:before@1", "raise"):
        agent_of(tool, order)("Go")
    forget_process()
    agent_of(tool, order)("Go")
    assert len(shop.requests) == 2
    assert set(keys(shop)) == keys_of_steps()


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_c12_a_key_that_the_call_gives_itself_is_sent(tool: Any, name: str, shop: Receiver) -> None:
    agent_of(tool, {"method": "POST", "url": shop.url, "body": "tea", "headers": {name: "mine"}})("Go")
    [(headers, _)] = shop.requests
    assert {value for found, value in headers.items() if found.lower() == "idempotency-key"} == {"mine"}


def test_c12_direct_calls_carry_keys_of_their_own_which_last(tool: Any, shop: Receiver) -> None:
    order = {"method": "POST", "url": shop.url, "body": "tea", "headers": {"X-Shop": "1"}}

    @strands.tool(context=True)
    def order_all(tool_context: strands.ToolContext) -> str:
        """Order tea twice."""
        for _ in range(2):
            tool_context.agent.tool.http_request(**order, record_direct_tool_call=False)
        return "ordered"

    def agent() -> Agent:
        plugins = [Durability("runs.db", execution_id="trip")]
        model = ScriptedModel([call("order_all"), "Done."])
        return Agent(model=model, tools=[tool, order_all], plugins=plugins, callback_handler=None)

    with pytest.raises(SimulatedCrash), CrashPoints().crashing("tool.done:before@1", "raise"):
        agent()("Go")
    forget_process()
    agent()("Go")
    first, second = keys(shop)[:2], keys(shop)[2:]
    assert first == second
    assert len({*first, None}) == 3


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_c12_requests_that_change_nothing_carry_no_key(tool: Any, method: str, shop: Receiver) -> None:
    agent_of(tool, {"method": method, "url": shop.url})("Go")
    assert keys(shop) == [None]


def test_c12_outside_a_durable_call_nothing_is_added(tool: Any, shop: Receiver) -> None:
    order = {"method": "POST", "url": shop.url, "body": "tea"}
    script = [call("http_request", **order), "Done."]
    Agent(model=ScriptedModel(script), tools=[tool], callback_handler=None)("Go")
    assert keys(shop) == [None]


def test_c12_a_request_with_headers_that_are_no_headers_fails_as_without_us(tool: Any, shop: Receiver) -> None:
    order = {"method": "POST", "url": shop.url, "body": "tea", "headers": "X-Shop: 1"}
    plain = Agent(model=ScriptedModel([call("http_request", **order), "Done."]), tools=[tool], callback_handler=None)
    plain("Go")
    agent = agent_of(tool, order)
    agent("Go")
    assert agent.messages[2]["content"] == plain.messages[2]["content"]
    assert shop.requests == []
