"""C63: a direct call inside a tool has an idempotency key of its own, the same in every attempt."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent, BeforeInvocationEvent, BeforeToolCallEvent
from strands_tools import batch

from strands_durable import CurrentStep, Durability, current_step, durable
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

paid: list[tuple[int, CurrentStep | None]] = []
seen: list[tuple[str, CurrentStep | None]] = []


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    paid.clear()
    seen.clear()


@tool
def pay(amount: int, tip: Any = None) -> str:
    """Pay."""
    paid.append((amount, current_step()))
    return f"paid {amount}"


@tool
async def pay_in_parts(amount: int) -> str:
    """Pay in two recorded parts."""
    for part in range(2):
        await durable.step("part", lambda part=part: paid.append((part, current_step())))
    return "paid"


def directly(agent: Agent, name: str, **given: Any) -> Any:
    return getattr(agent.tool, name)(record_direct_tool_call=False, **given)


@tool(context=True)
def settle(tool_context: ToolContext) -> str:
    """Pay three times: twice the same."""
    step = current_step()
    for amount in (5, 7, 5):
        directly(tool_context.agent, "pay", amount=amount)
        assert current_step() == step, "after a direct call, the step is again that of the tool"
    seen.append(("settle", step))
    reach("settled")
    return "settled"


def agent_of(*script: Any, tools: Any = (), hooks: Any = (), **options: Any) -> Agent:
    return Agent(
        agent_id=options.pop("agent_id", "clerk"), model=ScriptedModel(list(script)), callback_handler=None,
        tools=[pay, pay_in_parts, settle, batch, *tools], hooks=list(hooks),
        plugins=[Durability("runs.db", execution_id="trip")], **options,
    )  # fmt: skip


def keys_of_each_attempt(build: Any, point: str) -> tuple[list[Any], list[Any]]:
    """Die at a point, run again, and return what was paid under which key, in the first attempt and the second."""
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        build()("Go")
    forget_process()
    first = [(amount, step.idempotency_key) for amount, step in paid if step is not None]
    assert len(first) == len(paid), "each belongs to a step"
    paid.clear()
    build()("Go")
    return first, [(amount, step.idempotency_key) for amount, step in paid if step is not None]


def test_c63_a_direct_call_has_the_same_key_in_every_attempt_and_another_than_any_other() -> None:
    first, second = keys_of_each_attempt(lambda: agent_of(call("settle"), "Done."), "settled@1")
    assert first == second
    assert len({key for _, key in first}) == 3, "also where two calls are equal"
    step = seen[-1][1]
    assert step is not None
    assert step.idempotency_key not in {key for _, key in second}


def test_c63_the_current_step_of_a_direct_call_says_what_it_is() -> None:
    keys_of_each_attempt(lambda: agent_of(call("settle"), "Done."), "settled@1")
    outer = seen[-1][1]
    assert outer is not None
    for _, step in paid:
        assert step is not None
        assert (step.kind, step.name, step.phase, step.replaying) == ("tool", "pay", "running", False)
        assert (step.execution_id, step.attempt) == ("trip", 2)
        assert step.key.startswith(outer.key), "it is part of the step that makes it"


def test_c63_the_same_call_in_another_step_has_another_key() -> None:
    agent_of(call("settle", "a"), call("settle", "b"), "Done.")("Go")
    assert len({step.idempotency_key for _, step in paid if step is not None}) == 6


def test_c63_calls_in_a_batch_have_keys_of_their_own() -> None:
    invocations = [{"name": "pay", "arguments": {"amount": amount}} for amount in (5, 7, 5)]

    def build() -> Agent:
        return agent_of([call("batch", invocations=invocations)], "Done.")

    first, second = keys_of_each_attempt(build, "tool.done:before@1")
    assert (len({key for _, key in first}), first) == (3, second)


def test_c63_calls_at_the_same_time_have_keys_of_their_own() -> None:
    @tool(context=True)
    def settle_at_once(tool_context: ToolContext) -> str:
        """Pay many bills at the same time."""
        with ThreadPoolExecutor(8) as threads:
            for amount in [1, 2, 3, 4] * 4:
                context = contextvars.copy_context()
                threads.submit(context.run, directly, tool_context.agent, "pay", amount=amount)
        reach("settled")
        return "settled"

    def build() -> Agent:
        return agent_of(call("settle_at_once"), "Done.", tools=[settle_at_once])

    first, second = keys_of_each_attempt(build, "settled@1")
    assert len(set(first)) == 16
    assert set(first) == set(second), "the order in which they arrive does not count"


def test_c63_a_direct_call_in_a_direct_call_has_a_key_of_its_own() -> None:
    @tool(context=True)
    def settle_twice(tool_context: ToolContext) -> str:
        """Settle two times."""
        for _ in range(2):
            directly(tool_context.agent, "settle")
        reach("twice")
        return "settled twice"

    def build() -> Agent:
        return agent_of(call("settle_twice"), "Done.", tools=[settle_twice])

    first, second = keys_of_each_attempt(build, "twice@1")
    assert (len({key for _, key in first}), first) == (6, second)


def test_c63_a_tool_of_another_agent_called_directly_has_a_key_of_its_own() -> None:
    @tool
    def have_it_paid() -> str:
        """Have another agent's tool pay; its agent is not running, and has recorded nothing."""
        other = agent_of("never", agent_id="cashier")
        for _ in range(2):
            directly(other, "pay", amount=5)
        reach("paid by another")
        return "paid"

    def build() -> Agent:
        return agent_of(call("have_it_paid"), "Done.", tools=[have_it_paid])

    first, second = keys_of_each_attempt(build, "paid by another@1")
    assert (len({key for _, key in first}), first) == (2, second)


