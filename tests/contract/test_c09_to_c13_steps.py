"""C9 to C13: keys, what is committed when, unfinished steps and their policies, and who retries."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from typing import Any

import pytest
from strands import Agent, ModelRetryStrategy, tool
from strands.hooks import AfterModelCallEvent, AfterToolCallEvent, BeforeToolCallEvent
from strands.types.exceptions import ModelThrottledException

from strands_durable import DoubtfulStep, Durability, ToolPolicy, current_step, errors, policy
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.script import TOOLS, answers, in_new_process, ledger

DIES = [call("book_and_die", city="Rome"), "Done."]


def rows(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def agent_of(script: Any, tools: Any = (), *, hooks: Any = (), agent_options: Any = None, **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        tools=list(tools),
        plugins=[Durability("runs.db", execution_id="trip", **options)],
        hooks=list(hooks),
        callback_handler=None,
        **(agent_options or {}),
    )


def crash_at(point: str, agent: Agent, prompt: str = "Go") -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt)
    forget_process()


def booked() -> list[tuple[str, int]]:
    return [(entry["idempotency_key"], entry["attempt"]) for entry in ledger.read() if entry["kind"] == "tool"]


def tool_text(agent: Agent, index: int = 2) -> str:
    return str(agent.messages[index]["content"][0]["toolResult"]["content"][0].get("text"))


# C9


def test_c09_ids_that_repeat_in_one_answer_and_over_answers_are_distinguished() -> None:
    made: list[tuple[str, str]] = []

    @tool
    def mark(name: str) -> str:
        """Mark."""
        step = current_step()
        assert step is not None
        made.append((name, step.idempotency_key))
        return name

    twins = [call("mark", "same", name="a"), call("mark", "same", name="b")]
    script = [twins, call("mark", "same", name="c"), "Done."]
    agent_of(script, [mark])("Go")
    assert sorted(name for name, _ in made) == ["a", "b", "c"]
    assert len({key for _, key in made}) == 3
    forget_process()
    again = agent_of(script, [mark])
    again("Go")
    texts = [block["toolResult"]["content"][0]["text"] for block in again.messages[2]["content"]]
    assert (texts, len(made)) == (["a", "b"], 3)


def test_c09_a_hooks_retry_is_a_new_step_with_a_new_idempotency_key() -> None:
    made: list[str] = []

    @tool
    def flaky() -> str:
        """Fail first."""
        step = current_step()
        assert step is not None
        made.append(step.idempotency_key)
        if len(made) == 1:
            raise RuntimeError("not yet")
        return "fine"

    def retry(event: AfterToolCallEvent) -> None:
        event.retry = event.result["status"] == "error"

    agent = agent_of([call("flaky"), "Done."], [flaky], hooks=[retry])
    agent("Go")
    assert len(set(made)) == 2
    assert [key[-2:] for (key,) in rows("SELECT key FROM steps WHERE kind = 'tool' ORDER BY key")] == ["~0", "~1"]
    forget_process()
    crash = agent_of([call("flaky"), "Done."], [flaky], hooks=[retry])
    assert str(crash("Go")) == "Done.\n"
    assert len(made) == 2


def test_c09_a_crash_keeps_the_idempotency_key_and_counts_the_attempt() -> None:
    assert in_new_process(DIES, ["Go"]).exitcode == -signal.SIGKILL
    in_new_process(DIES, ["Go"]).checked()
    (first, one), (second, two) = booked()
    assert first == second
    assert (one, two) == (1, 2)
    assert rows("SELECT attempt, status FROM steps WHERE kind = 'tool'") == [(1, "started"), (2, "done")]


def test_c09_the_key_reaches_async_tools_and_what_they_call() -> None:
    def deep() -> str:
        step = current_step()
        assert step is not None
        return step.idempotency_key

    @tool
    async def asynchronous() -> str:
        """Look."""
        return deep()

    @tool
    def synchronous() -> str:
        """Look."""
        return deep()

    agent = agent_of([[call("asynchronous"), call("synchronous")], "Done."], [asynchronous, synchronous])
    agent("Go")
    keys = [block["toolResult"]["content"][0]["text"] for block in agent.messages[2]["content"]]
    assert len(set(keys)) == 2
    assert all(len(key) == 32 for key in keys)
    assert current_step() is None


# C10


def test_c10_an_answer_that_a_hook_sends_back_is_recorded_but_not_part_of_the_conversation() -> None:
    def demand(event: AfterModelCallEvent) -> None:
        text = event.stop_response.message["content"][0]["text"] if event.stop_response else ""
        event.retry = text == "Bad."

    def script() -> Any:
        said = iter(["Bad.", "Good."])
        return lambda turn, messages: next(said)

    def run() -> Any:
        agent = agent_of(script(), hooks=[demand])
        result = agent("Go")
        return str(result), len(agent.messages), result.metrics.accumulated_usage["totalTokens"], agent.model.calls

    assert run() == ("Good.\n", 2, 30, 2)
    forget_process()
    assert run() == ("Good.\n", 2, 30, 0)
    assert [key for (key,) in rows("SELECT key FROM steps ORDER BY key")] == ["000001/model~0", "000001/model~1"]


@pytest.mark.parametrize("point", ["model.done:after@1", "model.done:after@2"])
def test_c10_a_crash_after_an_answer_that_a_hook_sends_back_replays_it_through_the_hook(point: str) -> None:
    sent_back: list[str] = []

    def demand(event: AfterModelCallEvent) -> None:
        text = event.stop_response.message["content"][0]["text"] if event.stop_response else ""
        if text == "Bad.":
            sent_back.append(text)
            event.retry = True

    said = iter(["Bad.", "Good.", "Never asked for."])
    crash_at(point, agent_of(lambda turn, messages: next(said), hooks=[demand]))
    agent = agent_of(lambda turn, messages: next(said), hooks=[demand])
    assert str(agent("Go")) == "Good.\n"
    assert next(said) == "Never asked for."


def test_c10_a_hook_that_rewrites_a_result_is_what_the_conversation_keeps() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "a secret"

    def hide(event: AfterToolCallEvent) -> None:
        event.result = {**event.result, "content": [{"text": "hidden"}]}

    script = [call("look"), call("look"), "Done."]
    crash_at("model.done:before@3", agent_of(script, [look], hooks=[hide]))
    agent = agent_of(script, [look], hooks=[hide])
    agent("Go")
    assert [tool_text(agent, 2), tool_text(agent, 4)] == ["hidden", "hidden"]


# C11


def test_c11_an_unfinished_model_call_is_made_again_and_its_attempt_is_marked() -> None:
    script = [Answer(text="A long answer in many chunks.", chunk=3)]
    crash_at("model 0:chunk 4@1", agent_of(script))
    agent = agent_of(script)
    assert str(agent("Go")).strip() == "A long answer in many chunks."
    assert rows("SELECT attempt, status FROM steps") == [(2, "done")]


# C12


@pytest.mark.parametrize("answer", ["retry", "fail", {"result": "booked by phone"}])
def test_c12_ask_lets_a_person_decide_with_the_tool_and_its_input_in_view(answer: Any) -> None:
    ask = {"tool_policies": {"book_and_die": ToolPolicy(in_doubt="ask")}}
    assert in_new_process(DIES, ["Go"], ask).exitcode == -signal.SIGKILL
    asked = in_new_process(DIES, ["Go"], ask).checked()[0]
    assert asked["stop_reason"] == "interrupt"
    reason = asked["interrupts"][0]["reason"]
    assert (reason["tool"], reason["input"]) == ("book_and_die", {"city": "Rome"})
    assert len(booked()) == 1
    outcomes = in_new_process(DIES, ["Go", (answer,)], ask).checked()
    assert outcomes[1]["text"] == "Done."
    assert len(booked()) == (2 if answer == "retry" else 1)
    result = rows("SELECT result FROM steps WHERE kind = 'tool' AND status = 'done'")[0][0]
    expected = {"retry": "booked Rome", "fail": "is unknown"}.get(
        answer if isinstance(answer, str) else "", "booked by phone"
    )
    assert expected in result
    assert ("started",) in rows("SELECT status FROM steps"), "the doubtful attempt stays on record"


def test_c12_an_answer_that_is_none_is_refused_and_nothing_is_lost() -> None:
    ask = {"tool_policies": {"book_and_die": ToolPolicy(in_doubt="ask")}}
    in_new_process(DIES, ["Go"], ask)
    outcomes = in_new_process(DIES, ["Go", ("perhaps",)], ask).checked()
    assert outcomes[1]["error"] == "InDoubtError"
    assert "perhaps" in outcomes[1]["text"]
    assert in_new_process(DIES, ["Go", ("retry",)], ask).checked()[1]["text"] == "Done."


def test_c12_fail_returns_an_unknown_outcome_to_the_model() -> None:
    fail = {"tool_policies": {"book_and_die": ToolPolicy(in_doubt="fail")}}
    assert in_new_process(DIES, ["Go"], fail).exitcode == -signal.SIGKILL
    assert in_new_process(DIES, ["Go"], fail).checked()[0]["text"] == "Done."
    assert len(booked()) == 1
    result = rows("SELECT result FROM steps WHERE kind = 'tool' AND status = 'done'")[0][0]
    assert "It may or may not have taken effect" in result


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("happened", [False, True])
def test_c12_verify_asks_a_callback_whether_it_happened(happened: bool, asynchronous: bool) -> None:
    made: list[str] = []
    asked: list[DoubtfulStep] = []

    def look(step: DoubtfulStep) -> Any:
        asked.append(step)
        return {"status": "success", "content": [{"text": "it was booked"}]} if happened else None

    async def look_async(step: DoubtfulStep) -> Any:
        return look(step)

    @policy(in_doubt="verify", verify=look_async if asynchronous else look)
    @tool
    def reserve(city: str) -> str:
        """Reserve."""
        made.append(city)
        return "reserved"

    crash_at("tool.done:before@1", agent_of([call("reserve", city="Rome"), "Done."], [reserve]))
    agent = agent_of([call("reserve", city="Rome"), "Done."], [reserve])
    agent("Go")
    assert tool_text(agent) == ("it was booked" if happened else "reserved")
    assert len(made) == (1 if happened else 2)
    assert (asked[0].tool, asked[0].input, asked[0].attempt) == ("reserve", {"city": "Rome"}, 1)


def test_c12_an_error_in_verify_is_an_in_doubt_error_and_runs_nothing() -> None:
    made: list[str] = []

    def broken(step: DoubtfulStep) -> Any:
        raise ConnectionError("the booking system is down")

    @policy(in_doubt="verify", verify=broken)
    @tool
    def reserve() -> str:
        """Reserve."""
        made.append("x")
        return "reserved"

    crash_at("tool.done:before@1", agent_of([call("reserve"), "Done."], [reserve]))
    with pytest.raises(errors.InDoubtError, match="the booking system is down"):
        agent_of([call("reserve"), "Done."], [reserve])("Go")
    assert len(made) == 1


def test_c12_retries_repeat_error_results_with_the_same_key_and_are_recorded() -> None:
    made: list[tuple[str, int]] = []

    @policy(retries=2)
    @tool
    def flaky() -> str:
        """Fail twice."""
        step = current_step()
        assert step is not None
        made.append((step.idempotency_key, step.attempt))
        if len(made) < 3:
            raise RuntimeError("not yet")
        return "fine"

    agent = agent_of([call("flaky"), "Done."], [flaky])
    agent("Go")
    assert tool_text(agent) == "fine"
    assert len({key for key, _ in made}) == 1
    assert rows("SELECT attempt, status FROM steps WHERE kind = 'tool'") == [(1, "failed"), (2, "failed"), (3, "done")]


def test_c12_a_timeout_leaves_the_step_in_doubt_and_its_policy_decides() -> None:
    @policy(timeout=0.05, in_doubt="fail")
    @tool
    async def sleepy() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "never"

    agent = agent_of([call("sleepy"), "Done."], [sleepy])
    agent("Go")
    assert "is unknown" in tool_text(agent)
    assert rows("SELECT attempt, status FROM steps WHERE kind = 'tool'") == [(1, "started"), (2, "done")]


def test_c12_a_timeout_is_retried_as_often_as_retries_say() -> None:
    made: list[int] = []

    @policy(timeout=0.5, retries=1)
    @tool
    async def sleepy() -> str:
        """Sleep the first time."""
        made.append(1)
        if len(made) == 1:
            await asyncio.sleep(60)
        return "awake"

    agent = agent_of([call("sleepy"), "Done."], [sleepy])
    agent("Go")
    assert (tool_text(agent), len(made)) == ("awake", 2)


def test_c12_a_model_call_in_doubt_asks_or_fails_if_configured() -> None:
    crash_at("model 0:chunk 0@1", agent_of(["Hello."]))
    with pytest.raises(errors.InDoubtError):
        agent_of(["Hello."], model_in_doubt="fail")("Go")
    forget_process()
    agent = agent_of(["Hello."], model_in_doubt="ask")
    asked = agent("Go")
    assert asked.stop_reason == "interrupt"
    assert agent.model.calls == 0
    assert str(agent(answers(asked, "retry"))) == "Hello.\n"
    assert agent.model.calls == 1


@pytest.mark.parametrize("is_new", [False, True])
def test_c12_a_model_call_in_doubt_is_not_made_again_if_a_person_says_so(is_new: bool) -> None:
    crash_at("model 0:chunk 0@1", agent_of(["Hello."]))
    agent = agent_of(["Hello."], model_in_doubt="ask")
    asked = agent("Go")
    if is_new:
        forget_process()
        agent = agent_of(["Hello."], model_in_doubt="ask")
    with pytest.raises(errors.InDoubtError):
        agent(answers(asked, "fail"))
    assert agent.model.calls == 0


def test_c12_policies_are_checked_when_they_are_written_down() -> None:
    for wrong in ({"in_doubt": "maybe"}, {"in_doubt": "verify"}, {"verify": print}, {"retries": -1}, {"timeout": 0}):
        with pytest.raises(ValueError):
            ToolPolicy(**wrong)  # type: ignore[arg-type]


# C13


def test_c13_a_throttled_model_is_retried_by_strands_alone() -> None:
    strategy = ModelRetryStrategy(max_attempts=3, initial_delay=0, max_delay=0)
    script = [Answer(text="Done.", errors=[ModelThrottledException("slow")] * 2)]
    agent = agent_of(script, agent_options={"retry_strategy": strategy})
    agent("Go")
    assert agent.model.calls == 3
    assert rows("SELECT attempt, status FROM steps") == [(1, "failed"), (2, "failed"), (3, "done")]


def test_c13_when_strands_gives_up_the_call_has_failed() -> None:
    strategy = ModelRetryStrategy(max_attempts=2, initial_delay=0, max_delay=0)
    script = [Answer(text="Done.", errors=[ModelThrottledException("slow")] * 2)]
    agent = agent_of(script, agent_options={"retry_strategy": strategy})
    with pytest.raises(ModelThrottledException):
        agent("Go")
    assert rows("SELECT status FROM calls") == [("FAILED",)]
    assert agent.model.calls == 2


def test_c13_the_retries_of_a_model_continue_after_a_crash_and_begin_again_after_a_failure() -> None:
    def build() -> Agent:
        strategy = ModelRetryStrategy(max_attempts=3, initial_delay=0, max_delay=0)
        script = [Answer(text="Done.", errors=[ModelThrottledException("slow")] * 9)]
        return agent_of(script, agent_options={"retry_strategy": strategy})

    crash_at("model.start:before@3", build())
    for failed in (3, 6):
        with pytest.raises(ModelThrottledException):
            build()("Go")
        forget_process()
        assert rows("SELECT status FROM steps") == [("failed",)] * failed


def test_c16_an_inline_tool_has_no_intent_but_its_result_is_recorded() -> None:
    made: list[int] = []

    @policy(inline=True)
    @tool
    def quick() -> str:
        """Be quick."""
        made.append(1)
        return "quick"

    points = CrashPoints()
    with points.recording():
        agent_of([call("quick"), "Done."], [quick])("Go")
    assert not [point for point in points.reached if point.startswith("tool.start")]
    forget_process()
    agent = agent_of([call("quick"), "Done."], [quick])
    agent("Go")
    assert (tool_text(agent), made) == ("quick", [1])


def test_c12_a_tool_that_a_hook_cancels_is_no_step() -> None:
    def deny(event: BeforeToolCallEvent) -> None:
        event.cancel_tool = "not today"

    agent = agent_of([call("book", city="Rome"), "Done."], TOOLS, hooks=[deny])
    agent("Go")
    assert tool_text(agent) == "not today"
    assert rows("SELECT kind FROM steps") == [("model",), ("model",)]
    assert not os.path.exists("ledger.jsonl")
