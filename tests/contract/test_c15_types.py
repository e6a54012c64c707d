"""C15: values come back as the type they were, are refused by name, or are left out and named; never silently another."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from strands import Agent, ToolContext, tool
from strands.agent.state import AgentState
from strands.multiagent import GraphBuilder

from strands_durable import Durability, durable, errors, register_type
from strands_durable._records import registered_types
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

Point = namedtuple("Point", "x y")


class Shade(str, Enum):
    RED = "red"


class Stamp(datetime):
    """Extends datetime as pandas' Timestamp does."""


@dataclass(frozen=True)
class Fare:
    amount: int


def coming_back() -> dict[str, Any]:
    return {
        "counter": Counter(a=2),
        "ordered": OrderedDict(b=1, a=2),
        "default": defaultdict(list, a=[1]),
        "zone": ZoneInfo("Europe/Paris"),
        "local": datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
        "path": Path("a/b"),
    }


REFUSED: dict[str, Any] = {
    "default": defaultdict(lambda: 0, a=1),
    "tuple": Point(1, 2),
    "enum": Shade.RED,
    "stamp": Stamp(2026, 1, 2),
    "set": {Point(1, 2)},
}


@pytest.fixture
def registered() -> Iterator[None]:
    for cls in (Shade, Fare, Point):
        register_type(cls)
    yield
    forget_types()


def forget_types() -> None:
    for cls in (Shade, Fare, Point):
        found = registered_types.by_class.pop(cls, None)
        if found is not None:
            del registered_types._by_name[found.name]


def agent_of(script: Any, tools: Any, **options: Any) -> Agent:
    plugins = [Durability("runs.db", execution_id="trip")]
    return Agent(model=ScriptedModel(script), tools=list(tools), plugins=plugins, callback_handler=None, **options)


def crash_at(point: str, subject: Any, **options: Any) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        subject("Go", **options)
    forget_process()


def shape(value: Any) -> Any:
    """Return a value with the types of all that is in it."""
    if isinstance(value, dict):
        inner: Any = [(shape(key), shape(item)) for key, item in value.items()]
    else:
        inner = [shape(item) for item in value] if isinstance(value, (list, tuple, set)) else repr(value)
    return type(value), inner, getattr(value, "default_factory", None)


@tool(context=True)
async def keep(tool_context: ToolContext) -> dict[str, Any]:
    """Put values wherever a tool can put them."""
    tool_context.invocation_state["kept"] = coming_back()
    tool_context.agent.state.set("kept", {"counter": Counter(a=1), "ordered": OrderedDict(b=1, a=2), "pair": (1, 2)})
    stepped = await durable.step("values", coming_back)
    assert shape(stepped) == shape(coming_back())
    return {"status": "success", "content": [{"json": coming_back()}]}


@tool(context=True)
async def count(tool_context: ToolContext) -> str:
    """Continue with what is there."""
    kept = tool_context.invocation_state["kept"]
    kept["counter"]["b"] += 1
    kept["default"]["new"].append(1)
    kept["ordered"].move_to_end("b")
    reach("counted")
    return repr(kept)


def seen_by(agent: Agent, given: dict[str, Any]) -> Any:
    results = [block["toolResult"]["content"] for message in agent.messages for block in message["content"]
               if "toolResult" in block]  # fmt: skip
    return shape([results, agent.state.get(), given["kept"]])


def test_c15_a_resumed_run_has_the_types_of_the_one_that_was_not_interrupted() -> None:
    script, given = [call("keep"), call("count"), "Done."], {"mine": 1}
    whole = agent_of(script, [keep, count])
    points = CrashPoints()
    with points.recording():
        whole("Go", invocation_state=given)
    expected = seen_by(whole, given)
    for point in [point for point in points.reached if point.startswith(("tool.done", "model.done", "counted"))]:
        forget_process()
        Path("runs.db").unlink()
        crash_at(point, agent_of(script, [keep, count]), invocation_state={"mine": 1})
        again: dict[str, Any] = {"mine": 1}
        agent = agent_of(script, [keep, count])
        agent("Go", invocation_state=again)
        assert seen_by(agent, again) == expected, point


@pytest.mark.parametrize("name", REFUSED)
def test_c15_a_result_of_a_type_that_cannot_come_back_is_refused_by_name(name: str) -> None:
    @tool
    def look() -> dict[str, Any]:
        """Look."""
        return {"status": "success", "content": [{"json": {"found": REFUSED[name]}}]}

    with pytest.raises(errors.NotSerializableError) as caught:
        agent_of([call("look"), "Done."], [look])("Go")
    inner = REFUSED[name] if name != "set" else Point(1, 2)
    assert "tool 'look'" in str(caught.value)
    assert "result['content'][0]['json']['found']" in caught.value.path
    assert caught.value.type_name == f"{type(inner).__module__}.{type(inner).__qualname__}"