def test_c63_a_direct_call_that_is_recorded_as_messages_has_its_key_too() -> None:
    @tool
    def have_it_recorded() -> str:
        """Have another agent's tool pay, and that agent remember it."""
        other = agent_of("never", agent_id="cashier")
        other.tool.pay(amount=5)
        assert len(other.messages) == 4
        reach("recorded")
        return "paid"

    def build() -> Agent:
        return agent_of(call("have_it_recorded"), "Done.", tools=[have_it_recorded])

    first, second = keys_of_each_attempt(build, "recorded@1")
    assert (len(first), first) == (1, second)


def test_c63_a_direct_call_in_a_hook_has_the_same_key_in_every_attempt() -> None:
    def settle_first(event: BeforeInvocationEvent) -> None:
        for _ in range(2):
            directly(event.agent, "pay", amount=5)

    def build() -> Agent:
        return agent_of("Done.", hooks=[settle_first])

    first, second = keys_of_each_attempt(build, "model.start:before@1")
    assert (len({key for _, key in first}), first) == (2, second)


def test_c63_hooks_around_a_direct_call_see_its_step_and_another_try_has_another_key() -> None:
    def before(event: BeforeToolCallEvent) -> None:
        seen.append(("before", current_step()))

    def after(event: AfterToolCallEvent) -> None:
        seen.append(("after", current_step()))
        event.retry = event.tool_use["name"] == "pay" and len(paid) % 2 == 1

    @tool(context=True)
    def pay_until_it_is_even(tool_context: ToolContext) -> str:
        """Pay directly; a hook wants it once more."""
        directly(tool_context.agent, "pay", amount=5)
        reach("even")
        return "even"

    def build() -> Agent:
        agent = agent_of(call("pay_until_it_is_even"), "Done.", tools=[pay_until_it_is_even])
        agent.add_hook(before, BeforeToolCallEvent)
        agent.add_hook(after, AfterToolCallEvent)
        return agent

    first, second = keys_of_each_attempt(build, "even@1")
    assert (len({key for _, key in first}), first) == (2, second)
    around = [(what, step.idempotency_key) for what, step in seen if step is not None and step.name == "pay"]
    assert around == [(what, key) for _, key in [*first, *second] for what in ("before", "after")]


def test_c63_an_input_without_a_recorded_form_has_a_key_that_lasts() -> None:
    @tool(context=True)
    def pay_with_a_client(tool_context: ToolContext) -> str:
        """Pay through a client, which is another object in every process."""
        for _ in range(2):
            directly(tool_context.agent, "pay", amount=5, tip={"client": object(), "for": ["Rome", object()]})
        reach("paid with it")
        return "paid"

    def build() -> Agent:
        return agent_of(call("pay_with_a_client"), "Done.", tools=[pay_with_a_client])

    first, second = keys_of_each_attempt(build, "paid with it@1")
    assert (len({key for _, key in first}), first) == (2, second)


def test_c63_a_recorded_effect_in_a_direct_call_is_not_repeated() -> None:
    @tool(context=True)
    async def pay_recorded(tool_context: ToolContext) -> str:
        """Pay in recorded parts, directly, and die."""
        directly(tool_context.agent, "pay_in_parts", amount=5)
        reach("recorded parts")
        return "paid"

    def build() -> Agent:
        return agent_of(call("pay_recorded"), "Done.", tools=[pay_recorded])

    first, second = keys_of_each_attempt(build, "recorded parts@1")
    assert ([part for part, _ in first], second) == ([0, 1], [])
    shown = SqliteBackend("sqlite:///runs.db?worker=off").sync.get("trip").detail().calls[0].steps
    assert [step.label for step in shown if step.kind == "effect"] == ["1.0 > part"] * 2


def test_c63_state_that_a_direct_call_writes_is_recorded_with_the_step_around_it() -> None:
    @tool(context=True)
    def note(what: str, tool_context: ToolContext) -> str:
        """Note something."""
        tool_context.agent.state.set("noted", what)
        return "noted"

    @tool(context=True)
    def note_directly(tool_context: ToolContext) -> str:
        """Note something, by a direct call."""
        directly(tool_context.agent, "note", what="paid")
        return "noted"

    def build() -> Agent:
        return agent_of([call("note_directly"), call("settle")], "Done.", tools=[note, note_directly])

    with pytest.raises(SimulatedCrash), CrashPoints().crashing("tool.done:after@2", "raise"):
        build()("Go")
    forget_process()
    resumed = build()
    resumed("Go")
    assert resumed.state.get("noted") == "paid"


def test_c63_outside_a_durable_call_a_direct_call_belongs_to_no_step() -> None:
    agent = agent_of(call("settle"), "Done.", hooks=[])
    directly(agent, "pay", amount=1)
    assert paid == [(1, None)]

    async def consume() -> None:
        async for event in agent.stream_async("Go"):
            if "message" in event:
                directly(agent, "pay", amount=2)

    asyncio.run(consume())
    assert {step for amount, step in paid if amount == 2} == {None}
    assert None not in {step for amount, step in paid if amount > 2}
