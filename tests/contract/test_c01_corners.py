"""C1 and C7 in the corners: what happens between a commit and its caller, between two objects, and after a removal."""

from __future__ import annotations

import asyncio
import functools
import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import Status
from strands.types.exceptions import ConcurrencyException

from strands_durable import Durability, connect, errors
from strands_durable._records.crash_points import listen
from strands_durable.testing import ScriptedModel, call, forget_process, reach
from tests.script import answers

effects: Counter[str] = Counter()
TWO_TOOLS = [call("book", city="Paris"), call("pay", amount=1), "Done."]


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    effects.clear()


@tool
def book(city: str) -> str:
    """Book a hotel."""
    effects[f"book {city}"] += 1
    reach("book")
    return f"booked {city}"


@tool
async def pay(amount: int) -> str:
    """Pay a bill."""
    effects[f"pay {amount}"] += 1
    reach("pay")
    await asyncio.sleep(0)
    return "paid"


@tool(context=True)
def ask(tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("question"))


class Unreliable(ScriptedModel):
    """A model that answers with an error as often as `failures` says, from its second turn on."""

    failures = 0

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if len(messages) > 1 and Unreliable.failures > 0:
            Unreliable.failures -= 1
            raise ConnectionError("503")
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


@pytest.fixture
def fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unreliable, "failures", 1)


def plain_agent(script: Any, **options: Any) -> Agent:
    return Agent(
        model=Unreliable(script),
        tools=[book, pay, ask, *options.pop("more", ())],
        retry_strategy=ModelRetryStrategy(max_attempts=1),
        callback_handler=None,
        **options,
    )


def agent_of(script: Any, execution_id: str | None = "trip", **options: Any) -> Agent:
    return plain_agent(script, plugins=[Durability("runs.db", execution_id=execution_id)], **options)


def graph_of(nodes: dict[str, Any], execution_id: str | None = "trip") -> Any:
    """A graph whose nodes come one after the other."""
    builder = GraphBuilder()
    for name, script in nodes.items():
        builder.add_node(plain_agent(script, name=name), name)
    names = list(nodes)
    for before, after in itertools.pairwise(names):
        builder.add_edge(before, after)
    builder.set_max_node_executions(10)
    builder.set_plugins([Durability("runs.db", execution_id=execution_id)])
    return builder.build()


