"""Every private name of Strands that `_strands.agents` touches is still what it was: fails when a new version moves it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel
from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.agent.state import AgentState
from strands.event_loop import _retry, event_loop, streaming
from strands.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    AfterToolsEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
)
from strands.middleware import ExecuteToolStage
from strands.session import FileSessionManager
from strands.telemetry.tracer import get_tracer
from strands.tools import ToolProvider
from strands.tools.executors import SequentialToolExecutor
from strands.types.exceptions import ModelThrottledException

from strands_durable import Durability, errors
from strands_durable._records import copies
from strands_durable._strands import agents, decisions, patches, sessions, watchers
from strands_durable._strands.tool_servers import without_servers
from strands_durable.testing import ScriptedModel, call


@pytest.fixture
def agent() -> Agent:
    return Agent(model=ScriptedModel(["Hi."]), callback_handler=None)


@contextmanager
def seams(**given: Any) -> Iterator[None]:
    """Replace what durable calls replace, as if they ran; or as beside them, with ``is_inside=False``."""
    is_inside = given.pop("is_inside", True)
    ignored = {
        "offer": lambda agent, model: model,
        "pause": None,
        "mark": lambda span: None,
        "note_state": lambda *_: None,
    }
    found = patches.DurableSeams(lambda: is_inside, **{**ignored, **given})
    found.open()
    try:
        yield
    finally:
        found.close()


def test_strands_is_a_version_that_was_looked_at() -> None:
    major, minor = map(int, version("strands-agents").split(".")[:2])
    assert (major, minor) >= (1, 62)
    assert major == 1


def test_interrupt_state(agent: Agent) -> None:
    assert not agents.is_interrupted(agent)
    assert not agents.knows_interrupt(agent, "x")
    assert agents.answer_to(agent, "x") is None
    agent._interrupt_state.interrupts["x"] = agents.Interrupt(id="x", name="n", response="yes")
    agent._interrupt_state.activate()
    assert agents.is_interrupted(agent)
    assert agents.answer_to(agent, "x") == "yes"


def test_cancel_flags(agent: Agent) -> None:
    assert agents.cancel_flags(agent) is None
    agent.cancel(message="m", after_current_tools=True)
    assert agents.cancel_flags(agent) == {"message": "m", "after_current_tools": True}
    agent.cancel()
    assert agents.cancel_flags(agent) == {"message": "m", "after_current_tools": False}


def test_the_carried_fields_of_an_agent_are_those_of_a_snapshot(agent: Agent) -> None:
    fields: Any = ["conversation_manager_state", "interrupt_state", "model_state"]
    assert agents.carried_by(agent) == agent.take_snapshot(include=fields).data


def test_sessions_background_tasks_and_output_models_are_found(agent: Agent) -> None:
    assert not agents.has_session(agent)
    assert agents.output_model(agent) is None
    assert agents.refuse_unsupported(agent) is None
    assert not agent._checkpointing


def test_the_log_of_a_session_is_written_over_after_a_rewind() -> None:
    manager = FileSessionManager("talk", storage_dir="sessions")
    agent = Agent(model=ScriptedModel(["One.", "Two."]), session_manager=manager, callback_handler=None)
    assert agents.has_session(agent)
    log = sessions.session_log(agent)
    assert log is not None
    agent("Go")
    records = log.records(0)
    assert [found.message_id for found in records] == [0, 1]
    log.rewind(records[:1])
    log.append({"role": "assistant", "content": [{"text": "Other."}]})
    assert [found.to_message()["content"][0]["text"] for found in log.records(0)] == ["Go", "Other."]
    log.rewind([])
    log.append({"role": "user", "content": [{"text": "First."}]})
    assert log.records(0)[0].to_message()["content"] == [{"text": "First."}]
    assert sessions.session_log(Agent(model=ScriptedModel([]), callback_handler=None)) is None


def test_a_direct_tool_call_is_distinguished_from_one_of_the_loop() -> None:
    found: list[bool] = []

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    async def middleware(context: Any, next_fn: Any) -> Any:
        found.append(agents.is_model_driven(context.invocation_state))
        async for event in next_fn(context):
            yield event

    agent = Agent(model=ScriptedModel([call("look"), "Done."]), tools=[look], callback_handler=None)
    agent.add_middleware(agents.AgentStreamStage, lambda context, next_fn: next_fn(context))
    from strands.middleware import ExecuteToolStage

    agent.add_middleware(ExecuteToolStage, middleware)
    agent.tool.look(record_direct_tool_call=False)
    agent("Go")
    assert found == [False, True]


def test_a_watched_state_is_the_same_object_and_its_copies_are_free() -> None:
    class Own(AgentState):
        pass

    for state in (AgentState({"a": 1}), Own({"a": 1})):
        kind, written = type(state), []
        watchers.watch_state(state, lambda key, deleted, written=written: written.append((key, deleted)))
        assert isinstance(state, kind)
        state.set("b", 2)
        state.delete("a")
        assert written == [("b", False), ("a", True)]
        copied = copy.deepcopy(state)
        copied.set("c", 3)
        assert state.get() == {"b": 2}
        assert len(written) == 2
        assert isinstance(copied._lock, type(threading.RLock()))


def test_a_write_that_the_watcher_refuses_leaves_the_state_as_it_was() -> None:
    def refuse(key: str, deleted: bool) -> None:
        raise errors.NotSerializableError("State", "value", "Colour")

    state = AgentState({"a": None})
    watchers.watch_state(state, refuse)
    for key in ("a", "b"):
        with pytest.raises(errors.NotSerializableError):
            state.set(key, 2)
    assert state.get() == {"a": None}


def test_quick_copies_are_equal_and_apart() -> None:
    messages = [{"role": "user", "content": [{"text": "x", "n": 1, "b": b"y"}]}]
    copied = copies.copied(messages)
    assert copied == messages
    copied[0]["content"][0]["text"] = "z"
    assert messages[0]["content"][0]["text"] == "x"
    odd = {"tuple": (1, [2]), "set": {3}}
    assert copies.copied(odd) == odd
    assert copies.copied(odd)["tuple"][1] is not odd["tuple"][1]
    with seams():
        assert (event_loop.copy.deepcopy(odd), streaming.copy.deepcopy(odd)) == (odd, odd)  # type: ignore[attr-defined]
        assert event_loop.copy.copy is copy.copy  # type: ignore[attr-defined]
    assert event_loop.copy is streaming.copy is copy  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_inside", [True, False])
def test_unheard_traces_are_spared_and_recording_spans_are_not(is_inside: bool) -> None:
    tracer = get_tracer()

    class Span:
        def __init__(self, recording: bool) -> None:
            self.recording, self.events = recording, 0

        def is_recording(self) -> bool:
            return self.recording

        def add_event(self, *args: Any, **kwargs: Any) -> None:
            self.events += 1

        set_attributes = set_attribute = add_event

    silent, recording = Span(False), Span(True)
    with seams(is_inside=is_inside):
        for span in (silent, recording):
            tracer._add_event_messages(span, [{"role": "user", "content": [{"text": "x"}]}])  # type: ignore[arg-type]
    assert (silent.events == 0) == is_inside
    assert recording.events > 0


def test_every_span_of_strands_starts_in_one_method() -> None:
    source = inspect.getsource(type(get_tracer()))
    assert source.count(".start_span(") == 1
    assert "span = self.tracer.start_span(" in inspect.getsource(type(get_tracer())._start_span)


def test_the_structured_output_of_a_pass_can_be_seen_and_forced() -> None:
    class Trip(BaseModel):
        city: str

    model = ScriptedModel(["Rome.", call("Trip", city="Rome")])
    agent = Agent(model=model, structured_output_model=Trip, callback_handler=None)
    watchers.watch_output(agent)
    seen: list[Any] = []
    agent.add_hook(lambda event: seen.append(watchers.forced_output(event.agent)), BeforeModelCallEvent)
    assert agent("Go").structured_output == Trip(city="Rome")
    assert seen == [None, {"tool": {"name": "Trip"}}]
    watchers.force_output(agent, {"any": {}})
    assert watchers.forced_output(agent) == {"any": {}}


def test_the_state_of_a_model_can_be_put_in_place(agent: Agent) -> None:
    agents.set_model_state(agent, {"response_id": 1})
    assert agent.take_snapshot(include=["model_state"]).data == {"model_state": {"response_id": 1}}


def test_the_auxiliary_model_is_offered_by_a_property_that_can_still_be_set(agent: Agent) -> None:
    before = vars(Agent)["aux_model"]
    other = ScriptedModel([])
    with seams(offer=lambda agent, model: ("offered", model)), seams(offer=lambda agent, model: ("again", model)):
        assert agent.aux_model == ("again", ("offered", agent.model))
        agent.aux_model = other
        assert agent.aux_model == ("again", ("offered", other))
    assert vars(Agent)["aux_model"] is before
    assert agent.aux_model is other


def test_a_caller_s_cancel_signal_is_seen(agent: Agent) -> None:
    agent._external_cancel_signal = threading.Event()
    assert agents.cancel_flags(agent) is None
    agent._external_cancel_signal.set()
    assert agents.cancel_flags(agent) == {"message": None, "after_current_tools": False}


def test_the_state_of_a_model_is_seen_while_a_call_changes_it(agent: Agent) -> None:
    class Counting(ScriptedModel):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            kwargs["model_state"]["calls"] = 1
            seen.append(watchers.changed_model_state(agent))
            async for chunk in super().stream(*args, **kwargs):
                yield chunk

    seen: list[Any] = []
    agent.model = Counting(["Hi."])
    with seams(note_state=watchers.note_model_state):
        agent("Go")
    assert seen == [{"calls": 1}]
    assert watchers.changed_model_state(agent) is None  # Strands has taken it over
    before = agent._model_state
    agents.set_model_state(agent, {"calls": 2})
    assert agent._model_state is before == {"calls": 2}


def test_what_a_tool_finds_of_its_agent_is_put_there_right_before_it_runs() -> None:
    found: list[Any] = []

    @tool(context=True)
    def look(tool_context: ToolContext) -> str:
        """Look."""
        found.append(agents.put_for_tool(tool_context.invocation_state))
        return "seen"

    agent = Agent(model=ScriptedModel([call("look"), "Done."]), tools=[look], callback_handler=None)
    agent("Go", invocation_state={"agent": "another", "own": 1})
    assert set(found[0]) == {"agent", "model", "messages", "system_prompt", "tool_config"}
    assert (found[0]["agent"], found[0]["model"]) == (agent, agent.model)


def test_a_mock_is_not_an_agent(agent: Agent) -> None:
    assert agents.is_agent(agent)
    assert not agents.is_agent(Mock(spec=Agent))


def test_what_serves_an_agent_tools_is_found_and_left_out_where_nothing_is_to_be_connected() -> None:
    loaded: list[str] = []

    class Server(ToolProvider):
        async def load_tools(self, **kwargs: Any) -> list[Any]:
            loaded.append("connected")
            return [word]

        def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None: ...

        def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None: ...

    @tool
    def word() -> str:
        """Say a word."""
        return "word"

    server = Server()
    with without_servers() as left_out:
        bare = Agent(model=ScriptedModel([]), tools=[[server]])
    assert (left_out, loaded, bare.tool_names, agents.providers_of(bare)) == ([server], [], [], [])
    whole = Agent(model=ScriptedModel([]), tools=[[server]])
    assert (loaded, whole.tool_names, agents.providers_of(whole)) == (["connected"], ["word"], [server])


def test_a_strategy_waits_with_the_sleep_of_its_module() -> None:
    waits: list[tuple[float, str]] = []

    async def pause(seconds: float, what: str) -> None:
        waits.append((seconds, what))

    with seams(pause=pause):
        strategy = ModelRetryStrategy(initial_delay=7)
        event = AfterModelCallEvent(agent=Agent(callback_handler=None), exception=ModelThrottledException("slow down"))
        asyncio.run(strategy._handle_after_model_call(event))
    assert _retry.asyncio is asyncio  # type: ignore[attr-defined]
    assert (waits, event.retry) == ([(7, "throttled")], True)


def test_what_somebody_else_replaces_during_a_durable_call_stays() -> None:
    original, theirs = streaming.copy, Mock()  # type: ignore[attr-defined]
    try:
        with seams():
            streaming.copy = theirs  # type: ignore[attr-defined]
        assert streaming.copy is theirs  # type: ignore[attr-defined]
    finally:
        streaming.copy = original  # type: ignore[attr-defined]


def test_a_sync_tool_runs_a_function_in_a_thread_that_can_be_replaced() -> None:
    ran: list[str] = []

    @tool
    def charge(amount: int) -> str:
        """Charge a card."""
        return f"charged {amount}"

    @tool
    async def wait() -> str:
        """Wait."""
        return "waited"

    def function(amount: int) -> str:
        ran.append(threading.current_thread().name)
        return f"replaced {amount}"

    async def last(found: Any) -> Any:
        events = found.stream({"name": "charge", "toolUseId": "t1", "input": {"amount": 7}}, {})
        return [event async for event in events][-1].tool_result["content"]

    assert agents.sync_function(wait) is None
    assert agents.sync_function(charge)(7) == "charged 7"
    assert asyncio.run(last(agents.with_function(charge, function))) == [{"text": "replaced 7"}]
    assert ran != [threading.main_thread().name]
    assert charge(7) == "charged 7"


def test_middleware_between_ours_and_the_tools_is_seen() -> None:
    agent = Agent(model=ScriptedModel(["Hi."]), plugins=[Durability("runs.db")], callback_handler=None)
    assert agents.is_next_to_tools(agent)
    agent.add_middleware(ExecuteToolStage, lambda context, next_fn: next_fn(context))
    assert not agents.is_next_to_tools(agent)


def test_hooks_questions_cancels_and_middlewares_of_an_agent_pass_through_what_wraps_them() -> None:
    seen: list[str] = []

    async def around_hooks(invoke: Any, event: Any) -> Any:
        event, questions = await invoke(event)
        if isinstance(event, (BeforeToolsEvent, BeforeToolCallEvent)):
            assert [found.name for found in questions] == [type(event).__name__]
            assert questions[0].id in agent._interrupt_state.interrupts
            decisions.unask(agent, questions)
            decisions.ask(agent, questions)
            decisions.unask(agent, questions)
            seen.append(type(event).__name__)
            return event, []
        return event, questions

    def around_middlewares(invoke: Any, stage: Any, context: Any, end: Any) -> Any:
        if stage is not ExecuteToolStage:
            return invoke(stage, context, end)
        seen.append("middlewares")
        return decisions.inside(agent, outer, end)(context)

    async def outer(context: Any, next_fn: Any) -> Any:
        raise AssertionError("it was left out")
        yield

    async def inner(context: Any, next_fn: Any) -> Any:
        seen.append("inner")
        async for event in next_fn(context):
            yield event

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(model=ScriptedModel([call("look"), "Done."]), tools=[look], callback_handler=None)
    agent.tool_executor = SequentialToolExecutor()
    for kind in (BeforeToolsEvent, BeforeToolCallEvent):
        agent.add_hook(lambda event: event.interrupt(type(event).__name__), kind)
    for wrap in (outer, inner):
        agent.add_middleware(ExecuteToolStage, wrap)
    decisions.wrap_hooks(agent, around_hooks)
    decisions.wrap_middlewares(agent, around_middlewares)
    hidden = [True]
    decisions.hide_cancel(agent, lambda: hidden[0])
    signal = threading.Event()
    agent.add_hook(lambda event: signal.set(), BeforeToolsEvent)
    agent.add_hook(lambda event: hidden.clear() or hidden.append(False), AfterToolsEvent)
    result = agent("Go", cancel_signal=signal)
    assert seen == ["BeforeToolsEvent", "BeforeToolCallEvent", "middlewares", "inner"]
    assert result.stop_reason == "cancelled"
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "seen"}]
    assert decisions.checks_each(agent)


def test_nobody_has_a_word_after_ours_unless_a_middleware_or_a_hook_has() -> None:
    def build() -> Agent:
        return Agent(model=ScriptedModel([]), plugins=[Durability("runs.db")], callback_handler=None)

    async def other(context: Any, next_fn: Any) -> Any:
        yield next_fn(context)

    agent = build()
    assert decisions.is_last_word(agent)
    agent.add_middleware(ExecuteToolStage, other)
    assert decisions.is_last_word(agent), "it is inside ours"
    agent.add_middleware(ExecuteToolStage.Output, lambda output: output)
    assert not decisions.is_last_word(agent)
    agent = build()
    agent.add_hook(lambda event: None, AfterToolCallEvent)
    assert not decisions.is_last_word(agent)
    agent = Agent(model=ScriptedModel([]), callback_handler=None)
    agent.add_middleware(ExecuteToolStage, other)
    Durability("runs.db").init_agent(agent)
    assert not decisions.is_last_word(agent)
