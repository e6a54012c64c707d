"""C14 to C19: state, results that cannot be stored, durable.*, current_step, redaction."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
)
from strands.middleware import ExecuteToolStage

from strands_durable import Durability, current_step, durable, errors
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach
from tests.script import answers, in_new_process, ledger


def agent_of(script: Any, tools: Any = (), *, hooks: Any = (), **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        tools=list(tools),
        plugins=[Durability("runs.db", execution_id="trip")],
        hooks=list(hooks),
        callback_handler=None,
        **options,
    )


def crash_at(point: str, agent: Agent, prompt: str = "Go", **options: Any) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt, **options)
    forget_process()


@tool(context=True)
async def slow_counter(tool_context: ToolContext) -> str:
    """Write, wait for the neighbour, write again."""
    state = tool_context.agent.state
    state.set("slow", (state.get("slow") or 0) + 1)
    while state.get("fast") is None:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    reach("slow tool")
    state.set("slow done", True)
    return "slow"


@tool(context=True)
async def fast_counter(tool_context: ToolContext) -> str:
    """Write once."""
    tool_context.agent.state.set("fast", 1)
    return "fast"


def test_c14_a_neighbours_write_does_not_leak_into_a_finished_step() -> None:
    script = [[call("slow_counter"), call("fast_counter")], "Done."]
    crash_at("slow tool@1", agent_of(script, [slow_counter, fast_counter]))
    agent = agent_of(script, [slow_counter, fast_counter])
    agent("Go")
    assert agent.state.get() == {"slow": 1, "fast": 1, "slow done": True}


def test_c14_state_that_hooks_and_tools_write_survives_every_boundary() -> None:
    def build() -> Agent:
        def before(event: BeforeToolCallEvent) -> None:
            event.agent.state.set("before", (event.agent.state.get("before") or 0) + 1)

        def after(event: AfterToolCallEvent) -> None:
            event.agent.state.set("after", (event.agent.state.get("after") or 0) + 1)
            event.agent.state.delete("temporary")

        def answered(event: AfterModelCallEvent) -> None:
            event.agent.state.set("answers", (event.agent.state.get("answers") or 0) + 1)

        @tool(context=True)
        def work(tool_context: ToolContext) -> str:
            """Work."""
            state = tool_context.agent.state
            state.set("work", (state.get("work") or 0) + 1)
            state.set("temporary", 1)
            return "worked"

        return agent_of([call("work"), [call("work"), call("work")], "Done."], [work], hooks=[before, after, answered])

    whole = build()
    points = CrashPoints()
    with points.recording():
        whole("Go")
    expected = whole.state.get()
    assert expected == {"before": 3, "work": 3, "after": 3, "answers": 3}
    boundaries = [point for point in points.reached if ":after@" in point or ":before@" in point]
    for boundary in boundaries:
        forget_process()
        Path("runs.db").unlink()
        crash_at(boundary, build())
        resumed = build()
        resumed("Go")
        assert resumed.state.get() == expected, boundary


def test_c14_a_state_object_that_is_replaced_is_followed() -> None:
    @tool(context=True)
    def replace(tool_context: ToolContext) -> str:
        """Replace the state object."""
        from strands.agent.state import AgentState

        tool_context.agent.state = AgentState({"new": 1})
        return "replaced"

    script = [call("replace"), call("replace"), "Done."]
    crash_at("model.done:before@2", agent_of(script, [replace], state={"old": 1}))
    agent = agent_of(script, [replace], state={"old": 1})
    agent("Go")
    assert agent.state.get() == {"new": 1}


def test_c15_a_result_that_cannot_be_stored_names_tool_and_path_at_the_first_run() -> None:
    script = [call("strange"), "Done."]
    outcome = in_new_process(script, ["Go"]).checked()[0]
    assert outcome["error"] == "NotSerializableError"
    assert "'strange'" in outcome["text"]
    assert "result['content'][0]['json']['handle'] is a builtins.object" in outcome["text"]


def test_c15_it_stays_in_doubt_and_is_asked_about_never_retried_by_itself() -> None:
    script = [call("strange"), "Done."]
    in_new_process(script, ["Go"]).checked()
    asked = in_new_process(script, ["Go"]).checked()[0]
    assert asked["stop_reason"] == "interrupt"
    assert asked["interrupts"][0]["reason"]["tool"] == "strange"
    assert in_new_process(script, ["Go", ({"result": "handled"},)]).checked()[1]["text"] == "Done."
    assert len([entry for entry in ledger.read() if entry["kind"] == "tool"]) == 1


def test_c15_it_never_becomes_a_tool_result_among_parallel_tools() -> None:
    outcome = in_new_process([[call("book", city="Rome"), call("strange")], "Done."], ["Go"]).checked()[0]
    assert outcome["error"] == "NotSerializableError"


def test_c15_what_cannot_be_stored_in_the_invocation_state_is_left_out_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(context=True)
    def use(tool_context: ToolContext) -> str:
        """Use the client."""
        state = tool_context.invocation_state
        state["seen"] = state.get("seen", 0) + 1
        return type(state["client"]).__name__

    class Client:
        pass

    script = [call("use"), call("use"), "Done."]
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        crash_at("model.done:before@2", agent_of(script, [use]), invocation_state={"client": Client()})
    assert caplog.text.count("key=<client>") == 1
    given: dict[str, Any] = {"client": Client()}
    agent_of(script, [use])("Go", invocation_state=given)
    assert given["seen"] == 2


def test_c17_a_recorded_side_effect_in_a_hook_happens_once() -> None:
    made: list[str] = []

    async def notify(event: BeforeToolCallEvent) -> None:
        made.append(await durable.step("notify", lambda: f"sent {len(made)}"))

    @tool
    def work() -> str:
        """Work."""
        return "worked"

    crash_at("tool.done:before@1", agent_of([call("work"), "Done."], [work], hooks=[notify]))
    agent_of([call("work"), "Done."], [work], hooks=[notify])("Go")
    assert made == ["sent 0", "sent 0"]


def test_c17_steps_clock_ids_and_timers_in_a_tool_are_the_same_after_a_crash() -> None:
    seen: list[Any] = []

    @tool
    async def work() -> str:
        """Work in pieces."""
        first = await durable.step("part", lambda: len(seen))
        second = await durable.step("part", lambda: len(seen) + 100)
        began = time.monotonic()
        await durable.sleep(1.0)
        seen.append((first, second, durable.now(), durable.uuid(), durable.uuid()))
        reach("after the pieces")
        return f"{time.monotonic() - began < 0.8}"

    crash_at("after the pieces@1", agent_of([call("work"), "Done."], [work]))
    agent = agent_of([call("work"), "Done."], [work])
    agent("Go")
    assert seen[0] == seen[1]
    assert seen[0][:2] == (0, 100)
    assert isinstance(seen[0][3], uuid.UUID)
    assert seen[0][3] != seen[0][4]
    slept = agent.messages[2]["content"][0]["toolResult"]["content"][0]["text"]
    assert slept == "True", "only the rest until the recorded deadline is waited for"


def test_c17_an_error_in_a_recorded_side_effect_is_tried_again() -> None:
    made: list[int] = []

    async def flaky() -> str:
        made.append(1)
        if len(made) == 1:
            raise ConnectionError("down")
        return "up"

    @tool
    async def work() -> str:
        """Work."""
        return await durable.step("reach", flaky)

    crash_at("model.start:before@2", agent_of([call("work"), "Done."], [work]))
    agent = agent_of([call("work"), "Done."], [work])
    agent("Go")
    assert "down" in agent.messages[2]["content"][0]["toolResult"]["content"][0]["text"]


def test_c17_outside_of_a_durable_call_they_do_the_plain_thing() -> None:
    async def plain() -> Any:
        return await durable.step("x", lambda: 7), durable.now(), durable.uuid()

    seven, now, identity = asyncio.run(plain())
    assert seven == 7
    assert now.tzinfo is not None
    assert isinstance(identity, uuid.UUID)


def test_c18_current_step_works_in_hooks_middleware_and_tools_and_is_none_outside() -> None:
    seen: list[tuple[str, str, str, bool]] = []

    def look(place: str) -> None:
        step = current_step()
        assert step is not None, place
        seen.append((place, step.kind, step.phase, step.replaying))

    @tool
    def work() -> str:
        """Work."""
        look("tool")
        return "worked"

    async def middleware(context: Any, next_fn: Any) -> Any:
        look("middleware")
        async for event in next_fn(context):
            yield event

    def build() -> Agent:
        agent = agent_of([call("work"), "Done."], [work])
        for event_type in (
            BeforeInvocationEvent, BeforeModelCallEvent, AfterModelCallEvent, BeforeToolCallEvent, AfterToolCallEvent,
        ):  # fmt: skip
            agent.add_hook(lambda event: look(type(event).__name__), event_type)
        agent.add_middleware(ExecuteToolStage, middleware)
        return agent

    outside: list[Any] = []

    async def stream(agent: Agent) -> None:
        async for _ in agent.stream_async("Go"):
            outside.append(current_step())

    crash_at("tool.done:after@1", build())
    assert ("BeforeToolCallEvent", "tool", "before", False) in seen
    assert ("AfterModelCallEvent", "model", "after", False) in seen
    assert ("BeforeInvocationEvent", "call", "before", False) in seen
    assert ("middleware", "tool", "running", False) in seen
    assert ("tool", "tool", "running", False) in seen
    seen.clear()
    asyncio.run(stream(build()))
    assert ("BeforeToolCallEvent", "tool", "before", True) in seen
    assert ("AfterToolCallEvent", "tool", "after", True) in seen
    assert ("BeforeModelCallEvent", "model", "before", False) in seen
    assert not [place for place, *_ in seen if place in ("tool", "middleware")]
    assert set(outside) == {None}


def stored_text() -> bytes:
    return b"".join(Path(name).read_bytes() for name in ("runs.db", "runs.db-wal") if Path(name).exists())


def test_c19_a_redacted_input_is_gone_from_the_store_and_still_compared() -> None:
    secret = "my card is 4111 1111 1111 1111"
    script = [Answer(text="No.", redact_user="[redacted]")]
    agent = agent_of(script)
    agent(secret)
    assert agent.messages[0]["content"] == [{"text": "[redacted]"}]
    assert b"4111" not in stored_text()
    forget_process()
    again = agent_of(script)
    assert str(again(secret)) == "No.\n"
    assert again.messages[0]["content"] == [{"text": "[redacted]"}]
    forget_process()
    with pytest.raises(errors.InputMismatchError, match="redacted since"):
        agent_of(script)("something else")


def test_c19_a_redacted_tool_result_does_not_come_back() -> None:
    @tool
    def read() -> str:
        """Read."""
        return "the secret is 4711"

    script = [call("read"), Answer(text="No.", redact_user="[redacted]")]
    crash_at("model.done:after@2", agent_of(script, [read]))
    agent = agent_of(script, [read])
    agent("Go")
    assert b"4711" not in stored_text()
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "[redacted]"}]


def test_c19_a_crash_before_the_answer_is_committed_redacts_with_the_answer_made_again() -> None:
    script = [Answer(text="No.", redact_user="[redacted]")]
    crash_at("model.done:before@1", agent_of(script), "a secret")
    agent = agent_of(script)
    agent("a secret")
    assert agent.messages[0]["content"] == [{"text": "[redacted]"}]
    assert b"a secret" not in stored_text()


def test_c12_an_answer_in_the_same_process_resumes_with_the_same_objects() -> None:
    @tool(context=True)
    def ask(tool_context: ToolContext) -> str:
        """Ask."""
        return f"got {tool_context.interrupt('q', reason='why')}"

    agent = agent_of([call("ask"), "Done."], [ask])
    result = agent("Go")
    messages = agent.messages
    assert str(agent(answers(result, "this"))) == "Done.\n"
    assert agent.messages is messages
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "got this"}]
    assert sqlite3.connect("runs.db").execute("SELECT attempt, status FROM steps WHERE kind = 'tool'").fetchall() == [
        (1, "interrupted"),
        (2, "done"),
    ]