def query(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


def test_c01_a_graph_that_failed_after_an_answer_succeeds_when_it_is_tried_again(monkeypatch: Any) -> None:
    graph = graph_of({"asks": [call("ask"), "Thanks."], "last": ["Done."]})
    given = answers(graph("Go"), "yes")
    monkeypatch.setattr(Unreliable, "failures", 1)
    with pytest.raises(Exception, match="503"):
        graph(given)
    result = graph(given)
    assert result.status is Status.COMPLETED
    assert result.failed_nodes == 0
    assert query("SELECT status FROM executions") == [("COMPLETED",)]


# An execution that was removed


def _remove(how: str) -> None:
    if how == "execution":
        asyncio.run(connect("sqlite:///runs.db").remove("trip"))
        return
    for file in Path().glob("runs.db*"):
        file.unlink()


@pytest.mark.parametrize("how", ["execution", "file"])
def test_c01_an_object_whose_execution_was_removed_begins_a_new_list(how: str) -> None:
    agent = agent_of(["One.", "Two.", "Three."])
    agent("a")
    _remove(how)
    if how == "file":
        with pytest.raises(errors.BackendUnavailableError):
            agent("b")
    agent_of(["Other."], "other")("x")  # takes the numbers that the removal has made free
    assert str(agent("b")) == "Two.\n"
    forget_process()
    again = agent_of(["One.", "Two.", "Three."], messages=agent.messages[:2])
    assert [str(again("b")), len(again.messages)] == ["Two.\n", 4]
    assert query("SELECT position, input, id = lineage FROM calls") == [(0, '"x"', 1), (0, '"b"', 1)]


def test_c01_answers_to_an_execution_that_was_removed_belong_to_no_call() -> None:
    agent = agent_of([call("ask"), "Thanks."])
    asked = agent("Go")
    _remove("execution")
    assert str(agent(answers(asked, "yes"))) == "Thanks.\n"
    assert query("SELECT position, status FROM calls") == [(0, "COMPLETED")]


# A recorded end that cannot be given back


class Trip(BaseModel):
    """What the first version of an agent gives."""

    city: str


class PricedTrip(BaseModel):
    """And the second."""

    city: str
    price: float


def test_c01_a_result_that_no_longer_fits_its_model_is_the_same_error_each_time_and_never_a_new_call() -> None:
    script = [call("book", city="Paris"), call("Trip", city="Paris"), call("book", city="Rome"), "Done."]
    agent_of(script, structured_output_model=Trip)("Go")
    changed = agent_of(script, structured_output_model=PricedTrip)
    for _ in range(2):
        with pytest.raises(ValueError, match="price"):
            changed("Go")
    assert effects == {"book Paris": 1}
    assert query("SELECT count(*) FROM calls") == [(1,)]


@pytest.mark.parametrize("kind", ["graph", "swarm", "nested"])
def test_c01_a_finished_orchestrator_is_returned_although_a_node_is_gone(kind: str) -> None:
    def build(names: list[str]) -> Any:
        if kind == "graph":
            return graph_of({name: [call("book", city=name), "Done."] for name in names})
        if kind == "nested":
            builder = GraphBuilder()
            builder.add_node(plain_agent(["Done."], name="one"), "one")
            if "two" in names:
                builder.add_node(graph_of({"inner": [call("book", city="two"), "Done."]}, None), "two")
            builder.set_max_node_executions(5)
            builder.set_plugins([Durability("runs.db", execution_id="trip")])
            return builder.build()
        hands_over = call("handoff_to_agent", agent_name="two", message="yours")
        scripts = {"one": [hands_over, "Done."], "two": [call("book", city="two"), "Done."]}
        agents = [plain_agent(scripts[name], name=name) for name in names]
        return Swarm(agents, plugins=[Durability("runs.db", execution_id="trip")])

    build(["one", "two"])("Go")
    changed = build(["one"])
    for _ in range(2):
        forget_process()
        result = changed("Go")
        assert result.status is Status.COMPLETED
        assert "Done." in str(result.results["two"].result) or kind == "nested"
    assert effects["book two"] == 1
    assert query("SELECT count(*) FROM calls WHERE parent = 0") == [(1,)]


# A store that fails


class Listener:
    """Does something once, at the n-th time that a point is reached, and notes all points."""

    def __init__(self, point: str | None, action: Callable[[], None]) -> None:
        self._point, self._action = point, action
        self._counts: Counter[str] = Counter()
        self.reached: list[str] = []

    def __call__(self, name: str) -> None:
        self._counts[name] += 1
        self.reached.append(f"{name}@{self._counts[name]}")
        if self.reached[-1] == self._point:
            self._action()


@contextmanager
def at(point: str | None, action: Callable[[], None]) -> Iterator[Listener]:
    listener = Listener(point, action)
    before = listen(listener)
    try:
        yield listener
    finally:
        listen(before)


def disk_is_full() -> None:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_c01_a_call_whose_question_could_not_be_recorded_is_resumed_with_its_input(kind: str) -> None:
    script = [call("book", city="Paris"), call("ask"), "Thanks."]
    subject = agent_of(script) if kind == "agent" else graph_of({"asks": script})
    end = "call.end:before@1" if kind == "agent" else "call.end:before@2"
    with at(end, disk_is_full), pytest.raises(errors.BackendUnavailableError):
        subject("Go")
    asked = subject("Go")
    assert len(asked.interrupts) == 1
    subject(answers(asked, "yes"))
    assert effects == {"book Paris": 1}
    assert query("SELECT status FROM calls WHERE parent = 0") == [("COMPLETED",)]


# A caller that leaves


@in_a_loop
async def test_c01_a_task_that_is_cancelled_by_a_callback_on_its_last_message_has_not_ended() -> None:
    """Nothing is awaited after the last message: the task ends as cancelled, and its caller gets no result."""
    agent = agent_of([*TWO_TOOLS, call("book", city="Rome"), "Done."])
    task = asyncio.ensure_future(agent.invoke_async("Go"))

    def stop(**event: Any) -> None:
        if len(agent.messages) == 6:
            task.cancel()

    quiet, agent.callback_handler = agent.callback_handler, stop
    with pytest.raises(asyncio.CancelledError):
        await task
    agent.callback_handler = quiet
    assert str(await agent.invoke_async("Go")) == "Done.\n"
    assert effects == {"book Paris": 1, "pay 1": 1}
    assert query("SELECT status, attempt FROM calls") == [("COMPLETED", 2)]


def test_c01_an_object_that_is_stuck_in_a_closed_loop_is_refused_and_its_call_has_not_failed() -> None:
    agent = agent_of(TWO_TOOLS)
    loop, stream = asyncio.new_event_loop(), agent.stream_async("Go")

    async def begin() -> None:
        async for event in stream:
            if "message" in event and effects["book Paris"]:
                return

    loop.run_until_complete(begin())
    loop.close()
    with pytest.raises(errors.ExecutionBusyError, match="build a new one") as refused:
        agent("Go")
    assert isinstance(refused.value, ConcurrencyException)
    assert query("SELECT status, attempt FROM calls") == [("RUNNING", 1)]
    assert str(agent_of(TWO_TOOLS)("Go")) == "Done.\n"
    assert effects == {"book Paris": 1, "pay 1": 1}


@tool
async def wait() -> str:
    """Wait until the reader of the stream has left it."""
    effects["wait"] += 1
    while not effects["left"]:
        await asyncio.sleep(0.001)
    effects["waited"] += 1
    return "waited"


def around_an_agent(kind: str) -> Any:
    """Something that has an agent call a tool inside it."""
    agent = plain_agent([call("wait"), "Done."], name="inner", more=[wait])
    durability = Durability("runs.db", execution_id="trip")
    if kind == "agent as a tool":
        return agent_of([call("inner", input="go"), "Done."], more=[agent.as_tool()])
    if kind == "swarm":
        return Swarm([agent], plugins=[durability])
    builder = GraphBuilder()
    builder.add_node(agent, "inner")
    builder.set_max_node_executions(5)
    return builder.set_plugins([durability]).build()


@pytest.mark.parametrize("how", ["closed", "cancelled and closed"])
@pytest.mark.parametrize("kind", ["agent as a tool", "swarm", "graph"])
@in_a_loop
async def test_c01_the_calls_inside_a_stream_that_is_closed_have_ended_when_it_is(kind: str, how: str) -> None:
    """Else their agents refuse the next call, and the refusal becomes a tool's result or a failed node."""
    subject = around_an_agent(kind)
    stream = subject.stream_async("Go")

    async def read() -> None:
        async for _ in stream:
            if effects["wait"] and how == "closed":
                return

    reader = asyncio.ensure_future(read())
    while not effects["wait"]:
        await asyncio.sleep(0.001)
    if how == "closed":
        effects["left"] = 1
        await reader
    else:
        while not reader.done():  # `wait_for`, before Python 3.12, may lose a cancel
            reader.cancel()
            await asyncio.sleep(0.001)
    await stream.aclose()
    effects["left"] = 1
    await subject.invoke_async("Go")
    assert {status for (status,) in query("SELECT status FROM calls")} == {"COMPLETED"}
    assert effects["waited"] == 1


@in_a_loop
async def test_c01_a_closed_stream_does_not_take_the_output_tool_from_the_call_that_resumes_it() -> None:
    agent = agent_of([call("book", city="Paris"), call("Trip", city="Paris")], structured_output_model=Trip)
    stream = agent.stream_async("Go")
    async for event in stream:
        if "event" in event:
            break
    await stream.aclose()
    assert (await agent.invoke_async("Go")).structured_output == Trip(city="Paris")


@in_a_loop
async def test_c01_after_a_stream_that_was_broken_off_at_once_another_input_is_a_further_call() -> None:
    agent = agent_of(["Done."])
    stream = agent.stream_async("Go")
    async for _ in stream:
        break
    await stream.aclose()
    assert str(await agent.invoke_async("Something else")) == "Done.\n"
    assert query("SELECT status FROM calls") == [("FAILED",), ("COMPLETED",)]
    assert query("SELECT status FROM executions") == [("COMPLETED",)]


@in_a_loop
async def test_c01_the_calls_inside_a_call_that_was_left_for_another_have_ended_too() -> None:
    helper = plain_agent([call("pay", amount=1), "Helped."], name="helper")
    agent = agent_of([call("helper", input="go"), "Done.", "Done."], more=[helper.as_tool()])
    stream = agent.stream_async("Go")
    async for _ in stream:
        if effects["pay 1"]:
            break
    await stream.aclose()
    assert query("SELECT status FROM calls") == [("RUNNING",), ("RUNNING",)]
    await agent.invoke_async("Something else")
    assert query("SELECT status FROM calls") == [("FAILED",), ("FAILED",), ("COMPLETED",)]


# One id, given in both ways


def test_c01_a_failed_call_that_was_followed_by_another_is_not_resumed_under_the_same_id_given_with_a_call(
    fails_once: None,
) -> None:
    agent = agent_of([call("book", city="Paris"), "Done.", "Never mind."])
    with pytest.raises(Exception, match="503"):
        agent("Go")
    agent("Forget it")
    with pytest.raises(Exception, match="503"):
        agent_of(TWO_TOOLS, None)("Go", invocation_state={"execution_id": "trip"})
    assert query("SELECT status, attempt FROM calls") == [("FAILED", 1), ("COMPLETED", 1)]


# What a call cost


def counted(agent: Agent) -> Any:
    metrics = agent.event_loop_metrics
    tools = {name: (found.call_count, found.error_count) for name, found in metrics.tool_metrics.items()}
    cycles = [[dict(cycle.usage) for cycle in found.cycles] for found in metrics.agent_invocations]
    return dict(metrics.accumulated_usage), metrics.accumulated_metrics["latencyMs"], metrics.cycle_count, tools, cycles


async def cancelled_at(point: str, agent: Any, prompt: Any) -> None:
    """Cancel the task of a call when it reaches a point; a tool in a thread ends first."""
    task, loop = asyncio.ensure_future(agent.invoke_async(prompt)), asyncio.get_running_loop()
    with at(point, lambda: loop.call_soon_threadsafe(task.cancel) and None), pytest.raises(asyncio.CancelledError):
        await task


@in_a_loop
async def test_c01_an_object_counts_what_another_one_did_of_its_call() -> None:
    def build() -> tuple[Agent, Agent]:
        helper = plain_agent(lambda turn, messages: [call("pay", amount=turn), "Helped."][turn % 2], name="helper")
        script = [call("helper", input="one"), call("helper", input="two"), "Done."]
        return agent_of(script, more=[helper.as_tool()]), helper

    (left, left_helper), (other, other_helper) = build(), build()
    await cancelled_at("pay@1", left, "Go")
    await other.invoke_async("Go")
    assert str(await left.invoke_async("Go")) == "Done.\n"
    assert counted(left) == counted(other)
    assert counted(left_helper) == counted(other_helper)
    assert left_helper.messages == other_helper.messages
    assert effects == {"pay 0": 2}


def test_c01_a_call_that_is_resumed_takes_nothing_from_the_count_of_those_in_between(fails_once: None) -> None:
    def script(turn: int, messages: Any) -> Any:
        return "Done." if "toolResult" in messages[-1]["content"][0] else call("book", city="Paris")

    agent, expected = agent_of(script, None), agent_of(script, None)
    with pytest.raises(Exception, match="503"):
        agent("Go", invocation_state={"execution_id": "one"})
    for order in ("two", "one"):
        agent("Go", invocation_state={"execution_id": order})
    for order in ("three", "four"):
        expected.messages.clear()
        expected("Go", invocation_state={"execution_id": order})
    assert counted(agent)[:4] == counted(expected)[:4]


# Every boundary


def comparable(agent: Agent) -> Any:
    """What must be equal to a run that was not interrupted: all but random ids and clocks."""
    messages = [(message["role"], message["content"]) for message in agent.messages]
    return messages, agent.state.get(), counted(agent)


@in_a_loop
async def test_c01_a_call_that_is_cancelled_at_any_boundary_is_resumed_by_the_same_object() -> None:
    script = [[call("book", city="Paris"), call("pay", amount=1)], call("pay", amount=2), "Done."]
    expected = agent_of(script, "whole")
    with at(None, lambda: None) as listener:
        await expected.invoke_async("Go")
    points = [point for point in listener.reached if "chunk" not in point or "chunk 0" in point]
    cancelled = 0
    for number, point in enumerate(points):
        effects.clear()
        agent = agent_of(script, f"run-{number}")
        task, loop = asyncio.ensure_future(agent.invoke_async("Go")), asyncio.get_running_loop()
        with at(point, functools.partial(loop.call_soon_threadsafe, task.cancel)):
            await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            cancelled += 1
            await agent.invoke_async("Go")
        assert comparable(agent) == comparable(expected), point
        assert sum(effects.values()) <= 5, point  # at most the two that were running ran again
    assert cancelled > 10
    left = query("SELECT status, count(*) FROM calls GROUP BY status")
    assert left == [("COMPLETED", len(points) + 1)]
