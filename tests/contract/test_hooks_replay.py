"""Agents with hooks that rewrite, send back, add passes and count: interrupted at every boundary, they end the same."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolsEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolsEvent,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelStage
from strands.plugins import Plugin

from strands_durable import Durability, durable, errors
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.heartbeat import LeaseRenewer
from strands_durable.testing import (
    Answer,
    CrashPoints,
    ScriptedModel,
    SimulatedCrash,
    assert_replays,
    call,
    forget_process,
    reach,
)
from tests.script import answers


@tool
def work(n: int = 0) -> str:
    """Work."""
    reach(f"work {n}")
    return f"worked {n}"


def agent_of(
    script: Any, tools: Any = (work,), hooks: Any = (), durability: Durability | None = None, **options: Any
) -> Agent:
    plugin = durability or Durability("runs.db", execution_id="trip")
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    return Agent(model=model, tools=list(tools), hooks=list(hooks), plugins=[plugin], callback_handler=None, **options)


def crash_at(point: str, agent: Agent, **options: Any) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent("Go", **options)
    forget_process()


def test_c05_hooks_before_a_call_that_count_and_rewrite_its_input_do_so_once() -> None:
    def context(event: BeforeInvocationEvent) -> None:
        event.agent.state.set("calls", (event.agent.state.get("calls") or 0) + 1)
        event.messages = [{"role": "user", "content": [{"text": "Context"}]}, *(event.messages or [])]

    def build(durability: Durability) -> Agent:
        return agent_of([call("work", n=1), call("work", n=2), "Done.", "Bye."], hooks=[context], durability=durability)

    assert assert_replays(build, "Go", "Again") > 20


def test_c10_an_answer_that_was_sent_back_stays_sent_back() -> None:
    def demand(event: AfterModelCallEvent) -> None:
        if event.stop_response is not None and not event.agent.state.get("demanded"):
            event.agent.state.set("demanded", True)
            event.retry = True

    def build(durability: Durability) -> Agent:
        said = iter(range(99))
        model = ScriptedModel(
            lambda turn, messages: call("work", n=1) if turn == 0 else f"Done after {next(said) * 0}."
        )
        return agent_of(model, hooks=[demand], durability=durability)

    assert assert_replays(build, "Go") > 10


def test_c29_passes_that_a_hook_adds_are_passes_of_one_call() -> None:
    async def again(event: AfterInvocationEvent) -> None:
        sent = await durable.step("notify", lambda: len(notified) + 1)
        notified.append(sent)
        count = event.invocation_state.get("passes", 0) + 1
        event.invocation_state["passes"] = count
        if count < 3:
            event.resume = f"Go on {count}"

    notified: list[int] = []
    agent = agent_of([call("work", n=1), "One.", "Two.", "Three."], hooks=[again])
    assert str(agent("Go")) == "Three.\n"
    assert notified == [1, 2, 3]

    def build(durability: Durability) -> Agent:
        notified.clear()
        return agent_of([call("work", n=1), "One.", "Two.", "Three."], hooks=[again], durability=durability)

    assert assert_replays(build, "Go") > 20


def test_c17_each_hook_has_recorded_effects_of_its_own() -> None:
    made: list[str] = []

    def once(name: str) -> Any:
        async def hook(event: Any) -> None:
            await durable.step("audit", lambda: made.append(name))

        return hook

    def build() -> Agent:
        agent = agent_of([call("work", n=1), "Done."])
        for event_type in (BeforeToolsEvent, AfterToolsEvent, AfterModelCallEvent, BeforeModelCallEvent):
            agent.hooks.add_callback(event_type, once(event_type.__name__))
        return agent

    build()("Go")
    expected = sorted(made)
    assert len(expected) == 6
    forget_process()
    for point in ("work 1@1", "tool.done:after@1", "model.start:after@2"):
        made.clear()
        for attempt in range(2):
            agent = agent_of([call("work", n=1), "Done."], durability=Durability(f"{point}.db", execution_id="trip"))
            for event_type in (BeforeToolsEvent, AfterToolsEvent, AfterModelCallEvent, BeforeModelCallEvent):
                agent.hooks.add_callback(event_type, once(event_type.__name__))
            if attempt == 0:
                crash_at(point, agent)
            else:
                agent("Go")
        assert sorted(made) == expected, point


def test_c14_parallel_tools_resume_with_the_word_of_who_finished_last() -> None:
    @tool(context=True)
    async def slow(tool_context: ToolContext) -> str:
        """Finish last."""
        while tool_context.agent.state.get("last") is None:
            await asyncio.sleep(0.001)
        tool_context.agent.state.set("last", "slow")
        tool_context.invocation_state["order"].append("slow")
        return "slow"

    @tool(context=True)
    async def fast(tool_context: ToolContext) -> str:
        """Finish first."""
        tool_context.agent.state.set("last", "fast")
        tool_context.invocation_state["order"].append("fast")
        return "fast"

    @tool(context=True)
    async def third(tool_context: ToolContext) -> str:
        """Be in flight when the others are done."""
        while tool_context.agent.state.get("last") != "slow":
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        reach("third")
        return "third"

    script = [[call("slow"), call("fast"), call("third")], "Done."]
    crash_at("third@1", agent_of(script, [slow, fast, third]), invocation_state={"order": []})
    order: list[str] = []
    agent = agent_of(script, [slow, fast, third])
    agent("Go", invocation_state={"order": order})
    assert agent.state.get() == {"last": "slow"}
    assert order == ["fast", "slow"], "the caller's own list"


def test_c14_one_agent_in_several_executions_keeps_its_state_apart() -> None:
    @tool(context=True)
    def put(name: str, tool_context: ToolContext) -> str:
        """Put."""
        tool_context.agent.state.set(name, 1)
        return str(sorted(tool_context.agent.state.get()))

    def run(point: str | None) -> Any:
        script: Any = lambda turn, messages: "Done." if turn % 2 else call("put", name=f"k{turn}")  # noqa: E731
        agent = agent_of(script, [put], durability=Durability("runs.db"))
        for execution_id in ("a", "b"):
            agent("Go", invocation_state={"execution_id": execution_id})
        if point is not None:
            with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
                agent("Go", invocation_state={"execution_id": "c"})
            forget_process()
            return None
        agent("Go", invocation_state={"execution_id": "c"})
        return agent.state.get()

    run("model.start:after@2")
    assert run(None) == {"k0": 1, "k2": 1, "k4": 1}


def test_c15_a_neighbour_that_finished_is_recorded_although_another_result_cannot_be() -> None:
    paid: list[str] = []

    @tool
    async def strange() -> Any:
        """Return what cannot be stored."""
        return {"status": "success", "content": [{"json": object()}]}

    @tool
    async def pay() -> str:
        """Pay, a little later."""
        await asyncio.sleep(0.05)
        paid.append("x")
        return "paid"

    script = [[call("strange"), call("pay")], "Done."]
    with pytest.raises(errors.NotSerializableError):
        agent_of(script, [strange, pay])("Go")
    forget_process()
    agent = agent_of(script, [strange, pay])
    asked = agent("Go")
    assert asked.stop_reason == "interrupt"
    agent(answers(asked, "fail"))
    assert paid == ["x"]


def test_c15_a_number_too_long_to_write_is_no_result_either() -> None:
    made: list[int] = []

    @tool
    def big() -> Any:
        """Return a very long number."""
        made.append(1)
        return {"status": "success", "content": [{"json": 10**5000}]}

    with pytest.raises(errors.NotSerializableError):
        agent_of([call("big"), "Done."], [big])("Go")
    forget_process()
    assert agent_of([call("big"), "Done."], [big])("Go").stop_reason == "interrupt"
    assert made == [1]


def test_c15_a_store_that_fails_under_a_recorded_effect_ends_the_call() -> None:
    locker = []

    @tool
    async def charge() -> str:
        """Charge, while another process locks the store."""
        locker.append(sqlite3.connect("runs.db", isolation_level=None, check_same_thread=False))
        locker[0].execute("BEGIN IMMEDIATE")
        return await durable.step("charge", lambda: "charged")

    durability = Durability("runs.db", execution_id="trip", busy_seconds=0.1)
    agent = agent_of([call("charge"), "Done."], [charge], durability=durability)
    with pytest.raises(errors.BackendUnavailableError):
        agent("Go")
    assert len(agent.messages) == 2
    locker[0].close()


def test_c25_a_hook_that_sets_the_system_prompt_is_no_drift() -> None:
    def prompt(event: BeforeInvocationEvent) -> None:
        event.agent.system_prompt = "Base.\nSkills: one, two."

    def build(durability: Durability) -> Agent:
        return agent_of(
            [call("work", n=1), "Done.", "Bye."], hooks=[prompt], system_prompt="Base.", durability=durability
        )

    assert assert_replays(build, "Go", "Leave") > 10


def test_c06_one_invocation_state_for_several_calls_is_several_executions() -> None:
    state: dict[str, Any] = {}
    agent = agent_of(["One.", "Two."], durability=Durability("runs.db"))
    first = str(agent("Go", invocation_state=state)), state["execution_id"]
    second = str(agent("Go", invocation_state=state)), state["execution_id"]
    assert (first[0], second[0]) == ("One.\n", "Two.\n")
    assert first[1] != second[1]


def test_c02_an_abandoned_call_does_not_block_the_next() -> None:
    @tool
    async def sometimes(slow: bool) -> str:
        """Be slow the first time."""
        await asyncio.sleep(0 if quick else 60)
        return "ok"

    quick: list[int] = []
    script = [call("sometimes", slow=True), call("work", n=2), "Done."]

    async def run(point: str | None) -> str:
        agent = agent_of(script, [sometimes, work])
        try:
            await asyncio.wait_for(agent.invoke_async("A"), 2.0)
        except TimeoutError:
            pass
        with CrashPoints().recording() if point is None else CrashPoints().crashing(point, "raise"):
            return str(await agent.invoke_async("B"))

    with pytest.raises(SimulatedCrash):
        asyncio.run(run("work 2@1"))
    forget_process()
    quick.append(1)
    assert asyncio.run(run(None)) == "Done.\n"


def test_c09_text_that_is_no_unicode_is_recorded_all_the_same() -> None:
    @tool(context=True)
    def echo(text: str, tool_context: ToolContext) -> str:
        """Echo."""
        tool_context.agent.state.set(text, text)
        return text

    def build(durability: Durability) -> Agent:
        return agent_of([call("echo", "id \ud800", text="lone \ud800"), "Done."], [echo], durability=durability)

    assert assert_replays(build, "Go \ud800") > 5


def test_c04_a_new_agent_object_in_the_same_process_may_answer() -> None:
    @tool(context=True)
    def ask(tool_context: ToolContext) -> str:
        """Ask."""
        return str(tool_context.interrupt("q"))

    first = agent_of([call("ask"), "Done."], [ask])
    result = first("Go")
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None, "a suspended call does not keep its agent alive"
    assert str(agent_of([call("ask"), "Done."], [ask])(answers(result, "yes"))) == "Done.\n"


def test_c30_limits_are_the_same_whichever_process_the_answer_comes_to() -> None:
    @tool(context=True)
    def ask(tool_context: ToolContext) -> str:
        """Ask."""
        return str(tool_context.interrupt("q"))

    script = [call("ask"), call("work", n=1), "Done."]

    def run(fresh: bool) -> Any:
        agent = agent_of(script, [ask, work], durability=Durability(f"{fresh}.db", execution_id="trip"))
        asked = agent("Go", limits={"turns": 3})
        if fresh:
            forget_process()
            agent = agent_of(script, [ask, work], durability=Durability(f"{fresh}.db", execution_id="trip"))
        result = agent(answers(asked, "yes"), limits={"turns": 3})
        metrics = result.metrics
        return result.stop_reason, metrics.cycle_count, [len(found.cycles) for found in metrics.agent_invocations]

    assert run(fresh=True) == run(fresh=False)


def test_c01_a_list_of_messages_is_the_same_input_after_strands_marked_it() -> None:
    prompt: Any = [{"role": "user", "content": [{"text": "Hi"}]}]
    assert str(agent_of(["Hello."])(prompt)) == "Hello.\n"
    assert "tracking_id" in prompt[0]
    forget_process()
    assert str(agent_of(["Hello."])(prompt)) == "Hello.\n"
    forget_process()
    assert str(agent_of(["Hello."])([{"role": "user", "content": [{"text": "Hi"}]}])) == "Hello.\n"


def test_c14_messages_that_tools_and_hooks_edit_in_place_stay_edited() -> None:
    @tool(context=True)
    def compact(tool_context: ToolContext) -> str:
        """Edit the conversation."""
        tool_context.agent.messages[0]["content"][0]["text"] = "[compacted]"
        return "a long result"

    def shorten(event: MessageAddedEvent) -> None:
        if event.message["role"] == "assistant" and len(event.agent.messages) == 4:
            event.agent.messages[2]["content"][0]["toolResult"]["content"] = [{"text": "[short]"}]

    def build(durability: Durability) -> Agent:
        return agent_of([call("compact"), call("work", n=1), "Done."], [compact, work], [shorten], durability)

    assert assert_replays(build, "A long prompt") > 10


def test_c14_what_a_hook_after_a_model_call_strips_from_old_messages_stays_away() -> None:
    def strip(event: AfterModelCallEvent) -> None:
        for message in event.agent.messages[1:-1]:
            for block in message["content"]:
                if "toolResult" in block:
                    block["toolResult"]["content"] = [{"text": "[stripped]"}]

    class GivesTheConversationItself(Plugin):
        """A middleware around the journal that has the model see the agent's own messages, and no copy."""

        name = "around"

        def init_agent(self, agent: Agent) -> None:
            async def around(context: Any, next_fn: Any) -> Any:
                async for event in next_fn(context.replace(messages=context.agent.messages)):
                    yield event

            agent.add_middleware(InvokeModelStage, around)

    script = [call("work", n=1), call("work", n=2), call("work", n=3), "Done."]

    def build(durability: Durability, *around: Any) -> Agent:
        agent = Agent(model=ScriptedModel(script), tools=[work], plugins=[*around, durability], callback_handler=None)
        agent.add_hook(strip, AfterModelCallEvent)
        return agent

    assert assert_replays(build, "Go") > 20
    assert assert_replays(lambda durability: build(durability, GivesTheConversationItself()), "Go") > 20


