"""Resuming after a crash repeats nothing that is recorded, and asks nothing that was answered."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks import BeforeModelCallEvent
from strands.middleware import ExecuteToolStage, ToolResultEvent
from strands.types.exceptions import ContextWindowOverflowException, MaxTokensReachedException

from strands_durable import Durability, errors
from strands_durable.testing import (
    Answer,
    CrashPoints,
    ScriptedModel,
    SimulatedCrash,
    assert_replays,
    call,
    forget_process,
)

runs: Counter[str] = Counter()


@tool
def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    runs["approve"] += 1
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def agent_of(script: Any, **options: Any) -> Agent:
    plugin = Durability("runs.db", execution_id="trip", **options.pop("durability", {}))
    return Agent(model=ScriptedModel(script), tools=[work, approve], plugins=[plugin], callback_handler=None, **options)


def crashed(point: str, agent: Agent) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent("Go")
    forget_process()


def test_c05_hooks_before_a_model_call_that_count_and_rewrite_do_so_once() -> None:
    def build(durability: Durability) -> Agent:
        model = ScriptedModel([call("work", n=1), "Done."])
        agent = Agent(model=model, tools=[work], plugins=[durability], callback_handler=None)

        def remind(event: BeforeModelCallEvent) -> None:
            event.agent.state.set("asked", (event.agent.state.get("asked") or 0) + 1)
            event.agent.messages[-1]["content"].append({"text": "remember"})
            event.agent.messages.append({"role": "user", "content": [{"text": "and again"}]})

        agent.add_hook(remind)
        return agent

    assert_replays(build, "Go")


def test_c11_the_model_sees_the_recorded_request_again_and_not_what_hooks_made_of_it_since() -> None:
    def build(seen: list[Any]) -> Agent:
        def script(turn: int, messages: list[Any]) -> str:
            seen.append([message["content"] for message in messages])
            return "Done."

        agent = agent_of(script)
        agent.add_hook(lambda event: event.agent.messages[-1]["content"].append({"text": "x"}), BeforeModelCallEvent)
        return agent

    first: list[Any] = []
    again: list[Any] = []
    crashed("model 0:chunk 1@1", build(first))
    build(again)("Go")
    assert again == first


def test_c12_a_recorded_answer_leaves_no_doubt_about_the_next_one() -> None:
    script = [call("work", n=1), "Done."]
    crashed("model.done:after@1", agent_of(script, durability={"model_in_doubt": "fail"}))
    assert str(agent_of(script, durability={"model_in_doubt": "fail"})("Go")) == "Done.\n"
    forget_process()


def test_c12_an_unanswered_model_call_is_still_in_doubt() -> None:
    script = [call("work", n=1), "Done."]
    crashed("model.start:after@2", agent_of(script, durability={"model_in_doubt": "fail"}))
    with pytest.raises(errors.InDoubtError):
        agent_of(script, durability={"model_in_doubt": "fail"})("Go")


def test_c04_the_code_before_a_question_runs_again_only_with_an_answer() -> None:
    runs.clear()
    script = [call("approve", what="paint"), "Done."]
    crashed("tool.interrupted:after@1", agent_of(script))
    result = agent_of(script)("Go")
    assert [found.name for found in result.interrupts] == ["approval"]
    assert runs["approve"] == 1
    forget_process()
    agent = agent_of(script)
    answer = {"interruptResponse": {"interruptId": result.interrupts[0].id, "response": "yes"}}
    assert str(agent([answer])) == "Done.\n"
    assert runs["approve"] == 2
    assert result.stop_reason == "interrupt"


def test_c04_an_interrupt_result_is_what_strands_gives() -> None:
    script = [[call("approve", what="paint"), call("work", n=1)], "Done."]
    plain = Agent(model=ScriptedModel(script), tools=[work, approve], callback_handler=None)("Go")
    durable = agent_of(script)("Go")
    forget_process()
    recorded = agent_of(script)("Go")
    for found in (durable, recorded):
        assert found.stop_reason == plain.stop_reason
        assert found.interrupts == plain.interrupts
        assert found.message["content"] == plain.message["content"]
        assert found.state == plain.state


def test_c29_a_tool_that_middleware_answered_for_is_not_counted() -> None:
    def build() -> Agent:
        agent = agent_of([call("work", n=1), call("work", n=2), "Done."])

        async def short(context: Any, next_fn: Any) -> Any:
            if context.tool_use["input"]["n"] == 2:
                async for event in next_fn(context):
                    yield event
                return
            use = context.tool_use["toolUseId"]
            yield ToolResultEvent({"toolUseId": use, "status": "success", "content": [{"text": "from a cache"}]})

        agent.add_middleware(ExecuteToolStage, short)
        return agent

    assert build()("Go").metrics.tool_metrics["work"].call_count == 1
    forget_process()
    assert build()("Go").metrics.tool_metrics["work"].call_count == 1


def test_c10_an_overflow_is_on_record_and_the_model_is_not_asked_for_it_again() -> None:
    def build(asked: list[int]) -> Agent:
        def script(turn: int, messages: list[Any]) -> Any:
            asked.append(len(messages))
            if len(messages) > 3:
                return Answer(errors=[ContextWindowOverflowException("too long")] * 9)
            return call("work", n=len(asked)) if "Go" in str(messages) else "Done."

        return agent_of(script, conversation_manager=SlidingWindowConversationManager(window_size=4))

    whole: list[int] = []
    build(whole)("Go")
    forget_process()
    Path("runs.db").unlink()
    first: list[int] = []
    again: list[int] = []
    crashed("model.failed:after@1", build(first))
    result = build(again)("Go")
    assert result.stop_reason == "end_turn"
    assert [*first, *again] == whole


def test_c01_a_failed_call_counts_in_full_when_a_later_one_is_there() -> None:
    def run() -> dict[str, int]:
        agent = agent_of([Answer(text="I was about", stop_reason="max_tokens"), "Done."])
        with pytest.raises(MaxTokensReachedException):
            agent("Go")
        return dict(agent("Go on").metrics.accumulated_usage)

    first = run()
    forget_process()
    assert run() == first
