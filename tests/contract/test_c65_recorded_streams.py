"""C65: a recorded stream ends as a live one does, and with ``replay_events`` it begins with every finished step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterModelCallEvent, AfterToolCallEvent, BeforeToolCallEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import NodeResult

from strands_durable import Durability
from strands_durable._sqlite.journal import Journal
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

SCRIPT: list[Any] = [
    [call("book", "a", city="Rome"), call("book", "b", city="Oslo")],
    call("book", "c", city="Bern"),
    "All is booked.",
]


@tool
def book(city: str) -> str:
    """Book a hotel."""
    reach(f"booking {city}")
    return f"booked {city}"


@tool(context=True)
def ask(tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("sure"))


def agent_of(*script: Any, tools: Any = (book, ask), replays: bool | None = True, **options: Any) -> Agent:
    more = {} if replays is None else {"replay_events": replays}
    plugins = options.pop("plugins", None) or [Durability("runs.db", execution_id="trip", **more)]
    options = {"agent_id": "clerk", "callback_handler": None, **options}
    return Agent(model=ScriptedModel(list(script or SCRIPT)), tools=list(tools), plugins=plugins, **options)


def part(*script: Any, name: str, **options: Any) -> Agent:
    """Build an agent that is part of another or of an orchestrator."""
    return Agent(
        model=ScriptedModel(list(script)), tools=[book], name=name, agent_id=name, callback_handler=None, **options
    )


def streamed(subject: Any, prompt: Any = "Go") -> list[Any]:
    async def events() -> list[Any]:
        return [event async for event in subject.stream_async(prompt)]

    return asyncio.run(events())


def crash(subject: Any, point: str) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        subject("Go")
    forget_process()


def shape(event: Any) -> dict[str, Any]:
    """Return what an event is made of, without what it holds."""
    return {name: value if isinstance(value, (str, bool)) else type(value) for name, value in event.items()}


def graph_of(**options: Any) -> Any:
    builder = GraphBuilder()
    builder.add_node(part(call("book", "a", city="Rome"), "Booked.", name="first"), "first")
    builder.add_node(part(call("book", "b", city="Oslo"), "Booked, too.", name="second"), "second")
    builder.add_edge("first", "second")
    builder.set_plugins([Durability("runs.db", execution_id="trip", **options)])
    return builder.build()


def swarm_of(**options: Any) -> Any:
    hand = call("handoff_to_agent", "h", agent_name="second", message="yours")
    first, second = part(hand, "Handed.", name="first"), part(call("book", "b", city="Oslo"), "Booked.", name="second")
    return Swarm([first, second], plugins=[Durability("runs.db", execution_id="trip", **options)])


# The end


@pytest.mark.parametrize("build", [lambda **more: agent_of(replays=None), graph_of, swarm_of])
def test_c65_a_recorded_call_ends_with_the_event_of_a_live_one(build: Any) -> None:
    live = streamed(build())[-1]
    forget_process()
    (recorded,) = streamed(build())
    assert recorded["recorded"] is True
    assert shape(recorded) == {**shape(live), "recorded": True}


def test_c65_a_recorded_question_ends_with_the_event_of_a_live_one() -> None:
    live = streamed(agent_of(call("ask"), "Done.", replays=None))[-1]
    forget_process()
    (recorded,) = streamed(agent_of(call("ask"), "Done.", replays=None))
    assert shape(recorded) == {**shape(live), "recorded": True}
    assert recorded["result"].stop_reason == "interrupt"


# The beginning


def messages_of(events: list[Any]) -> list[Any]:
    """Return the messages of a stream, with tool results one by one and without what differs from run to run."""
    found: list[Any] = []
    for event in events:
        if "message" in event and "type" not in event:
            message = event["message"]
            found += [(message["role"], [block]) for block in message["content"]] if _results(message) else []
            found += [] if _results(message) else [(message["role"], message["content"])]
    return found


def _results(message: Any) -> bool:
    return all("toolResult" in block for block in message["content"])


def unmarked(events: list[Any]) -> list[Any]:
    return [event for event in events if "recorded" not in event]


def test_c65_without_the_option_a_stream_has_nothing_of_finished_cycles() -> None:
    crash(agent_of(replays=None), "booking Bern@1")
    events = streamed(agent_of(replays=None))
    assert [event for event in events if "recorded" in event] == []
    assert [role for role, _ in messages_of(events)] == ["user", "assistant"], (
        "the result of the last tool, and the answer"
    )
    forget_process()
    assert len(streamed(agent_of(replays=None))) == 1


def test_c65_a_resumed_stream_begins_with_every_finished_step() -> None:
    whole = messages_of(streamed(agent_of(plugins=[Durability("whole.db")])))
    crash(agent_of(), "booking Bern@1")
    events = streamed(agent_of())
    finished = [event for event in events if event.get("recorded") is True]
    assert [event["step"] for event in finished] == [
        "clerk#0/000001/model~0",
        "clerk#0/000001/000:a~0",
        "clerk#0/000001/001:b~0",
        "clerk#0/000002/model~0",
    ]
    assert events[: len(finished)] == finished, "they come first"
    assert messages_of(events) == whole, "a reader has the whole run"


def test_c65_a_recorded_stream_has_every_step_and_its_result() -> None:
    whole = messages_of(streamed(agent_of()))
    forget_process()
    events = streamed(agent_of())
    assert {event["recorded"] for event in events} == {True}
    assert messages_of(events) == whole
    assert len([event for event in events if "step" in event]) == 6
    assert "result" in events[-1]
    assert ["result" in event for event in events].count(True) == 1


def test_c65_finished_tools_of_an_unfinished_answer_are_shown_with_a_question() -> None:
    both = [call("book", "a", city="Rome"), call("ask", "q")]
    streamed(agent_of(both, "Done."))
    forget_process()
    *events, last = streamed(agent_of(both, "Done."))
    assert [event["step"] for event in events] == ["clerk#0/000001/model~0", "clerk#0/000001/000:a~0"]
    assert last["result"].stop_reason == "interrupt"


def test_c65_nothing_recorded_is_given_to_callback_handlers() -> None:
    heard: list[Any] = []
    crash(agent_of(), "booking Bern@1")
    events = streamed(agent_of(callback_handler=lambda **said: heard.append(said)))
    assert [event for event in events if "step" in event]
    assert [said for said in heard if "recorded" in said or "step" in said] == []
    assert [said["message"]["role"] for said in heard if "message" in said] == ["user", "assistant"]


def test_c65_steps_are_read_when_the_reader_has_come_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = 20
    script = [*(call("book", f"t{number}", city="Rome") for number in range(cycles)), "Done."]
    streamed(agent_of(*script))
    forget_process()
    looked: list[str] = []
    latest = Journal.latest

    def looking(journal: Any, call_id: int, prefix: str) -> Any:
        looked.append(prefix)
        return latest(journal, call_id, prefix)

    monkeypatch.setattr(Journal, "latest", looking)

    async def read() -> list[int]:
        found = []
        async for event in agent_of(*script).stream_async("Go"):
            if "step" in event:
                found.append(len(looked))
        return found

    found = asyncio.run(read())
    assert len(found) == 2 * cycles + 1
    assert found[0] < 5
    assert found[-1] >= cycles


def test_c65_a_result_that_a_hook_has_changed_is_shown_as_the_model_got_it() -> None:
    def mask(event: AfterToolCallEvent) -> None:
        event.result = {**event.result, "content": [{"text": "***"}]}

    whole = messages_of(streamed(agent_of(hooks=[mask], plugins=[Durability("whole.db")])))
    crash(agent_of(hooks=[mask]), "booking Bern@1")
    events = streamed(agent_of(hooks=[mask]))
    assert "booked Rome" not in str([event for event in events if event.get("recorded")])
    assert messages_of(events) == whole
    forget_process()
    assert messages_of(streamed(agent_of(hooks=[mask]))) == whole


def test_c65_a_result_whose_hooks_have_not_run_is_not_shown_before_they_have() -> None:
    def mask(event: AfterToolCallEvent) -> None:
        event.result = {**event.result, "content": [{"text": "***"}]}

    crash(agent_of(hooks=[mask]), "tool.done:after@1")
    events = streamed(agent_of(hooks=[mask]))
    assert "booked Rome" not in str(events)
    assert "***" in str(events)


def test_c65_an_answer_that_a_hook_has_sent_back_is_not_shown() -> None:
    def build() -> Agent:
        again = iter([True])

        def send_back(event: AfterModelCallEvent) -> None:
            event.retry = event.stop_response is not None and next(again, False)

        agent = agent_of(call("book", "a", city="Rome"), "Done.")
        agent.add_hook(send_back, AfterModelCallEvent)
        return agent

    whole = messages_of(streamed(build()))
    forget_process()
    events = streamed(build())
    assert messages_of(events) == whole
    assert next(event["step"] for event in events if "step" in event) == "clerk#0/000001/model~1"


async def leave(subject: Any) -> Any:
    """Read one event of a stream."""
    stream = subject.stream_async("Go")
    first = await stream.__anext__()
    await stream.aclose()
    return first


def test_c65_a_reader_that_leaves_in_the_middle_gets_all_of_it_the_next_time() -> None:
    crash(agent_of(), "booking Bern@1")
    assert asyncio.run(leave(agent_of()))["step"] == "clerk#0/000001/model~0"
    events = streamed(agent_of())
    assert len([event for event in events if "step" in event]) == 4
    assert str(events[-1]["result"]).strip() == "All is booked."


@pytest.mark.parametrize("build", [lambda **more: agent_of(), graph_of, swarm_of])
def test_c65_a_reader_that_leaves_a_finished_call_gets_it_again_on_the_same_object(build: Any) -> None:
    streamed(build(replay_events=True))
    forget_process()
    subject = build(replay_events=True)
    asyncio.run(leave(subject))
    events = streamed(subject)
    assert {event.get("recorded") for event in events} == {True}, "nothing runs again"
    assert "result" in events[-1]


def test_c65_another_input_after_a_reader_left_a_finished_call_is_a_further_call() -> None:
    streamed(agent_of())
    forget_process()
    agent = agent_of(*SCRIPT, "More is booked.")
    asyncio.run(leave(agent))
    assert str(agent("More")).strip() == "More is booked."
    forget_process()
    agent = agent_of()
    assert [str(agent(prompt)).strip() for prompt in ("Go", "More")] == ["All is booked.", "More is booked."]


def test_c65_a_reader_that_leaves_a_question_gets_it_again_on_the_same_object() -> None:
    both = [call("book", "a", city="Rome"), call("ask", "q")]
    streamed(agent_of(both, "Done."))
    forget_process()
    agent = agent_of(both, "Done.")
    asyncio.run(leave(agent))
    (question,) = agent("Go").interrupts or ()
    answers: Any = [{"interruptResponse": {"interruptId": question.id, "response": "yes"}}]
    assert str(agent(answers)).strip() == "Done."


def test_c65_tools_that_are_no_steps_are_shown_with_their_results() -> None:
    def deny(event: BeforeToolCallEvent) -> None:
        event.cancel_tool = "closed" if event.tool_use["toolUseId"] == "b" else False

    whole = messages_of(streamed(agent_of(hooks=[deny])))
    forget_process()
    events = streamed(agent_of(hooks=[deny]))
    assert messages_of(events) == whole
    assert "closed" in str(whole)


def test_c65_a_recorded_failure_is_raised_after_what_had_finished() -> None:
    def build() -> Agent:
        return agent_of(call("book", "a", city="Rome"), Answer(text="Sorry.", errors=[ValueError("broken")]))

    agent = build()
    with pytest.raises(Exception, match="broken"):
        agent("Go")
    agent("Go on")  # it has ended: a later call follows it
    forget_process()
    found: list[Any] = []

    async def read() -> None:
        async for event in build().stream_async("Go"):
            found.append(event["step"])

    with pytest.raises(Exception, match="broken"):
        asyncio.run(read())
    assert found == ["clerk#0/000001/model~0", "clerk#0/000001/000:a~0"]


# Inside others


def test_c65_steps_of_an_agent_behind_a_tool_come_as_what_the_tool_streams() -> None:
    def build() -> Agent:
        helper = part(call("book", "x", city="Rome"), "It is booked.", name="helper")
        return agent_of(call("helper", "h", input="Book"), "Done.", tools=[helper.as_tool()])

    whole = streamed(build())
    forget_process()
    *events, _ = streamed(build())
    steps = [event["step"] if "step" in event else event["tool_stream_event"]["data"]["step"] for event in events]
    assert steps == [
        "clerk#0/000001/model~0",
        "clerk#0/000001/000:h~0#0/000001/model~0",
        "clerk#0/000001/000:h~0#0/000001/000:x~0",
        "clerk#0/000001/000:h~0#0/000002/model~0",
        "clerk#0/000001/000:h~0",
        "clerk#0/000002/model~0",
    ]
    inner = [event for event in events if "tool_stream_event" in event]
    assert {event["tool_stream_event"]["tool_use"]["toolUseId"] for event in inner} == {"h"}
    live = [event for event in whole if "tool_stream_event" in event]
    assert messages_of([event["tool_stream_event"]["data"] for event in inner]) == messages_of(
        [event["tool_stream_event"]["data"] for event in live]
    )
    assert {event["type"] for event in inner} == {event["type"] for event in live}


@pytest.mark.parametrize("build", [graph_of, swarm_of])
def test_c65_steps_of_nodes_come_as_what_an_orchestrator_streams(build: Any) -> None:
    live = streamed(build(replay_events=True))
    forget_process()
    recorded = streamed(build(replay_events=True))
    assert {event["recorded"] for event in recorded} == {True}

    def told(events: list[Any], node_id: str) -> Any:
        mine = [event for event in events if event.get("node_id") == node_id]
        said = messages_of([event["event"] for event in mine if event["type"] == "multiagent_node_stream"])
        (stop,) = [event for event in mine if event["type"] == "multiagent_node_stop"]
        result: NodeResult = stop["node_result"]
        return said, result.status, str(result.result), result.execution_count

    for node_id in ("first", "second"):
        assert told(recorded, node_id) == told(live, node_id)
    assert recorded[-1]["type"] == "multiagent_result"


def test_c65_a_resumed_graph_begins_with_its_finished_nodes_and_steps() -> None:
    crash(graph_of(replay_events=True), "booking Oslo@1")
    events = streamed(graph_of(replay_events=True))
    finished = [event for event in events if event.get("recorded") is True]
    assert events[: len(finished)] == finished
    assert [(event["type"], event["node_id"]) for event in finished] == [
        *[("multiagent_node_stream", "first")] * 3,
        ("multiagent_node_stop", "first"),
        ("multiagent_node_stream", "second"),
    ]
    starts = [event["node_id"] for event in events if event.get("type") == "multiagent_node_start"]
    assert starts == ["second"]