def test_c14_a_key_that_a_tool_removed_from_the_invocation_state_stays_removed() -> None:
    @tool(context=True)
    def use(tool_context: ToolContext) -> str:
        """Use a password once."""
        return str(tool_context.invocation_state.pop("otp", None))

    script = [call("use"), call("use"), "Done."]
    crash_at("model.start:after@2", agent_of(script, [use]), invocation_state={"otp": 1})
    agent = agent_of(script, [use])
    agent("Go", invocation_state={"otp": 1})
    assert agent.messages[4]["content"][0]["toolResult"]["content"] == [{"text": "None"}]


def test_c31_reentrant_agents_are_refused_at_attach_time() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="reentrant"):
        agent_of(["Hi."], concurrent_invocation_mode="unsafe_reentrant")


def test_c20_work_that_a_tool_left_behind_is_durable_on_its_own() -> None:
    done = threading.Event()

    @tool
    async def leave_behind() -> str:
        """Start a task that outlives the call."""

        async def later() -> None:
            while "trip" in running:
                await asyncio.sleep(0.001)
            other = agent_of(["Later."], durability=Durability("other.db", execution_id="later"), agent_id="later")
            await other.invoke_async("Hello")
            done.set()

        tasks.append(asyncio.create_task(later()))
        return "left"

    tasks: list[Any] = []
    running = {"trip"}

    async def main() -> None:
        await agent_of([call("leave_behind"), "Done."], [leave_behind]).invoke_async("Go")
        running.clear()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert done.is_set()
    assert sqlite3.connect("other.db").execute("SELECT status FROM executions").fetchall() == [("COMPLETED",)]


