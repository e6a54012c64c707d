"""Streams: what is live is what Strands gives, and what is recorded says so (C28, C29)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from strands import Agent, tool
from strands.handlers.callback_handler import CompositeCallbackHandler, PrintingCallbackHandler

from strands_durable import Durability
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process

SCRIPT = [Answer(text="Thinking.", calls=[call("slow", n=1), call("slow", n=2)]), "Done."]


@tool
async def slow(n: int) -> Any:
    """Report progress."""
    yield f"half of {n}"
    yield f"did {n}"


def agent_of(*, durable: bool = True, **options: Any) -> Agent:
    plugins = [Durability("runs.db", execution_id="trip")] if durable else []
    options.setdefault("callback_handler", None)
    return Agent(model=ScriptedModel(SCRIPT), tools=[slow], plugins=plugins, **options)


def streamed(agent: Agent) -> list[Any]:
    async def collect() -> list[Any]:
        return [event async for event in agent.stream_async("Go")]

    return asyncio.run(collect())


def crashed(point: str) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent_of()("Go")
    forget_process()


def recorded(events: list[Any]) -> list[Any]:
    return [event["recorded"] for event in events if "recorded" in event]


def test_c28_live_events_are_those_of_strands() -> None:
    plain, durable = streamed(agent_of(durable=False)), streamed(agent_of())
    assert sorted(str(sorted(event)) for event in durable) == sorted(str(sorted(event)) for event in plain)
    assert [event["data"] for event in durable if "data" in event] == [e["data"] for e in plain if "data" in e]


def test_c28_a_recorded_answer_is_one_event_that_says_so() -> None:
    crashed("model.done:after@1")
    events = streamed(agent_of())
    assert recorded(events) == [{"key": "default#0/000001/model~0", "kind": "model", "name": "scripted"}]
    texts = [event["data"] for event in events if "data" in event]
    assert "".join(texts) == "Done."


def test_c28_a_recorded_tool_result_is_one_event_that_says_so() -> None:
    crashed("tool.done:after@1")
    events = streamed(agent_of())
    found = recorded(events)
    assert [(one["kind"], one["name"]) for one in found] == [("tool", "slow")]
    live = {event["tool_stream_event"]["tool_use"]["toolUseId"] for event in events if "tool_stream_event" in event}
    assert len(live) == 1
    assert not any(use in found[0]["key"] for use in live)


def test_c28_a_recorded_call_is_one_event_that_says_so() -> None:
    first = agent_of()("Go")
    forget_process()
    events = streamed(agent_of())
    assert [sorted(event) for event in events] == [["recorded", "result"]]
    assert events[0]["recorded"] is True
    assert str(events[0]["result"]) == str(first)


def test_c29_callback_handlers_take_recorded_events(capsys: pytest.CaptureFixture[str]) -> None:
    crashed("model.done:after@1")
    seen: list[Any] = []
    handler = CompositeCallbackHandler(PrintingCallbackHandler(), lambda **event: seen.append(event))
    result = agent_of(callback_handler=handler)("Go")
    assert str(result) == "Done.\n"
    assert "Done." in capsys.readouterr().out
    assert len(recorded(seen)) == 1
    assert asyncio.run(agent_of(durable=False).invoke_async("Go")).stop_reason == "end_turn"