@pytest.mark.parametrize("name", ["default", "tuple", "enum"])
def test_c15_a_state_of_a_type_that_cannot_come_back_is_refused_where_it_is_set(name: str) -> None:
    refusals = []

    @tool(context=True)
    def remember(tool_context: ToolContext) -> str:
        """Remember."""
        state = tool_context.agent.state
        state.set("seen", 1)
        try:
            state.set("seen", [REFUSED[name]])
        except errors.NotSerializableError as error:
            refusals.append(str(error))
        return str(state.get("seen"))

    agent = agent_of([call("remember"), "Done."], [remember])
    agent("Go")
    assert f"State 'seen' cannot be recorded: value[0] is a {type(REFUSED[name]).__module__}" in refusals[0]
    assert agent.state.get() == {"seen": 1}
    with pytest.raises(errors.NotSerializableError, match="State 'given'"):
        Agent(
            model=ScriptedModel(["Done."]),
            state=AgentState({"given": REFUSED[name]}),
            plugins=[Durability("runs.db", execution_id="other")],
            callback_handler=None,
        )("Go")


@pytest.mark.parametrize("name", REFUSED)
def test_c15_a_value_in_the_invocation_state_that_cannot_come_back_is_left_out_and_named(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(context=True)
    def use(tool_context: ToolContext) -> str:
        """Use it."""
        return type(tool_context.invocation_state["given"][0]).__name__

    script, given = [call("use"), call("use"), "Done."], {"given": [REFUSED[name]], "kept": {"a": 1}}
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        crash_at("model.done:before@2", agent_of(script, [use]), invocation_state=dict(given))
    inner = REFUSED[name] if name != "set" else Point(1, 2)
    named = [record.getMessage() for record in caplog.records if "key=<given>" in record.getMessage()]
    assert len(named) == 1
    assert f"type=<{type(inner).__module__}.{type(inner).__qualname__}>" in named[0]
    assert "place=<[0]" in named[0]
    agent_of(script, [use])("Go", invocation_state=dict(given))


def test_c15_what_a_graph_leaves_out_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    builder = GraphBuilder()
    builder.add_node(Agent(model=ScriptedModel(["Done."]), callback_handler=None), "only")
    builder.set_max_node_executions(9)
    builder.set_plugins([Durability("runs.db", execution_id="trip")])
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        builder.build()("Go", invocation_state={"given": Shade.RED})
    assert "key=<given>" in caplog.text
    assert "test_c15_types.Shade" in caplog.text


def test_c15_a_value_that_becomes_another_type_in_place_is_a_change() -> None:
    @tool(context=True)
    def turn(tool_context: ToolContext) -> str:
        """Turn a dict into a Counter with the same content, and a list into a tuple."""
        state = tool_context.invocation_state
        state["counts"], state["nested"]["counts"] = Counter(state["counts"]), OrderedDict(state["nested"]["counts"])
        return "turned"

    script, given = [call("turn"), "Done."], {"counts": {"a": 1}, "nested": {"counts": {"b": 1}}}
    crash_at("model.done:before@2", agent_of(script, [turn]), invocation_state=given)
    again: dict[str, Any] = {"counts": {"a": 1}, "nested": {"counts": {"b": 1}}}
    agent_of(script, [turn])("Go", invocation_state=again)
    assert shape(again["counts"]) == shape(Counter(a=1))
    assert shape(again["nested"]["counts"]) == shape(OrderedDict(b=1))


@tool(context=True)
def buy(tool_context: ToolContext) -> dict[str, Any]:
    """Put registered values wherever a tool can put them."""
    tool_context.agent.state.set("colour", Shade.RED)
    tool_context.invocation_state["price"] = {Point(1, 2): Fare(3)}
    return {"status": "success", "content": [{"json": {"colours": {Shade.RED}}}]}


@tool(context=True)
def use(tool_context: ToolContext) -> str:
    """Use them."""
    return f"{tool_context.agent.state.get('colour')!r} {tool_context.invocation_state['price']!r}"


def test_c15_a_registered_type_comes_back_as_it_was(registered: None) -> None:
    script = [call("buy"), call("use"), "Done."]
    crash_at("model.done:before@2", agent_of(script, [buy, use]))
    agent = agent_of(script, [buy, use])
    agent("Go")
    used = agent.messages[4]["content"][0]["toolResult"]["content"][0]["text"]
    assert used == "<Shade.RED: 'red'> {Point(x=1, y=2): Fare(amount=3)}"
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"json": {"colours": {Shade.RED}}}]


def test_c15_a_script_that_has_not_registered_a_type_gets_an_error_and_changes_nothing(registered: None) -> None:
    script = [call("buy"), call("use"), "Done."]
    crash_at("model.done:before@2", agent_of(script, [buy, use]))
    forget_types()
    for _ in range(2):
        with pytest.raises(errors.TypeNotRegisteredError, match=r"strands_durable\.register_type") as caught:
            agent_of(script, [buy, use])("Go")
        assert "'Shade'" in str(caught.value) or "'Point'" in str(caught.value) or "'Fare'" in str(caught.value)
        assert "Execution 'trip'" in str(caught.value)
        forget_process()
    for cls in (Shade, Fare, Point):
        register_type(cls)
    agent = agent_of(script, [buy, use])
    assert str(agent("Go")) == "Done.\n"
    assert len(agent.messages) == 6