def test_c08_a_heartbeat_that_fails_once_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[int] = []
    original = Store.second_connection

    def fail_once(self: Store) -> Any:
        if not failures:
            failures.append(1)
            raise errors.BackendUnavailableError("x", "too many open files")
        return original(self)

    monkeypatch.setattr(Store, "second_connection", fail_once)
    beats: list[int] = []
    renewed = LeaseRenewer._renewed
    monkeypatch.setattr(LeaseRenewer, "_renewed", lambda self, *args: beats.append(1) or renewed(self, *args))

    @tool
    def wait() -> str:
        """Wait for three beats."""
        deadline = time.monotonic() + 30
        while len(beats) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        return str(len(beats))

    durability = Durability("runs.db", execution_id="trip", lease_seconds=0.3)
    agent = agent_of([call("wait"), "Done."], [wait], durability=durability)
    agent("Go")
    assert failures == [1]
    assert len(beats) >= 3


def test_c13_a_stream_that_breaks_in_the_middle_is_an_error_and_the_call_can_be_tried_again() -> None:
    script = [Answer(text="A long answer.", chunk=3, break_after=3)]
    model = ScriptedModel(script)
    with pytest.raises(ConnectionError):
        agent_of(model)("Go")
    forget_process()
    assert str(agent_of(model)("Go")) == "A long answer.\n"
