"""C62 in corners: approvals and doubts inside delegating tools, equal work at the same time, hooks of orchestrators."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeNodeCallEvent
from strands.multiagent import GraphBuilder
from strands.vended_interventions.hitl import HumanInTheLoop
from strands.vended_tools.subagent import make_subagent
from strands.vended_tools.swarm import make_swarm

from strands_durable import Durability, ToolPolicy, current_step
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

paid: list[tuple[int, str]] = []


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    paid.clear()


@tool
def pay(amount: int) -> str:
    """Pay."""
    step = current_step()
    assert step is not None
    paid.append((amount, step.idempotency_key))
    reach(f"paid {amount}")
    return f"paid {amount}"


TWO = [call("pay", amount=5), call("pay", amount=7), "Paid."]
AGENTS = [{"name": "payer", "instructions": "Pay."}]


def script(*outer: Any) -> Any:
    """Return the script of a model that agents share; those that a tool builds pay twice."""
    return lambda turn, messages: (TWO if "Pay." in str(messages[0]["content"]) else outer)[turn]


def root(turns: Any, tools: Any, hooks: Any = (), interventions: Any = None, **options: Any) -> Agent:
    forget_process()
    return Agent(
        model=ScriptedModel(turns), tools=list(tools), callback_handler=None, hooks=list(hooks),
        interventions=interventions, plugins=[Durability("runs.db", execution_id="trip", **options)],
    )  # fmt: skip


def crash(point: str, agent: Agent, prompt: Any = "Go") -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt)


def amounts() -> list[int]:
    return [amount for amount, _ in paid]


def answers(result: Any, answer: Any) -> list[Any]:
    return [{"interruptResponse": {"interruptId": found.id, "response": answer}} for found in result.interrupts]


def test_c62_a_person_approves_each_payment_inside_a_subagent_in_new_processes() -> None:
    def build() -> Agent:
        turns = script(call("subagent", task="Pay."), "Done.")
        return root(turns, [pay, make_subagent()], interventions=[HumanInTheLoop(allowed_tools=["subagent"])])

    result, rounds = build()("Go"), 0
    while result.interrupts:
        rounds += 1
        assert rounds < 5
        result = build()(answers(result, "y"))
    assert rounds == 2
    assert str(result).strip() == "Done."
    assert amounts() == [5, 7]


@pytest.mark.parametrize("how", ["subagent", "swarm"])
@pytest.mark.parametrize(("answer", "expected"), [("retry", [5, 7, 7]), ({"result": "it was paid"}, [5, 7])])
def test_c62_a_person_decides_about_a_payment_in_doubt_inside(how: str, answer: Any, expected: list[int]) -> None:
    def build() -> Agent:
        asks = call("subagent", task="Pay.") if how == "subagent" else call("swarm", task="Pay.", agents=AGENTS)
        tools = [pay, make_subagent(), make_swarm()]
        return root(script(asks, "Done."), tools, tool_policies={"pay": ToolPolicy(in_doubt="ask")})

    crash("paid 7@1", build())
    result = build()("Go")
    assert result.stop_reason == "interrupt"
    result = build()(answers(result, answer))
    assert str(result).strip() == "Done."
    assert amounts() == expected
    assert len(set(paid)) == 2


def test_c62_equal_delegations_at_the_same_time_have_keys_of_their_own() -> None:
    def build() -> Agent:
        turns = script([call("subagent", "a", task="Pay."), call("subagent", "b", task="Pay.")], "Done.")
        return root(turns, [pay, make_subagent()])

    crash("tool.done:after@3", build())
    assert str(build()("Go")).strip() == "Done."
    assert len(set(paid)) == 4
    assert sorted({amount: amounts().count(amount) for amount in amounts()}) == [5, 7]


def test_c62_another_try_that_a_hook_wants_is_other_work() -> None:
    def again(event: AfterToolCallEvent) -> None:
        if event.tool_use["name"] == "subagent" and not event.agent.state.get("again"):
            event.agent.state.set("again", True)
            event.retry = True

    agent = root(script(call("subagent", task="Pay."), "Done."), [pay, make_subagent()])
    agent.add_hook(again, AfterToolCallEvent)
    agent("Go")
    assert amounts() == [5, 7, 5, 7]
    assert len(set(paid)) == 4


def test_c62_a_stream_that_the_tool_drops_does_not_stop_the_run() -> None:
    @tool
    async def peek() -> str:
        """Begin to read what an agent says, and forget it."""
        agent = Agent(model=ScriptedModel(TWO), tools=[pay], callback_handler=None)
        async for event in agent.stream_async("Go"):
            if "message" in event:
                break
        return "peeked"

    def build() -> Agent:
        return root([call("peek"), call("peek"), "Done."], [peek])

    agent = build()
    assert str(agent("Go")).strip() == "Done."
    before = [*paid]
    assert str(build()("Go")).strip() == "Done."
    assert paid == before


def test_c62_a_hook_of_a_graph_asks_an_agent_once() -> None:
    asked: list[str] = []

    class Judge(ScriptedModel):
        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append("judge")
            async for chunk in super().stream(messages, *args, **kwargs):
                yield chunk

    async def judge(event: BeforeNodeCallEvent) -> None:
        await Agent(model=Judge(["yes"]), callback_handler=None).invoke_async("May it run?")

    def build() -> Any:
        forget_process()
        builder = GraphBuilder()
        builder.add_node(Agent(model=ScriptedModel([TWO[0], "Done."]), tools=[pay], callback_handler=None), "a")
        builder.set_plugins([Durability("runs.db", execution_id="trip")])
        builder.set_execution_timeout(60)
        graph = builder.build()
        graph.hooks.add_callback(BeforeNodeCallEvent, judge)
        return graph

    with pytest.raises(SimulatedCrash), CrashPoints().crashing("paid 5@1", "raise"):
        build()("Go")
    assert build()("Go").status.value == "completed"
    assert asked == ["judge"]
    assert amounts() == [5, 5]
    assert len(set(paid)) == 1


def test_c62_many_children_leave_nothing_on_an_agent_outside() -> None:
    helper = Agent(model=ScriptedModel(lambda turn, messages: "Hm."), callback_handler=None)

    @tool
    async def ask() -> str:
        """Ask one agent many times."""
        for number in range(20):
            await helper.invoke_async(f"{number}?")
        return "asked"

    root([call("ask"), "Done."], [ask])("Go")
    kept = sum(map(len, helper.hooks._registered_callbacks.values()))
    assert kept == sum(
        map(len, Agent(model=ScriptedModel([]), callback_handler=None).hooks._registered_callbacks.values())
    )
    assert type(helper.state).__name__ == "JSONSerializableDict"
    assert len(helper.messages) == 40


def test_c62_a_child_that_a_task_calls_after_its_tool_is_as_in_strands() -> None:
    tasks: list[Any] = []
    keys: list[Any] = []

    @tool
    def look() -> str:
        """Look."""
        step = current_step()
        keys.append(None if step is None else step.name)
        return "seen"

    @tool
    async def leave() -> str:
        """Leave a task behind."""

        async def later() -> None:
            await ended.wait()
            await Agent(model=ScriptedModel([call("look"), "Seen."]), tools=[look], callback_handler=None).invoke_async(
                "?"
            )

        ended = asyncio.Event()
        tasks.extend([asyncio.create_task(later()), ended])
        return "left"

    @tool
    async def wait() -> str:
        """Let the task go on, and wait for it."""
        tasks[1].set()
        await tasks[0]
        return "waited"

    asyncio.run(root([call("leave"), call("wait"), "Done."], [leave, wait]).invoke_async("Go"))
    assert keys == ["leave"]
