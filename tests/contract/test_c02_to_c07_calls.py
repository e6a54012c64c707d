"""C2 to C7: what failure and cancel mean, answers, bases and heads, ids, one call at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import threading
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, MessageAddedEvent

from strands_durable import Durability, errors
from strands_durable._calls.local_execution import _REMEMBERED_EXECUTIONS, local_executions
from strands_durable.testing import Answer, ScriptedModel, call, forget_process
from tests.script import in_new_process, ledger

ASKS_TWICE = [[call("approve", what="flight"), call("approve", what="hotel")], "Both."]
ANSWERED = "SELECT interrupt_id, answer FROM answers"


def query(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def agent_of(script: list[Any], *, execution_id: str | None = "trip", tools: Any = (), **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        tools=list(tools),
        plugins=[Durability("runs.db", execution_id=execution_id)],
        callback_handler=None,
        **options,
    )


def test_c02_a_failure_is_never_deleted() -> None:
    script = [call("book", city="Paris"), "Booked."]
    in_new_process(script, ["Book"], model="FailsOnce").checked()
    assert query("SELECT status FROM calls") == [("FAILED",)]
    in_new_process(script, ["Book"], model="FailsOnce").checked()
    assert query("SELECT status, attempt FROM calls") == [("COMPLETED", 2)]
    assert len(query("SELECT error FROM failures")) == 1
    assert ("failed",) in query("SELECT status FROM steps WHERE kind = 'model'")


def test_c02_a_killed_process_and_an_abandoned_stream_leave_the_call_running() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    async def abandon() -> None:
        stream = agent_of([call("look"), "Seen."], tools=[look]).stream_async("Look")
        async for event in stream:
            if "current_tool_use" in event:
                break
        await stream.aclose()

    asyncio.run(abandon())
    assert query("SELECT status FROM calls") == [("RUNNING",)]
    assert query("SELECT owner FROM executions") == [(None,)], "the lease is released where that is possible"
    forget_process()
    assert str(agent_of([call("look"), "Seen."], tools=[look])("Look")) == "Seen.\n"


def test_c03_agent_cancel_gives_a_result_and_the_call_is_completed() -> None:
    @tool(context=True)
    def stop(tool_context: ToolContext) -> str:
        """Stop the loop."""
        tool_context.agent.cancel(message="enough", after_current_tools=True)
        return "stopping"

    result = agent_of([call("stop")], tools=[stop])("Go")
    assert (result.stop_reason, str(result)) == ("cancelled", "enough\n")
    assert query("SELECT status FROM calls") == [("COMPLETED",)]
    forget_process()
    again = agent_of([call("stop")], tools=[stop])("Go")
    assert (again.stop_reason, str(again)) == ("cancelled", "enough\n")


def test_c03_a_cancel_signal_gives_a_result() -> None:
    signalled = threading.Event()
    signalled.set()
    result = agent_of(["Never said."])("Go", cancel_signal=signalled)
    assert result.stop_reason == "cancelled"
    assert query("SELECT status FROM calls") == [("COMPLETED",)]


def test_c03_in_one_process_strands_decides_about_a_prompt_where_answers_are_due() -> None:
    outcomes = in_new_process([call("approve", what="x"), "Done."], ["Ask", "A plain prompt", ("yes",)]).checked()
    assert outcomes[1]["error"] == "TypeError"
    assert outcomes[2]["text"] == "Done."
    assert query("SELECT count(*) FROM calls") == [(1,)]


def test_c04_answers_are_committed_before_anything_runs_and_survive_a_kill() -> None:
    script = [call("approve", what="trip"), call("book_and_die", city="Rome"), "Done."]
    assert in_new_process(script, ["Ask", ("yes",)]).exitcode == -signal.SIGKILL
    assert [answer for _, answer in query(ANSWERED)] == ['"yes"']
    outcome = in_new_process(script, ["Ask"]).checked()[0]
    assert (outcome["stop_reason"], outcome["text"]) == ("end_turn", "Done.")


def test_c04_the_same_answers_again_change_nothing_and_others_are_refused() -> None:
    script = [call("approve", what="trip"), "Done."]
    interrupts = in_new_process(script, ["Ask"]).checked()[0]["interrupts"]

    def answer(value: Any, interrupt_id: str = interrupts[0]["id"]) -> list[Any]:
        return [{"interruptResponse": {"interruptId": interrupt_id, "response": value}}]

    assert in_new_process(script, [answer("yes")]).checked()[0]["text"] == "Done."
    assert in_new_process(script, ["Ask", answer("yes")]).checked()[1]["text"] == "Done."
    assert in_new_process(script, ["Ask", answer("no")]).checked()[1]["error"] == "InputMismatchError"
    assert in_new_process(script, [answer("yes")]).checked()[0]["text"] == "Done."
    assert [value for _, value in query(ANSWERED)] == ['"yes"']


def test_c04_unknown_ids_are_refused() -> None:
    unknown = [{"interruptResponse": {"interruptId": "v1:nobody:asked", "response": "yes"}}]
    outcomes = in_new_process([call("approve", what="x"), "Done."], ["Ask", unknown]).checked()
    assert outcomes[1]["error"] == "KeyError"
    assert query(ANSWERED) == []
    assert in_new_process([call("approve", what="x"), "Done."], ["Ask"]).checked()[0]["stop_reason"] == "interrupt"


def test_c04_answers_without_a_question_are_refused_and_not_recorded() -> None:
    unasked = [{"interruptResponse": {"interruptId": "v1:nobody:asked", "response": "yes"}}]
    assert in_new_process(["Hi."], [unasked]).checked()[0]["error"] == "ValueError"
    assert query("SELECT count(*) FROM calls") == [(0,)]


def test_c04_partial_answers_run_what_they_can_and_suspend_again() -> None:
    outcomes = in_new_process(ASKS_TWICE, ["Ask", ("first",)]).checked()
    assert [len(outcome["interrupts"]) for outcome in outcomes] == [2, 1]
    last = in_new_process(ASKS_TWICE, ["Ask", ("second",)]).checked()
    assert last[0] == outcomes[1]
    assert last[1]["text"] == "Both."
    assert [value for _, value in query(ANSWERED)] == ['"first"', '"second"']
    asked = [entry["what"] for entry in ledger.read() if entry.get("name") == "approve"]
    assert sorted(asked) == ["flight", "flight", "hotel", "hotel"], "no tool ran without an answer for it"


def test_c05_a_call_records_the_agent_as_it_found_it_and_its_closing_head() -> None:
    first = agent_of(["One.", "Two."], messages=[{"role": "user", "content": [{"text": "Before"}]}], state={"k": 1})
    first("a")
    first.messages.append({"role": "user", "content": [{"text": "Put in by hand"}]})
    first.state.set("k", 2)
    first("b")
    forget_process()
    again = agent_of(["One.", "Two."], messages=[{"role": "user", "content": [{"text": "Before"}]}], state={"k": 1})
    again("a")
    assert [message["content"][0]["text"] for message in again.messages] == ["Before", "a", "One."]
    assert again.state.get("k") == 1
    again("b")
    assert again.messages == first.messages
    assert again.state.get("k") == 2


def test_c05_state_that_a_call_found_and_left_alone_is_not_stored_again() -> None:
    @tool(context=True)
    def put(tool_context: ToolContext) -> str:
        """Put."""
        tool_context.agent.state.set("new", 1)
        return "put"

    script = ["One.", "Two.", call("put"), "Three.", "Four."]
    agent = agent_of(script, tools=[put], state={"big": "x" * 1000})
    for prompt in "abcd":
        agent(prompt)
    rows = query("SELECT call, count(*) FROM state GROUP BY call")
    assert rows == [(1, 1), (3, 2)]
    forget_process()
    again = agent_of(script, tools=[put], state={"big": "x" * 1000})
    seen = []
    for prompt in "abcd":
        again(prompt)
        seen.append(sorted(again.state.get()))
    assert seen == [["big"], ["big"], ["big", "new"], ["big", "new"]]


def test_c05_returning_a_record_fires_no_hook_and_no_callback() -> None:
    agent_of(["One."])("a")
    forget_process()
    fired: list[Any] = []
    agent = agent_of(["One."])
    agent.callback_handler = lambda **event: fired.append(event)
    for event_type in (BeforeInvocationEvent, AfterInvocationEvent, MessageAddedEvent):
        agent.add_hook(lambda event: fired.append(event), event_type)
    result = agent("a")
    assert str(result) == "One.\n"
    assert fired == []
    assert result.message is agent.messages[-1]


def test_c06_without_an_id_each_call_is_a_new_execution_whose_id_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    agent = agent_of(["One.", "Two."], execution_id=None)
    state: dict[str, Any] = {}
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        agent("a", invocation_state=state)
        agent("b")
    ids = [found for (found,) in query("SELECT execution_id FROM executions ORDER BY id")]
    assert state["execution_id"] == ids[0]
    assert len(set(ids)) == 2
    assert all(f"execution_id=<{found}> | new execution" in caplog.text for found in ids)


def test_c06_an_id_given_per_call_wins() -> None:
    agent_of(["One."], execution_id="general")("a", invocation_state={"execution_id": "special"})
    assert query("SELECT execution_id FROM executions") == [("special",)]


def test_c06_answers_without_an_id_go_to_the_execution_that_asked() -> None:
    @tool(context=True)
    def ask(tool_context: ToolContext) -> str:
        """Ask."""
        return str(tool_context.interrupt("q"))

    agent = agent_of([call("ask"), "Done."], execution_id=None, tools=[ask])
    found = agent("Go").interrupts
    assert found is not None
    assert str(agent([{"interruptResponse": {"interruptId": found[0].id, "response": "yes"}}])) == "Done.\n"
    assert query("SELECT status FROM executions") == [("COMPLETED",)]


def test_c06_a_process_with_very_many_executions_does_not_keep_them() -> None:
    agent = agent_of(lambda turn, messages: "Hi.", execution_id=None)
    for _ in range(20):
        agent.messages.clear()
        agent("Hello")
    assert local_executions._executions == {}
    named = agent_of(lambda turn, messages: "Hi.")
    for number in range(_REMEMBERED_EXECUTIONS + 20):
        named.messages.clear()
        named("Hello", invocation_state={"execution_id": f"run-{number}"})
    assert len(local_executions._executions) == _REMEMBERED_EXECUTIONS


def test_c05_a_conversation_that_the_process_forgot_is_read_back_and_not_stored_twice() -> None:
    agent = agent_of(["One.", "Two."])
    agent("a")
    next(iter(local_executions._executions.values())).trackers.clear()
    agent("b")
    assert query("SELECT count(*) FROM messages") == [(4,)]


@pytest.mark.parametrize("bad", ["", "a b", "../x", "x'; DROP TABLE calls", "a" * 201, "ä", 7])
def test_c06_an_id_is_checked_before_it_is_used(bad: Any) -> None:
    with pytest.raises(errors.DurableError, match="is not a valid execution_id"):
        Durability("runs.db", execution_id=bad)
    with pytest.raises(errors.DurableError, match="is not a valid execution_id"):
        agent_of(["One."])("a", invocation_state={"execution_id": bad})
    assert not os.path.exists("runs.db")


def test_c06_direct_tool_calls_are_not_steps() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool(context=True)
    def outer(tool_context: ToolContext) -> str:
        """Call another tool."""
        inner = tool_context.agent.tool.add(a=1, b=2, record_direct_tool_call=False)
        return str(inner["content"][0]["text"])

    agent = agent_of([call("outer"), "Done."], tools=[add, outer])
    agent.tool.add(a=1, b=1, record_direct_tool_call=False)
    agent("Go")
    assert query("SELECT name FROM steps WHERE kind = 'tool'") == [("outer",)]


def test_c07_one_root_call_at_a_time_also_within_a_process() -> None:
    refused: list[str] = []
    durability = Durability("runs.db", execution_id="trip")

    @tool
    async def call_another() -> str:
        """Have another thread call another agent of the same execution."""

        def work() -> None:
            other = Agent(model=ScriptedModel(["Hi."]), agent_id="other", plugins=[durability], callback_handler=None)
            try:
                other("Hello")
            except errors.ExecutionBusyError as error:
                refused.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        return "tried"

    agent = Agent(
        model=ScriptedModel([call("call_another"), "Done."]), tools=[call_another], plugins=[durability],
        callback_handler=None,
    )  # fmt: skip
    agent("Go")
    assert len(refused) == 1
    assert "Another call in this process has not ended yet" in refused[0]


def test_c07_agents_that_share_a_durability_take_turns_in_one_execution() -> None:
    def run() -> list[str]:
        durability = Durability("runs.db", execution_id="trip")
        one, two = (
            Agent(model=ScriptedModel(["A.", "B."]), agent_id=agent_id, plugins=[durability], callback_handler=None)
            for agent_id in ("one", "two")
        )
        return [str(one("x")), str(two("y")), str(one("z"))]

    first = run()
    forget_process()
    assert run() == first == ["A.\n", "A.\n", "B.\n"]
    assert query("SELECT position, scope FROM calls") == [(0, "one"), (1, "two"), (2, "one")]


def test_c01_a_max_tokens_answer_fails_the_same_way_again_and_is_not_paid_for_twice() -> None:
    def run() -> tuple[str, int]:
        agent = agent_of([Answer(text="cut off", stop_reason="max_tokens")])
        with pytest.raises(Exception, match="maximum token limit") as caught:
            agent("Go")
        return type(caught.value).__name__, agent.model.calls

    first = run()
    forget_process()
    assert run() == ("MaxTokensReachedException", 0)
    assert first == ("MaxTokensReachedException", 1)
