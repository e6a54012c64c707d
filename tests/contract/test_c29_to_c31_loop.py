"""C29 to C31: nothing twice because of a replay, invisible segments, wrong combinations."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    MessageAddedEvent,
)
from strands.types.exceptions import ConcurrencyException, EventLoopException

from strands_durable import Durability, errors
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.crash.scenarios import seen

EVENTS = (
    BeforeInvocationEvent, AfterInvocationEvent, BeforeModelCallEvent, AfterModelCallEvent,
    BeforeToolCallEvent, AfterToolCallEvent, MessageAddedEvent,
)  # fmt: skip


@tool
def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


def long_script(turns: int) -> Any:
    return lambda turn, messages: call("work", n=turn) if turn < turns else "Done."


def agent_of(script: Any, tools: Any = (work,), *, plugins: Any = None, **options: Any) -> Agent:
    if plugins is None:
        plugins = [Durability("runs.db", execution_id="trip", segment_turns=3)]
    return Agent(
        model=ScriptedModel(script), tools=list(tools), plugins=plugins, **{"callback_handler": None, **options}
    )


def counted(agent: Agent, counts: Counter[str]) -> Agent:
    for event_type in EVENTS:
        agent.add_hook(lambda event: counts.update([type(event).__name__]), event_type)
    return agent


# C29


def test_c29_a_replay_fires_hooks_only_for_what_is_new() -> None:
    counts: Counter[str] = Counter()
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("model.start:after@3", "raise"):
        counted(agent_of(long_script(3)), counts)("Go")
    forget_process()
    counts.clear()
    counted(agent_of(long_script(3)), counts)("Go")
    assert counts == {
        "BeforeInvocationEvent": 1, "AfterInvocationEvent": 1, "BeforeModelCallEvent": 2, "AfterModelCallEvent": 2,
        "BeforeToolCallEvent": 1, "AfterToolCallEvent": 1, "MessageAddedEvent": 3,
    }  # fmt: skip


def test_c29_a_finished_call_is_not_logged_streamed_or_called_back_again() -> None:
    agent_of(long_script(3))("Go")
    forget_process()
    called: list[Any] = []
    agent = agent_of(long_script(3), callback_handler=lambda **event: called.append(event))

    async def stream() -> list[Any]:
        return [event async for event in agent.stream_async("Go")]

    events = asyncio.run(stream())
    assert [list(event) for event in events] == [["result", "recorded"]]
    assert called == []


def test_c29_a_recorded_step_is_not_streamed_as_if_it_were_live() -> None:
    script = [Answer(text="Thinking.", calls=[call("work", n=1)]), "Done."]
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("model.done:after@1", "raise"):
        agent_of(script)("Go")
    forget_process()

    async def stream() -> str:
        return "".join([event["data"] async for event in agent_of(script).stream_async("Go") if "data" in event])

    assert asyncio.run(stream()) == "Done."


# C30


def plain(agent: Agent, prompt: str, **options: Any) -> Any:
    return seen(agent, agent(prompt, **options))


def test_c30_a_segmented_call_looks_like_one_call() -> None:
    def run(plugins: Any) -> Any:
        counts: Counter[str] = Counter()
        agent = counted(agent_of(long_script(10), plugins=plugins), counts)
        called: list[str] = []
        agent.callback_handler = lambda **event: called.append(next(iter(event)))
        outcome = plain(agent, "Go")
        events = asyncio.run(_keys(agent_of(long_script(10), plugins=[*plugins], agent_id="b")))
        return outcome, counts, called, events

    unsegmented = run([])
    assert run([Durability("runs.db", execution_id="trip", segment_turns=3)]) == unsegmented


async def _keys(agent: Agent) -> list[list[str]]:
    return [sorted(map(str, event)) async for event in agent.stream_async("Go")]


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 6, 7])
def test_c30_limits_are_those_of_one_call(turns: int) -> None:
    expected = plain(agent_of(long_script(10), plugins=[]), "Go", limits={"turns": turns})
    assert plain(agent_of(long_script(10)), "Go", limits={"turns": turns}) == expected
    assert expected["stop_reason"] == "limit_turns"


def test_c30_token_limits_count_over_segments_and_over_a_crash() -> None:
    limits: Any = {"total_tokens": 100}
    expected = plain(agent_of(long_script(20), plugins=[]), "Go", limits=limits)
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("tool.done:after@4", "raise"):
        agent_of(long_script(20))("Go", limits=limits)
    forget_process()
    assert plain(agent_of(long_script(20)), "Go", limits=limits) == expected
    assert expected["stop_reason"] == "limit_total_tokens"


def test_c30_an_error_after_a_segment_is_the_error_of_a_nested_turn() -> None:
    def failing(turn: int, messages: Any) -> Any:
        return call("work", n=turn) if turn < 3 else Answer(errors=[ValueError("broken")])

    for plugins in ([], [Durability("runs.db", execution_id="trip", segment_turns=3)]):
        with pytest.raises(EventLoopException, match="broken"):
            agent_of(failing, plugins=plugins)("Go")


def test_c30_a_cancel_between_segments_is_not_lost() -> None:
    @tool(context=True)
    def stop(n: int, tool_context: ToolContext) -> str:
        """Stop at the end of a segment."""
        if n == 2:
            tool_context.agent.cancel()
        return "ok"

    script: Any = lambda turn, messages: call("stop", n=turn)  # noqa: E731
    result = agent_of(script, [stop])("Go")
    assert result.stop_reason == "cancelled"
    assert result.metrics.cycle_count == 3


def test_c30_the_concurrency_lock_is_held_over_segments() -> None:
    refused: list[str] = []

    @tool(context=True)
    async def again(n: int, tool_context: ToolContext) -> str:
        """Call the busy agent from another thread."""

        def work() -> None:
            try:
                tool_context.agent("More")
            except ConcurrencyException as error:
                refused.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)
        return "ok"

    script: Any = lambda turn, messages: call("again", n=turn) if turn < 5 else "Done."  # noqa: E731
    assert str(agent_of(script, [again])("Go")) == "Done.\n"
    assert len(refused) == 5


def test_c30_the_conversation_manager_is_applied_as_in_one_call() -> None:
    def run(plugins: Any) -> Any:
        manager = SlidingWindowConversationManager(window_size=6)
        agent = agent_of(long_script(8), plugins=plugins, conversation_manager=manager)
        return plain(agent, "Go"), manager.removed_message_count

    assert run([Durability("runs.db", execution_id="trip", segment_turns=3)]) == run([])


@pytest.fixture
def low_ceiling() -> Iterator[None]:
    """A third of Python's recursion limit: what dies at 320 turns dies at a third of them, after a ninth of the time."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(350)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("low_ceiling")
