"""C62 beside others: agents that others use or attach meanwhile, calls that only look alike, drift that is met again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from strands import Agent, tool
from strands.multiagent import GraphBuilder

from strands_durable import Durability, current_step
from strands_durable.errors import DriftError
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
    assert step.name == "pay"
    paid.append((amount, step.idempotency_key))
    reach(f"paid {amount}")
    return f"paid {amount}"


def amounts() -> list[int]:
    return [amount for amount, _ in paid]


def child(script: Any, tools: Any = (pay,), **options: Any) -> Agent:
    return Agent(model=ScriptedModel(script), tools=list(tools), callback_handler=None, **options)


def root(turns: Any, tools: Any, execution_id: str = "trip") -> Agent:
    plugins = [Durability("runs.db", execution_id=execution_id)]
    return child(turns, tools, plugins=plugins, name="root")


def new_root(turns: Any, tools: Any) -> Agent:
    forget_process()
    return root(turns, tools)


def crash(point: str, agent: Any) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent("Go")


def told(agent: Agent) -> list[str]:
    blocks = [block for message in agent.messages for block in message["content"] if "toolResult" in block]
    return [block["toolResult"]["content"][0]["text"].strip() for block in blocks]


def paying_twice(prompt: list[str]) -> Any:
    """Return a tool that has an agent do it, with the prompt that is in the list then."""

    @tool
    def use() -> str:
        """Have an agent do it."""
        return str(child([call("pay", amount=5), call("pay", amount=7), "Paid."])(prompt[0])).strip()

    return use


def test_c62_a_child_with_another_input_pays_nothing_again_however_often_it_is_tried() -> None:
    prompt, script = ["Pay."], [call("use"), "Done."]
    use = paying_twice(prompt)
    crash("model.start:after@3", new_root(script, [use]))
    prompt[0] = "Pay now."
    for _ in range(2):
        with pytest.raises(DriftError):
            new_root(script, [use])("Go")
        assert amounts() == [5]
    prompt[0] = "Pay."
    new_root(script, [use])("Go")
    assert amounts() == [5, 7]


def test_c62_a_child_with_another_input_that_was_killed_before_it_paid_pays_nothing_again() -> None:
    prompt, script = ["Pay."], [call("use"), "Done."]
    use = paying_twice(prompt)
    crash("model.start:after@3", new_root(script, [use]))
    prompt[0] = "Pay now."
    crash("model.done:after@1", new_root(script, [use]))
    with pytest.raises(DriftError):
        new_root(script, [use])("Go")
    assert amounts() == [5]


def test_c62_a_child_that_was_given_up_for_another_does_not_pay_beside_it() -> None:
    seconds, patience = [60.0], [1.0]

    class Waits(ScriptedModel):
        async def stream(self, *args: Any, **given: Any) -> Any:
            await asyncio.sleep(seconds[0])
            async for chunk in super().stream(*args, **given):
                yield chunk

    @tool
    async def use() -> str:
        """Have an agent do it, or else another."""
        first = Agent(model=Waits([call("pay", amount=1), "First."]), tools=[pay], callback_handler=None)
        try:
            result = await asyncio.wait_for(first.invoke_async("Be quick."), patience[0])
        except TimeoutError:
            result = await child([call("pay", amount=2), "Second."]).invoke_async("Never mind.")
        reach("used")
        return str(result).strip()

    script = [call("use"), "Done."]
    crash("used@1", new_root(script, [use]))
    seconds[0], patience[0] = 0.0, 60.0
    with pytest.raises(DriftError):
        new_root(script, [use])("Go")
    assert amounts() == [2]


def test_c62_children_that_began_together_resume_in_any_order() -> None:
    seconds = {1: 0.0, 2: 0.0}

    @tool
    async def both() -> str:
        """Have two agents pay, each when its bill has come."""

        async def one(amount: int) -> str:
            await asyncio.sleep(seconds[amount])
            script: list[Any] = [call("pay", amount=amount), f"Paid {amount}."]
            model = ScriptedModel(script) if amount == 1 else Slow(script)
            agent = Agent(model=model, tools=[pay], callback_handler=None)
            return str(await agent.invoke_async(f"Pay {amount}.")).strip()

        return " ".join(await asyncio.gather(one(1), one(2)))

    script = [call("both"), "Done."]
    crash("tool.done:after@1", new_root(script, [both]))
    seconds[1] = 0.3
    agent = new_root(script, [both])
    agent("Go")
    assert told(agent) == ["Paid 1. Paid 2."]
    assert amounts() == [1, 2]


class Slow(ScriptedModel):
    """A model that takes its time."""

    async def stream(self, *args: Any, **given: Any) -> Any:
        await asyncio.sleep(0.05)
        async for chunk in super().stream(*args, **given):
            yield chunk


def test_c62_equal_inputs_find_the_agent_that_was_built_with_the_same_conversation() -> None:
    arrived: list[tuple[str, int]] = [("A", 1), ("B", 2)]

    async def one(name: str, amount: int) -> str:
        known: Any = [
            {"role": "user", "content": [{"text": f"Invoice {name}"}]},
            {"role": "assistant", "content": [{"text": "Noted."}]},
        ]
        script: list[Any] = ["Noted.", call("pay", amount=amount), f"{name} is paid."]
        agent = Agent(model=Slow(script), tools=[pay], messages=known, callback_handler=None)
        result = str(await agent.invoke_async("Pay it.")).strip()
        reach(f"invoice {name}")
        return result

    @tool
    async def pay_all() -> str:
        """Pay invoices in the order in which they arrived."""
        tasks = [asyncio.create_task(one(*arrived[0]))]
        if arrived[0][0] == "A":
            await tasks[0]
        tasks.append(asyncio.create_task(one(*arrived[1])))
        return " ".join(sorted(await asyncio.gather(*tasks)))

    script = [call("pay_all"), "Done."]
    crash("invoice A@1", new_root(script, [pay_all]))
    assert amounts() == [1]
    arrived.reverse()
    agent = new_root(script, [pay_all])
    agent("Go")
    assert told(agent) == ["A is paid. B is paid."]
    assert amounts() == [1, 2]


def test_c62_a_helper_with_examples_is_found_by_its_input_in_a_new_process() -> None:
    helper: list[Agent] = []

    def build() -> None:
        example: Any = [
            {"role": "user", "content": [{"text": "Hi"}]},
            {"role": "assistant", "content": [{"text": "Hi."}]},
        ]
        pays = [call("pay", amount=5), "Paid.", call("pay", amount=7), "Paid."]
        turns = lambda turn, messages: pays[sum(each["role"] == "assistant" for each in messages) - 1]  # noqa: E731
        helper[:] = [child(turns, messages=example)]

    @tool
    def use() -> str:
        """Have the helper pay twice."""
        results = [str(helper[0](f"Pay {number}.")).strip() for number in (1, 2)]
        reach("used")
        return " ".join(results)

    script = [call("use"), "Done."]
    build()
    crash("used@1", new_root(script, [use]))
    build()
    agent = new_root(script, [use])
    agent("Go")
    assert told(agent) == ["Paid. Paid."]
    assert amounts() == [5, 7]


def test_c62_an_agent_that_is_attached_while_a_tool_calls_it_stays_attached_once() -> None:
    others: list[Agent] = []

    @tool
    def build() -> str:
        """Build another durable agent that has the helper as a tool, as a second request does."""
        others.append(root([call("helper", input="Pay 9."), "Done."], [helper.as_tool()], "second"))
        return "built"

    def turns(turn: int, messages: Any) -> Any:
        if "Pay 9." in str(messages):
            return "Paid." if "paid 9" in str(messages) else call("pay", amount=9)
        return [call("pay", amount=5), call("build"), "Paid."][turn]

    helper = child(turns, [pay, build], name="helper")

    @tool
    def use() -> str:
        """Have the helper do it."""
        return str(helper("Pay 5.")).strip()

    agent = new_root([call("use"), "Done."], [use])
    agent("Go")
    assert told(agent) == ["Paid."]
    assert amounts() == [5]
    crash("model.start:after@3", others[0])
    assert str(others[0]("Go")).strip() == "Done."
    assert amounts() == [5, 9]


def test_c62_an_agent_that_others_use_at_the_time_is_refused_as_in_strands() -> None:
    started, go = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        started.set()
        go.wait(20)
        return "waited"

    def turns(turn: int, messages: Any) -> Any:
        text = str(messages[-1]["content"])
        return call("wait") if "plain" in text else "Hello."

    helper = child(turns, [wait])

    @tool
    def use() -> str:
        """Have the helper do it."""
        try:
            return str(helper("Hi.")).strip()
        finally:
            reach("used")

    script = [call("use"), "Done."]
    crash("used@1", new_root(script, [use]))
    helper.messages.clear()
    other = threading.Thread(target=helper, args=("Be plain.",))
    other.start()
    started.wait(20)
    agent = new_root(script, [use])
    agent("Go")
    go.set()
    other.join(20)
    assert "already processing" in told(agent)[0]
    assert [message["role"] for message in helper.messages] == ["user", "assistant", "user", "assistant"]
    assert helper.messages[0]["content"] == [{"text": "Be plain."}]


def test_c62_a_condition_of_a_graph_asks_again_after_each_node() -> None:
    @tool
    def write() -> str:
        """Write."""
        reach("written")
        return "a draft"

    def build(verdict: str) -> Any:
        forget_process()

        def is_good(state: Any) -> bool:
            return "yes" in str(child([verdict])("Is it good?"))

        writes = lambda turn, messages: "Written." if turn % 2 else call("write")  # noqa: E731
        builder = GraphBuilder()
        builder.add_node(child(writes, [write]), "write")
        builder.add_node(child([call("pay", amount=1), "Printed."]), "print")
        builder.add_edge("write", "write", condition=lambda state: len(state.execution_order) < 2)
        builder.add_edge("write", "print", condition=is_good)
        builder.set_entry_point("write")
        builder.set_max_node_executions(10)
        builder.set_execution_timeout(60)
        builder.set_plugins([Durability("runs.db", execution_id="trip")])
        return builder.build()

    crash("written@2", build("no"))
    result = build("yes")("Go")
    assert [node.node_id for node in result.execution_order] == ["write", "write", "print"]
    assert amounts() == [1]


def test_c62_an_agent_that_a_tool_leaves_running_pays_after_the_run_has_ended() -> None:
    tasks: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    class Late(ScriptedModel):
        async def stream(self, *args: Any, **given: Any) -> Any:
            await ended.wait()
            async for chunk in super().stream(*args, **given):
                yield chunk

    @tool
    def bill(amount: int) -> str:
        """Pay, in a step or not."""
        paid.append((amount, ""))
        return f"paid {amount}"

    @tool
    async def leave() -> str:
        """Leave an agent running."""
        model = Late([call("bill", amount=5), "Paid."])
        agent = Agent(model=model, tools=[bill], callback_handler=None)
        tasks.append(asyncio.create_task(agent.invoke_async("Pay.")))
        await asyncio.sleep(0.01)
        return "left"

    async def run() -> None:
        await new_root([call("leave"), "Done."], [leave]).invoke_async("Go")
        ended.set()
        assert str(await tasks[0]).strip() == "Paid."

    asyncio.run(run())
    assert amounts() == [5]
