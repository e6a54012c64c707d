"""C1 inside one living process: retry loops, services, notebooks, timeouts. What is finished is never done again."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import Status

from strands_durable import Durability, errors
from strands_durable.testing import ScriptedModel, call, forget_process
from tests import threads
from tests.script import answers
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:graph has no max_node_executions")

effects: Counter[str] = Counter()
TWO_TOOLS = [call("book", city="Paris"), call("ship", city="Paris"), "Done."]


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    effects.clear()


@tool
def book(city: str) -> str:
    """Book a hotel."""
    effects[f"book {city}"] += 1
    return f"booked {city}"


@tool
async def ship(city: str) -> str:
    """Ship something; the first time it takes for ever."""
    effects["ship"] += 1
    if effects["ship"] == 1:
        await asyncio.sleep(60)
    return "shipped"


@tool(context=True)
def ask(tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("question"))


class Unreliable(ScriptedModel):
    """A model that answers with an error a given number of times, from its second turn on."""

    failures = 0

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if len(messages) > 1 and effects["503"] < Unreliable.failures:
            effects["503"] += 1
            raise ConnectionError("503")
        effects["model"] += 1
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


def agent_of(script: Any, execution_id: str | None = "trip", plugin: Any = None, **options: Any) -> Agent:
    return Agent(
        model=Unreliable(script),
        tools=[book, ship, ask],
        plugins=[plugin or Durability("runs.db", execution_id=execution_id)],
        retry_strategy=ModelRetryStrategy(max_attempts=1),
        callback_handler=None,
        **options,
    )


def query(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def named(execution_id: str) -> dict[str, Any]:
    return {"execution_id": execution_id}


BOOKS = [call("book", city="Paris"), "Booked."]


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


@pytest.fixture
def fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unreliable, "failures", 1)


# A retry loop


@pytest.mark.parametrize("id_on", ["plugin", "call"])
@pytest.mark.parametrize("objects", ["one", "new"])
def test_c01_a_retry_loop_resumes_the_failed_call(fails_once: None, objects: str, id_on: str) -> None:
    agent, texts = agent_of(BOOKS, "trip" if id_on == "plugin" else None), []
    while not texts:
        try:
            texts.append(str(agent("Book", invocation_state=named("trip") if id_on == "call" else {})))
        except Exception:
            if objects == "new":
                agent = agent_of(BOOKS, "trip" if id_on == "plugin" else None)
    assert texts == ["Booked.\n"]
    assert effects["book Paris"] == 1
    assert query("SELECT status, attempt FROM calls") == [("COMPLETED", 2)]


def test_c01_a_failed_call_that_is_resumed_on_the_same_object_ends_as_if_it_had_not_failed(fails_once: None) -> None:
    script = [*[call("book", city=city) for city in ("Paris", "Rome", "Oslo")], "Booked."]
    agent = agent_of(script)
    with pytest.raises(Exception, match="503"):
        agent("Book", limits={"turns": 10})
    result = agent("Book", limits={"turns": 10})
    other = agent_of(script, "other")
    expected = other("Book", limits={"turns": 10})
    assert _plain(agent, result) == _plain(other, expected)
    assert result.metrics.latest_agent_invocation is not None
    assert len(result.metrics.latest_agent_invocation.cycles) == 4


def test_c01_a_failed_call_resumes_without_an_input(fails_once: None) -> None:
    agent = agent_of(BOOKS)
    with pytest.raises(Exception, match="503"):
        agent("Book")
    assert str(agent()) == "Booked.\n"
    assert effects["book Paris"] == 1


def test_c01_limits_count_over_the_tries_of_one_call(fails_once: None) -> None:
    script = [*[call("book", city=city) for city in ("Paris", "Rome", "Oslo")], "Booked."]
    agent = agent_of(script)
    with pytest.raises(Exception, match="503"):
        agent("Book", limits={"turns": 2})
    assert agent("Book", limits={"turns": 2}).stop_reason == "limit_turns"
    assert effects["book Rome"] == 1
    assert effects["book Oslo"] == 0


def test_c01_another_input_after_a_failure_is_a_further_call(fails_once: None) -> None:
    agent = agent_of([*BOOKS, "Never mind."])
    with pytest.raises(Exception, match="503"):
        agent("Book")
    agent("Forget it")
    assert query("SELECT position, input, status FROM calls") == [
        (0, '"Book"', "FAILED"), (1, '"Forget it"', "COMPLETED"),
    ]  # fmt: skip
    again = agent_of([*BOOKS, "Never mind."])
    with pytest.raises(Exception, match="503"):
        again("Book")
    assert str(again("Forget it")) == str(agent.messages[-1]["content"][0]["text"]) + "\n"
    assert effects["book Paris"] == 1


def test_c01_a_recorded_failure_that_was_coped_with_is_raised_as_often_as_it_is_asked_for(fails_once: None) -> None:
    agent = agent_of([*BOOKS, "Never mind."])
    with pytest.raises(Exception, match="503"):
        agent("Book")
    agent("Forget it")
    again = agent_of([*BOOKS, "Never mind."])
    for _ in range(3):
        with pytest.raises(Exception, match="503"):
            again("Book")
    assert again("Forget it").stop_reason == "end_turn"


def test_c01_on_failed_raise_holds_on_the_same_object_too(fails_once: None) -> None:
    agent = agent_of(BOOKS, plugin=Durability("runs.db", execution_id="trip", on_failed="raise"))
    with pytest.raises(Exception, match="503"):
        agent("Book")
    with pytest.raises(errors.ExecutionFailedError, match="503"):
        agent("Book")


def test_c01_an_agent_that_failed_is_tried_again_after_another_one_stood_in_for_it(fails_once: None) -> None:
    plugin = Durability("runs.db", execution_id="trip")
    first, second = (
        agent_of(BOOKS, plugin=plugin, agent_id="first"),
        agent_of(["Hm."], plugin=plugin, agent_id="second"),
    )
    with pytest.raises(Exception, match="503"):
        first("Book")
    second("What now?")
    assert str(first("Book")) == "Booked.\n"
    assert effects["book Paris"] == 1


def test_c01_answers_that_were_committed_are_not_asked_for_again_by_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of([call("ask"), "Thanks."])
    asked = agent("Go")
    monkeypatch.setattr(Unreliable, "failures", 1)
    with pytest.raises(Exception, match="503"):
        agent(answers(asked, "yes"))
    assert str(agent("Go")) == "Thanks.\n"
    assert query("SELECT status, attempt FROM calls") == [("COMPLETED", 3)]


# A service


def test_c01_an_id_given_with_a_call_names_one_call() -> None:
    agent = agent_of(BOOKS, None)
    first = agent("Book", invocation_state=named("order-7"))
    again = [str(agent("Book", invocation_state=named("order-7"))) for _ in range(2)]
    assert again == [str(first)] * 2
    assert effects["book Paris"] == 1
    assert str(agent_of(BOOKS, None)("Book", invocation_state=named("order-7"))) == str(first)
    assert str(agent(None, invocation_state=named("order-7"))) == str(first)
    with pytest.raises(errors.InputMismatchError, match="names that one call"):
        agent("Book another", invocation_state=named("order-7"))
    assert query("SELECT count(*) FROM calls") == [(1,)]


def test_c01_requests_with_ids_of_their_own_share_an_agent() -> None:
    agent = agent_of(lambda turn, messages: call("book", city=f"no {turn}") if turn % 2 == 0 else "Booked.", None)
    for order in range(3):
        agent("Book", invocation_state=named(f"order-{order}"))
    for order in range(3):
        agent("Book", invocation_state=named(f"order-{order}"))
    assert sum(effects[f"book no {turn}"] for turn in range(0, 6, 2)) == 3


def test_c01_a_call_is_resumed_by_an_object_that_has_served_others(fails_once: None) -> None:
    """A restarted service does not have the messages that the call began with."""
    agent = agent_of(lambda turn, messages: call("book", city=f"no {turn}") if turn % 2 == 0 else "Booked.", None)
    Unreliable.failures = 0
    agent("Book", invocation_state=named("order-1"))
    Unreliable.failures = 1
    with pytest.raises(Exception, match="503"):
        agent("Book", invocation_state=named("order-2"))
    forget_process()
    fresh = agent_of(lambda turn, messages: call("book", city=f"no {turn}") if turn % 2 == 0 else "Booked.", None)
    assert str(fresh("Book", invocation_state=named("order-2"))) == "Booked.\n"
    assert effects["book no 2"] == 1


def test_c01_a_suspended_call_returns_its_questions_to_every_request() -> None:
    agent = agent_of([call("ask"), "Thanks."], None)
    first = agent("Go", invocation_state=named("order-7"))
    again = agent("Go", invocation_state=named("order-7"))
    assert again.stop_reason == "interrupt"
    assert [found.id for found in again.interrupts or ()] == [found.id for found in first.interrupts or ()]
    with pytest.raises(errors.InputMismatchError):
        agent("Something else", invocation_state=named("order-7"))
    assert str(agent(answers(again, "yes"), invocation_state=named("order-7"))) == "Thanks.\n"
    assert str(agent("Go", invocation_state=named("order-7"))) == "Thanks.\n"
    assert query("SELECT count(*) FROM calls") == [(1,)]


def test_c01_another_agent_under_the_id_of_a_call_is_refused() -> None:
    agent_of(BOOKS, None, agent_id="booker")("Book", invocation_state=named("order-7"))
    with pytest.raises(errors.InputMismatchError, match=r"'booker'.*'shipper'"):
        agent_of(BOOKS, None, agent_id="shipper")("Book", invocation_state=named("order-7"))


def test_c01_restart_under_the_id_of_a_call_is_a_new_run_each_time() -> None:
    agent = agent_of(BOOKS, plugin=Durability("runs.db", on_completed="restart"))
    for _ in range(2):
        agent.messages.clear()
        agent("Book", invocation_state=named("order-7"))
    assert query("SELECT run, status FROM calls") == [(0, "COMPLETED"), (1, "COMPLETED")]


# A notebook


def test_c01_a_notebook_cell_that_is_run_again_returns_what_it_did() -> None:
    texts = {str(agent_of(BOOKS)("Book")) for _ in range(3)}
    assert texts == {"Booked.\n"}
    assert effects["book Paris"] == 1
    assert query("SELECT count(*) FROM calls") == [(1,)]


def test_c01_what_a_repeat_does_does_not_depend_on_who_is_still_alive() -> None:
    kept = [agent_of(BOOKS) for _ in range(2)]
    assert [str(agent("Book")) for agent in kept] == ["Booked.\n"] * 2
    del kept
    gc.collect()
    assert str(agent_of(BOOKS)("Book")) == "Booked.\n"
    assert effects["book Paris"] == 1


def test_c01_each_object_walks_the_list_from_its_beginning() -> None:
    script = ["One.", call("book", city="Rome"), "Two.", "Three."]
    first = agent_of(script)
    assert [str(first("a")), str(first("b"))] == ["One.\n", "Two.\n"]
    second = agent_of(script)
    assert [str(second("a")), str(second("b")), str(second("c"))] == ["One.\n", "Two.\n", "Three.\n"]
    assert str(first("c")) == "Three.\n"
    assert effects["book Rome"] == 1
    assert first.messages == second.messages
    assert first.event_loop_metrics.accumulated_usage == second.event_loop_metrics.accumulated_usage
    assert query("SELECT position, input FROM calls") == [(0, '"a"'), (1, '"b"'), (2, '"c"')]


def test_c01_objects_that_take_turns_write_one_conversation() -> None:
    """Each appends to the same log: what one has written, the other reads before it writes."""
    script = ["One.", "Two.", "Three.", "Four."]
    first, second = agent_of(script), agent_of(script)
    first("a")
    second("a"), second("b")
    first("b"), first("c")
    second("c"), second("d")
    assert [str(agent_of(script)("a")), len(second.messages)] == ["One.\n", 8]
    assert query("SELECT count(*) FROM messages") == [(8,)]


def test_c07_the_error_of_a_second_object_with_another_input_asks_for_an_agent_id_of_its_own() -> None:
    first = agent_of(["One."])
    first("a")
    with pytest.raises(errors.InputMismatchError, match="needs its own agent_id"):
        agent_of(["One.", "Two."])("b")
    assert query("SELECT count(*) FROM calls") == [(1,)]


def test_c01_an_agent_and_a_graph_of_one_name_are_not_taken_for_each_other() -> None:
    graph_of(BOOKS)("Book")
    with pytest.raises(errors.InputMismatchError, match="graph"):
        agent_of(BOOKS, agent_id="default_graph")("Book")


def test_c01_restart_starts_over_for_each_object_and_agents_of_a_run_stay_together() -> None:
    def run() -> list[str]:
        plugin = Durability("runs.db", execution_id="trip", on_completed="restart")
        one, two = (agent_of(["A.", "B."], plugin=plugin, agent_id=name) for name in ("one", "two"))
        return [str(one("x")), str(two("y")), str(one("z"))]

    assert run() == run() == ["A.\n", "A.\n", "B.\n"]
    assert query("SELECT run, scope FROM calls") == [
        (0, "one"), (0, "two"), (0, "one"), (1, "one"), (1, "two"), (1, "one"),
    ]  # fmt: skip


# A caller that leaves


@in_a_loop
async def test_c01_a_call_that_timed_out_is_resumed_and_finished_tools_are_not_run_again() -> None:
    agent = agent_of(TWO_TOOLS)
    with pytest.raises(TimeoutError):
        await _until_shipping(agent.invoke_async("Go"))
    assert query("SELECT status FROM executions") == [("RUNNING",)]
    assert str(await agent.invoke_async("Go")) == "Done.\n"
    assert effects["book Paris"] == 1
    assert query("SELECT status, attempt FROM calls") == [("COMPLETED", 2)]
    forget_process()
    assert str(await agent_of(TWO_TOOLS).invoke_async("Go")) == "Done.\n"
    assert effects["ship"] == 2  # it was running when the caller left: retried with the same idempotency key


@in_a_loop
async def test_c01_a_call_whose_task_was_cancelled_is_resumed_by_a_new_object() -> None:
    with pytest.raises(TimeoutError):
        await _until_shipping(agent_of(TWO_TOOLS).invoke_async("Go"))
    assert str(await agent_of(TWO_TOOLS).invoke_async("Go")) == "Done.\n"
    assert effects["book Paris"] == 1


@pytest.mark.parametrize("closed", ["at once", "never"])
@in_a_loop
async def test_c01_a_stream_that_was_broken_off_is_resumed(closed: str) -> None:
    agent = agent_of([call("book", city="Paris"), call("book", city="Rome"), "Done."])
    stream = agent.stream_async("Go")
    async for event in stream:
        if "message" in event and event["message"]["role"] == "user" and effects["book Paris"]:
            break
    if closed == "at once":
        await stream.aclose()
    del stream
    assert str(await agent.invoke_async("Go")) == "Done.\n"
    assert effects == {"book Paris": 1, "book Rome": 1, "model": 3}


@in_a_loop
async def test_c01_another_input_after_a_timeout_ends_the_call_that_was_left() -> None:
    agent = agent_of([*TWO_TOOLS[:2], "Never mind."])
    with pytest.raises(TimeoutError):
        await _until_shipping(agent.invoke_async("Go"))
    await agent.invoke_async("Forget it")
    assert query("SELECT position, status FROM calls") == [(0, "FAILED"), (1, "COMPLETED")]
    assert query("SELECT status FROM executions") == [("COMPLETED",)]
    messages = [dict(message) for message in agent.messages]
    forget_process()
    again = agent_of([*TWO_TOOLS[:2], "Never mind."])
    with pytest.raises(TimeoutError, match="cancelled by its caller") as caught:
        await asyncio.wait_for(again.invoke_async("Go"), 10)
    assert isinstance(caught.value, errors.CallCancelledError)
    assert (await again.invoke_async("Forget it")).stop_reason == "end_turn"
    assert again.messages == messages
    assert effects["ship"] == effects["book Paris"] == 1


@in_a_loop
async def test_c01_a_keyboard_interrupt_in_a_call_leaves_it_to_be_resumed() -> None:
    @tool
    def press() -> str:
        """Be interrupted from the keyboard, once."""
        effects["press"] += 1
        if effects["press"] == 1:
            raise KeyboardInterrupt
        return "pressed"

    agent = Agent(
        model=ScriptedModel([call("press"), "Done."]), tools=[press], callback_handler=None,
        plugins=[Durability("runs.db", execution_id="trip")],
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        await agent.invoke_async("Go")
    assert str(await agent.invoke_async("Go")) == "Done.\n"
    assert query("SELECT status, attempt FROM calls") == [("COMPLETED", 2)]


def test_c01_another_input_after_ctrl_c_is_a_further_call() -> None:
    @tool
    def press() -> str:
        """Have Ctrl-C pressed, once."""
        effects["press"] += 1
        if effects["press"] == 1:
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: signal.getsignal(signal.SIGINT) is signal.SIG_DFL)  # it was heard
        return "pressed"

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agent = Agent(
            model=ScriptedModel([call("press"), "Done.", "Never mind."]), tools=[press], callback_handler=None,
            plugins=[Durability("runs.db", execution_id="trip")],
        )  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            agent("Go")
        agent("Forget it")
    finally:
        signal.signal(signal.SIGINT, before)
    assert query("SELECT position, status FROM calls") == [(0, "FAILED"), (1, "COMPLETED")]
    assert effects["press"] == 1


async def _until_shipping(invocation: Any) -> Any:
    """Cancel a call while its second tool runs, as a timeout does."""
    task = asyncio.ensure_future(invocation)
    while not effects["ship"]:
        await asyncio.sleep(0.001)
    return await asyncio.wait_for(task, 0.01)


# Orchestrators


def graph_of(script: Any, execution_id: str | None = "trip") -> Any:
    builder = GraphBuilder()
    builder.add_node(agent_of_node(lambda turn, messages: "Seen.", "first"), "first")
    builder.add_node(agent_of_node(script, "second"), "second")
    builder.add_edge("first", "second")
    builder.set_plugins([Durability("runs.db", execution_id=execution_id)])
    return builder.build()


def agent_of_node(script: Any, name: str) -> Agent:
    return Agent(
        model=Unreliable(script), name=name, tools=[book, ship], callback_handler=None,
        retry_strategy=ModelRetryStrategy(max_attempts=1),
    )  # fmt: skip


def swarm_of(script: Any, execution_id: str | None = "trip") -> Swarm:
    return Swarm([agent_of_node(script, "only")], plugins=[Durability("runs.db", execution_id=execution_id)])


@pytest.mark.parametrize("build", [graph_of, swarm_of])
def test_c01_a_cell_that_builds_an_orchestrator_returns_what_it_did(build: Any) -> None:
    statuses = {build(BOOKS)("Book").status for _ in range(3)}
    assert statuses == {Status.COMPLETED}
    assert effects["book Paris"] == 1


@pytest.mark.parametrize("build", [graph_of, swarm_of])
def test_c01_an_id_given_with_a_call_of_an_orchestrator_names_one_call(build: Any) -> None:
    found = build(BOOKS, None)
    for _ in range(3):
        assert found("Book", invocation_state=named("order-7")).status is Status.COMPLETED
    with pytest.raises(errors.InputMismatchError):
        found("Book another", invocation_state=named("order-7"))
    assert effects["book Paris"] == 1


@pytest.mark.parametrize("objects", ["one", "new"])
@pytest.mark.parametrize("build", [graph_of, swarm_of])
def test_c01_a_retry_loop_around_an_orchestrator_resumes_it(fails_once: None, build: Any, objects: str) -> None:
    found, result = build(BOOKS), None
    for _ in range(3):
        try:
            result = found("Book")
            if result.status is Status.COMPLETED:
                break
        except Exception:
            pass
        if objects == "new":
            found = build(BOOKS)
    assert result is not None
    assert result.status is Status.COMPLETED
    assert effects["book Paris"] == 1
    assert effects["503"] == 1


@in_a_loop
async def test_c01_an_orchestrator_that_timed_out_is_resumed() -> None:
    graph = graph_of(TWO_TOOLS)
    with pytest.raises(TimeoutError):
        await _until_shipping(graph.invoke_async("Go"))
    result = await graph.invoke_async("Go")
    assert result.status is Status.COMPLETED
    assert effects["book Paris"] == 1
    expected = await graph_of(TWO_TOOLS, "other").invoke_async("Go")
    assert result.accumulated_usage == expected.accumulated_usage


@in_a_loop
async def test_c01_another_task_after_a_timeout_is_a_further_call_of_an_orchestrator() -> None:
    graph = graph_of([*TWO_TOOLS[:2], "Never mind."])
    with pytest.raises(TimeoutError):
        await _until_shipping(graph.invoke_async("Go"))
    await graph.invoke_async("Forget it")
    assert query("SELECT position, status FROM calls WHERE parent = 0") == [(0, "FAILED"), (1, "COMPLETED")]


# One at a time


@in_a_loop
async def test_c07_a_second_task_is_busy_and_another_input_is_said_first() -> None:
    agents = [agent_of(TWO_TOOLS, None) for _ in range(2)]
    task = asyncio.ensure_future(agents[0].invoke_async("Go", invocation_state=named("order-7")))
    while not effects["ship"]:
        await asyncio.sleep(0.001)
    for agent in agents:  # the object that is in the call, and another one
        with pytest.raises(errors.ExecutionBusyError):
            await agent.invoke_async("Go", invocation_state=named("order-7"))
    with pytest.raises(errors.InputMismatchError):
        await agents[1].invoke_async("Other", invocation_state=named("order-7"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effects["book Paris"] == 1


def test_c07_threads_that_ask_for_one_id_get_one_run() -> None:
    """Each thread has an agent of its own, and tries until it is its turn."""
    texts: list[str] = []

    def serve() -> None:
        while True:
            try:
                texts.append(str(agent_of(BOOKS, None)("Book", invocation_state=named("order-7"))))
                return
            except errors.ExecutionBusyError:
                continue

    serving = [threading.Thread(target=serve) for _ in range(8)]
    for thread in serving:
        thread.start()
    threads.join(*serving)
    assert texts == ["Booked.\n"] * 8
    assert effects["book Paris"] == 1
    assert query("SELECT count(*) FROM calls") == [(1,)]


def test_c07_a_stream_whose_loop_was_closed_does_not_keep_the_execution() -> None:
    agent = agent_of([call("book", city="Paris"), call("book", city="Rome"), "Done."])
    loop = asyncio.new_event_loop()
    stream = agent.stream_async("Go")

    async def begin() -> None:
        async for event in stream:
            if "message" in event and effects["book Paris"]:
                return

    loop.run_until_complete(begin())
    loop.close()
    assert str(agent_of([call("book", city="Paris"), call("book", city="Rome"), "Done."])("Go")) == "Done.\n"
    assert effects["book Paris"] == effects["book Rome"] == 1


def _plain(agent: Agent, result: Any) -> Any:
    usage = result.metrics.accumulated_usage
    tools = {name: (found.call_count, found.success_count) for name, found in result.metrics.tool_metrics.items()}
    messages = [(message["role"], [_content(block) for block in message["content"]]) for message in agent.messages]
    return str(result), usage, tools, result.metrics.cycle_count, messages


def _content(block: dict[str, Any]) -> Any:
    return [block.get("text"), block.get("toolUse", {}).get("input"), block.get("toolResult", {}).get("content")]