def test_c30_more_turns_than_strands_survives_in_one_call() -> None:
    script = long_script(130)
    with pytest.raises(EventLoopException, match="recursion"):
        agent_of(script, plugins=[])("Go")
    result = agent_of(script, plugins=[Durability("runs.db", execution_id="long")])("Go")
    assert str(result) == "Done.\n"
    assert result.metrics.cycle_count == 131


def test_c30_one_span_per_call_and_per_step() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def spans(agent: Agent) -> Counter[str]:
        from strands.telemetry.tracer import get_tracer

        tracer = get_tracer()
        before, tracer.tracer = tracer.tracer, provider.get_tracer("test")
        exporter.clear()
        try:
            agent("Go")
        finally:
            tracer.tracer = before
        return Counter(span.name for span in exporter.get_finished_spans())

    expected = spans(agent_of(long_script(5), plugins=[]))
    assert spans(agent_of(long_script(5))) == expected
    assert expected["invoke_agent Strands Agents"] == 1
    content = [event for span in exporter.get_finished_spans() for event in span.events]
    assert content, "a span that records gets its messages"


# C31


def test_c31_an_engine_url_inline_is_a_named_error() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="dispatch it to that engine"):
        Durability("temporal://localhost:7233")
    with pytest.raises(errors.UnsupportedFeatureError, match="is lost with the process"):
        Durability(":memory:")
    with pytest.raises(errors.BackendUnavailableError, match="three slashes"):
        Durability("sqlite://runs.db")


def test_c31_the_plugin_twice_on_one_agent_is_refused() -> None:
    with pytest.raises(ValueError, match="already registered"):
        agent_of(["Hi."], plugins=[Durability("runs.db"), Durability("other.db")])


def test_c31_background_tasks_are_refused_at_attach_time() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="background tasks"):
        agent_of(["Hi."], background_tasks=True)


def test_c31_options_are_checked_when_they_are_written_down() -> None:
    for wrong in (
        {"on_drift": "x"},
        {"on_failed": "x"},
        {"on_completed": "x"},
        {"model_in_doubt": "verify"},
        {"lease_seconds": 0},
    ):
        with pytest.raises(ValueError):
            Durability("runs.db", **wrong)  # type: ignore[arg-type]


def test_c20_a_durability_of_an_agent_that_a_tool_builds_gives_way_to_the_execution_around_it() -> None:
    made: list[str] = []

    @tool
    def ask_another() -> str:
        """Build an agent and ask it."""
        made.append("x")
        inner = Agent(
            model=ScriptedModel(["Inner."]),
            plugins=[Durability("other.db", execution_id="inner")],
            callback_handler=None,
        )
        return str(inner("Hello"))

    agent = agent_of([call("ask_another"), "Done."], [ask_another])
    agent("Go")
    forget_process()
    agent_of([call("ask_another"), "Done."], [ask_another])("Go")
    assert made == ["x"]
