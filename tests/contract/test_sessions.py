"""C5 beside a session manager: the journal owns the history of an open call, and the session's store follows it."""

from __future__ import annotations

import shutil
import sqlite3
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import BeforeModelCallEvent
from strands.session import FileSessionManager

from strands_durable import Durability
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process


@tool
def book(city: str) -> str:
    """Book a hotel."""
    return f"booked {city}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def agent_of(script: Any, execution_id: str | None = "trip", **options: Any) -> Agent:
    forget_process()
    return Agent(
        model=ScriptedModel(script),
        tools=[book, approve],
        session_manager=FileSessionManager("talk", storage_dir="sessions"),
        plugins=[] if execution_id is None else [Durability("runs.db", execution_id=execution_id)],
        callback_handler=None,
        **options,
    )


def crash(point: str, agent: Agent, prompt: str = "Go") -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt)


def said(agent: Agent) -> list[str]:
    """Return what is in a conversation, in short."""
    return [
        next(iter(block.get("text", name) for name in block)) for found in agent.messages for block in found["content"]
    ]


WHOLE = ["Go", "toolUse", "toolResult", "Done."]
SCRIPT = [call("book", city="Paris"), "Done."]


def test_c05_a_session_that_began_after_the_call_is_filled() -> None:
    crash("tool.done:after@1", agent_of(SCRIPT))
    shutil.rmtree("sessions")
    agent = agent_of(SCRIPT)
    agent("Go")
    assert said(agent) == said(agent_of([], None)) == WHOLE


@pytest.mark.parametrize(
    "first", ["model.start:before@1", "tool.start:before@1", "model.start:before@2", "call.end:before@1"]
)
@pytest.mark.parametrize(
    "second", ["model.start:before@1", "tool.start:before@1", "model.start:before@2", "call.end:before@1"]
)
def test_c05_two_crashes_leave_no_turn_twice_in_a_session(first: str, second: str) -> None:
    crash(first, agent_of(SCRIPT))
    try:
        with CrashPoints().crashing(second, "raise"):
            agent_of(SCRIPT)("Go")
    except SimulatedCrash:
        pass
    agent = agent_of(SCRIPT)
    agent("Go")
    assert said(agent) == said(agent_of([], None)) == WHOLE


def test_c05_a_session_of_an_earlier_execution_is_the_base_of_the_next() -> None:
    agent_of(SCRIPT, "one")("Go")
    script = [*SCRIPT, call("book", city="Rome"), "Done."]
    crash("model.start:before@1", agent_of(script, "two"))
    agent_of(script, "two")("Go")
    assert said(agent_of([], None)) == [*WHOLE, *WHOLE]


def test_c05_a_message_that_no_session_knows_does_not_hide_those_it_knows() -> None:
    def silent(event: Any) -> None:
        if len(event.agent.messages) == 3:
            event.agent.messages.append({"role": "user", "content": [{"text": "Whispered."}]})

    for deadly in ("model.done:before@2", None):
        agent = agent_of(SCRIPT)
        agent.add_hook(silent, BeforeModelCallEvent)
        if deadly is not None:
            crash(deadly, agent)
        else:
            agent("Go")
    assert said(agent) == [*WHOLE[:3], "Whispered.", "Done."]
    assert said(agent_of([], None)) == WHOLE, "as without a crash"


def test_c04_a_question_in_a_session_is_asked_again_by_the_same_call() -> None:
    script = [call("approve", what="paint"), "Done."]
    agent_of(script)("Paint")
    agent = agent_of(script)
    asked = agent("Paint").interrupts
    assert [found.reason for found in asked] == ["paint"]
    with pytest.raises(TypeError, match="must resume from interrupt"):
        agent("Something else")  # in one process, what Strands does stays as it is
    agent([{"interruptResponse": {"interruptId": asked[0].id, "response": "yes"}}])
    assert said(agent_of([], None)) == ["Paint", "toolUse", "toolResult", "Done."]


def test_c04_a_question_in_a_session_is_not_for_a_new_execution() -> None:
    agent_of([call("approve", what="paint"), "Done."])("Paint")
    with pytest.raises(TypeError, match="must resume from interrupt"):
        agent_of([], "another")("Go")
    forget_process()
    rows = sqlite3.connect("runs.db").execute("SELECT count(*) FROM calls").fetchall()
    assert rows == [(1,)], "nothing was recorded"
