"""The tools that users test their own agents with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability
from strands_durable.testing import (
    Answer,
    CrashPoints,
    ScriptedModel,
    ScriptError,
    SimulatedCrash,
    assert_replays,
    call,
    reach,
)


def test_a_model_asked_for_more_than_its_script_fails_loudly() -> None:
    agent = Agent(model=ScriptedModel(["One."]), callback_handler=None)
    agent("a")
    with pytest.raises(ScriptError, match="asked for turn 1, but its script has 1"):
        agent("b")


def test_a_script_streams_text_tools_usage_errors_and_broken_connections() -> None:
    async def chunks(model: ScriptedModel) -> list[Any]:
        return [chunk async for chunk in model.stream([])]

    answer = Answer(text="abcdef", calls=[call("x", n=1), call("y", "own-id")], chunk=4, usage={"totalTokens": 9})
    found = asyncio.run(chunks(ScriptedModel([answer])))
    deltas = [chunk["contentBlockDelta"]["delta"] for chunk in found if "contentBlockDelta" in chunk]
    assert deltas == [
        {"text": "abcd"},
        {"text": "ef"},
        {"toolUse": {"input": '{"n": 1}'}},
        {"toolUse": {"input": "{}"}},
    ]
    starts = [chunk["contentBlockStart"]["start"] for chunk in found if "contentBlockStart" in chunk]
    assert starts[1:] == [
        {"toolUse": {"name": "x", "toolUseId": "call-0-0"}},
        {"toolUse": {"name": "y", "toolUseId": "own-id"}},
    ]
    assert found[-1]["metadata"]["usage"] == {"totalTokens": 9}
    model = ScriptedModel([Answer(text="x", errors=[ValueError("no")], break_after=2)])
    with pytest.raises(ValueError, match="no"):
        asyncio.run(chunks(model))
    with pytest.raises(ConnectionError):
        asyncio.run(chunks(model))
    assert asyncio.run(chunks(model))


def test_crash_points_are_recorded_in_order_and_one_of_them_is_deadly() -> None:
    points = CrashPoints()
    with points.recording():
        reach("a")
        reach("a")
    assert points.reached == ["a@1", "a@2"]
    with CrashPoints().crashing("a@2", "raise"):
        reach("a")
        with pytest.raises(SimulatedCrash):
            reach("a")
        with pytest.raises(SimulatedCrash):
            reach("b")
    reach("a")


@tool(context=True)
def save(n: int, tool_context: ToolContext) -> str:
    """Save."""
    tool_context.agent.state.set(f"saved {n}", n)  # each its own: two tools of one message end in any order
    return "saved"


def test_assert_replays_passes_for_an_agent_that_replays() -> None:
    def build(durability: Durability) -> Agent:
        model = ScriptedModel([call("save", n=1), [call("save", n=2), call("save", n=3)], "Done.", "Bye."])
        return Agent(model=model, tools=[save], plugins=[durability], callback_handler=None)

    assert assert_replays(build, "Save", "Leave") > 30


def test_assert_replays_finds_an_agent_that_does_not() -> None:
    said = iter(range(1000))

    @tool
    def count() -> str:
        """Never the same twice."""
        return str(next(said))

    def build(durability: Durability) -> Agent:
        model = ScriptedModel([call("count"), "Done."])
        return Agent(model=model, tools=[count], plugins=[durability], callback_handler=None)

    with pytest.raises(AssertionError, match="The run ended differently"):
        assert_replays(build, "Count")
