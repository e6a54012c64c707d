"""C61 in its corners: tries, calls with equal ids, other tools, middlewares that call twice, nodes that are no agents."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent import AgentResult
from strands.hooks import AfterToolCallEvent, BeforeNodeCallEvent, BeforeToolCallEvent, BeforeToolsEvent
from strands.hooks.registry import BaseHookEvent
from strands.multiagent import GraphBuilder
from strands.telemetry.metrics import EventLoopMetrics
from strands.tools.executors import ConcurrentToolExecutor, SequentialToolExecutor
from strands.types.exceptions import EventLoopException

from strands_durable import Durability, ToolPolicy, durable
from strands_durable.testing import ScriptedModel, call, forget_process, reach
from tests.contract.test_c61_decided import (
    agent_of,
    ask,
    crash,
    deny,
    deny_all,
    deny_node,
    paid,
    pay,
    question,
    results,
)


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    paid.clear()


def amounts() -> list[int]:
    return [amount for amount, _ in paid]


# Another try of a call on record


def once(event: AfterToolCallEvent) -> None:
    event.retry = event.tool_use["name"] == "pay" and len(paid) == 1


@pytest.mark.parametrize("by", ["hook", "signal", "question"])
def test_c61_what_is_wanted_of_all_tools_does_not_stop_the_next_try_of_a_call_on_record(by: str) -> None:
    crash("tool.after:after@1", agent_of(hooks=[once]))
    agent, signal = agent_of(hooks=[deny_all] if by == "hook" else []), threading.Event()
    if by == "signal":
        signal.set()
    elif by == "question":
        agent.add_hook(question, BeforeToolsEvent)
    result = agent("Go", cancel_signal=signal)
    assert amounts() == [5, 5]
    if by == "question":
        assert [found.name for found in result.interrupts or ()] == ["approve"]  # about the other call
    else:
        assert results(agent)["p"] == "paid 5"
        assert results(agent)["s"] != "slept"


# Another tool


@tool
def other(amount: int) -> str:
    """Do something else."""
    paid.append((-amount, "other"))
    reach(f"other {amount}")
    return f"other {amount}"


def select(event: BeforeToolCallEvent) -> None:
    event.selected_tool = other


def rename(event: BeforeToolCallEvent) -> None:
    event.tool_use = {**event.tool_use, "name": "other"}


def select_and_rename(event: BeforeToolCallEvent) -> None:
    select(event)
    rename(event)


ONE: list[Any] = [call("pay", "p", amount=5), "Done."]


@pytest.mark.parametrize("hook", [select, rename, select_and_rename])
@pytest.mark.parametrize("tools", [[pay, other], [pay]])
def test_c61_a_call_in_doubt_runs_the_tool_that_is_on_record(hook: Any, tools: Any) -> None:
    crash("paid 5@1", agent_of(ONE, tools=tools))
    agent = agent_of(ONE, tools=tools, hooks=[hook])
    agent("Go")
    assert amounts() == [5, 5]
    assert results(agent) == {"p": "paid 5"}


@pytest.mark.parametrize("hook", [select, rename, select_and_rename])
@pytest.mark.parametrize("later", [True, False])
def test_c61_a_tool_that_a_hook_chose_is_the_one_on_record(
    hook: Any, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    crash("other 5@1", agent_of(ONE, tools=[pay, other], hooks=[hook]))
    agent = agent_of(ONE, tools=[pay, other], hooks=[hook] if later else [])
    agent("Go")
    assert amounts() == [-5, -5]
    assert results(agent) == {"p": "other 5"}
    assert ("wish=<tool_use>" in caplog.text) is not later


def test_c61_a_hook_that_raises_fails_the_run_and_leaves_the_record() -> None:
    def unreachable(event: BeforeToolCallEvent) -> None:
        raise ConnectionError("no answer of the policy engine")

    crash("slow@1", agent_of())
    with pytest.raises(EventLoopException, match="no answer"):
        agent_of(hooks=[unreachable])("Go")
    forget_process()
    agent = agent_of()
    agent("Go")
    assert amounts() == [5]
    assert results(agent) == {"p": "paid 5", "s": "slept"}


# Calls with one id, as some models give them, and a hook that writes their input


def reissue(event: BeforeToolCallEvent) -> None:
    event.tool_use = {**event.tool_use, "input": {**event.tool_use["input"]}}


def another_id(event: BeforeToolCallEvent) -> None:
    event.tool_use = {**event.tool_use, "toolUseId": f"x{event.tool_use['toolUseId']}"}


TWINS: list[Any] = [[call("pay", "p", amount=5), call("pay", "p", amount=6), call("slow", "s")], "Done."]


@pytest.mark.parametrize("executor", [SequentialToolExecutor, ConcurrentToolExecutor])
@pytest.mark.parametrize("point", ["tool.done:after@2", "model.start:before@2"])
@pytest.mark.parametrize("later", [(reissue,), ()])
def test_c61_a_hook_that_writes_the_input_does_not_confuse_calls_with_one_id(
    executor: Any, point: str, later: Any
) -> None:
    crash(point, agent_of(TWINS, hooks=[reissue], executor=executor()))
    agent = agent_of(TWINS, hooks=later, executor=executor())
    agent("Go")
    assert sorted(amounts()) == [5, 6]
    assert len({key for _, key in paid}) == 2
    blocks = [block["toolResult"]["content"][0]["text"] for block in agent.messages[2]["content"]]
    assert blocks == ["paid 5", "paid 6", "slept"]


@pytest.mark.parametrize(("first", "later"), [((), [another_id]), ([another_id], ())])
def test_c61_a_hook_that_writes_the_id_finds_the_same_record(first: Any, later: Any) -> None:
    crash("slow@1", agent_of(hooks=first))
    agent_of(hooks=later)("Go")
    assert amounts() == [5]


# Middlewares outside ours that call on more than once


async def plain(context: Any, next_fn: Any) -> Any:
    async for event in next_fn(context):
        yield event


async def twice(context: Any, next_fn: Any) -> Any:
    async for _ in next_fn(context):
        pass
    async for event in next_fn(context):
        yield event


def test_c61_a_middleware_outside_ours_that_calls_again_repeats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    crash("slow@1", agent_of(wraps=[plain]))
    agent = agent_of(wraps=[twice])
    agent("Go")
    assert amounts() == [5]
    assert results(agent)["p"] == "paid 5"
    assert "is on record" in caplog.text


def test_c61_a_middleware_outside_ours_that_called_twice_has_called_twice() -> None:
    crash("slow@1", agent_of(wraps=[twice]))
    agent = agent_of(wraps=[plain])
    agent("Go")
    assert amounts() == [5, 5]
    assert results(agent)["p"] == "paid 5"


async def put_other(context: Any, next_fn: Any) -> Any:
    async for event in next_fn(context.replace(tool=other)):
        yield event


async def route_to_other(context: Any, next_fn: Any) -> Any:
    async for event in next_fn(context.replace(tool=other, tool_use={**context.tool_use, "name": "other"})):
        yield event


@pytest.mark.parametrize("wrap", [put_other, route_to_other])
def test_c61_a_middleware_outside_ours_does_not_replace_the_tool_of_a_call_in_doubt(
    wrap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    crash("paid 5@1", agent_of(ONE, tools=[pay, other], wraps=[plain]))
    agent = agent_of(ONE, tools=[pay, other], wraps=[wrap])
    agent("Go")
    assert amounts() == [5, 5]
    assert results(agent) == {"p": "paid 5"}
    assert "wish=<tool_use>" in caplog.text


@pytest.mark.parametrize("wrap", [put_other, route_to_other])
@pytest.mark.parametrize("later", [True, False])
def test_c61_a_tool_that_a_middleware_chose_is_the_one_on_record(
    wrap: Any, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    crash("other 5@1", agent_of(ONE, tools=[pay, other], wraps=[wrap]))
    agent = agent_of(ONE, tools=[pay, other], wraps=[wrap if later else plain])
    agent("Go")
    assert amounts() == [-5, -5]
    assert results(agent) == {"p": "other 5"}
    assert ("wish=<tool_use>" in caplog.text) is not later


def test_c61_a_later_try_that_only_has_an_effect_is_the_call() -> None:
    @tool
    async def effective() -> str:
        """Pay in a step of a tool without an intent."""
        await durable.step("effect", lambda: paid.append((len(paid), "effect")))
        count = len(paid)
        reach("effective")
        return f"paid {count} times"

    def build(wrap: Any) -> Any:
        policies = {"effective": ToolPolicy(inline=True)}
        script = [call("effective", "e"), "Done."]
        return agent_of(script, tools=[effective], wraps=[wrap], tool_policies=policies)

    crash("effective@2", build(twice))
    agent = build(plain)
    agent("Go")
    assert amounts() == [0, 1]
    assert results(agent) == {"e": "paid 2 times"}


# Events of others


def test_c61_events_of_others_pass_through() -> None:
    @dataclass
    class Mine(BaseHookEvent):
        number: int

    seen: list[int] = []
    agent = agent_of()
    agent.hooks.add_callback(Mine, lambda event: seen.append(event.number))
    asyncio.run(agent.hooks.invoke_callbacks_async(Mine(number=1)))
    assert seen == [1]


# Nodes that are no agents


class Remote:
    """An executor that is no Strands agent."""

    name = "remote"

    async def stream_async(self, prompt: Any = None, **given: Any) -> Any:
        await durable.step("effect", lambda: paid.append((1, "effect")))
        reach("remote")
        message: Any = {"role": "assistant", "content": [{"text": "Done."}]}
        yield {"result": AgentResult("end_turn", message, EventLoopMetrics(), {})}

    async def invoke_async(self, prompt: Any = None, **given: Any) -> Any:
        raise NotImplementedError

    def __call__(self, prompt: Any = None, **given: Any) -> Any:
        raise NotImplementedError


def graph_of(hooks: Any = ()) -> Any:
    builder = GraphBuilder()
    builder.add_node(Remote(), "remote")
    builder.set_entry_point("remote")
    graph = builder.build()
    for hook in hooks:
        graph.hooks.add_callback(BeforeNodeCallEvent, hook)
    Durability("runs.db", execution_id="trip").init_multi_agent(graph)
    return graph


@pytest.mark.parametrize("hook", [deny_node, question])
@pytest.mark.parametrize("point", ["remote@1", "effect.done:before@1"])
def test_c61_a_node_without_an_agent_is_not_stopped_once_it_runs(
    hook: Any, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    crash(point, graph_of())
    result = graph_of([hook])("Go")
    assert result.status.value == "completed"
    assert len(paid) == (1 if point == "remote@1" else 2)
    assert "is on record" in caplog.text


def test_c61_a_node_without_an_agent_that_never_ran_is_cancelled() -> None:
    crash("node.start:after@1", graph_of())
    with pytest.raises(RuntimeError, match="closed"):
        graph_of([deny_node])("Go")
    assert paid == []


# A try that ended with a question


@pytest.mark.parametrize("by", ["hook", "signal"])
def test_c61_a_call_that_only_asked_may_be_stopped_once_its_question_is_answered(by: str) -> None:
    @tool(context=True)
    def approve(tool_context: Any) -> str:
        """Ask before anything happens."""
        answer = tool_context.interrupt("approve")
        paid.append((1, str(answer)))
        return "done"

    agent = agent_of([call("approve"), "Done."], tools=[approve], hooks=[])
    (asked,) = agent("Go").interrupts
    answers: Any = [{"interruptResponse": {"interruptId": asked.id, "response": "yes"}}]
    if by == "hook":
        agent.add_hook(deny_all, BeforeToolsEvent)
    else:
        agent.cancel()
    result = agent(answers)
    assert paid == []
    assert result.stop_reason == ("end_turn" if by == "hook" else "cancelled")


@pytest.mark.parametrize("hook", [deny, deny_all])
@pytest.mark.parametrize("is_new_process", [True, False])
def test_c61_an_agent_behind_a_tool_that_has_paid_and_asked_is_not_stopped(hook: Any, is_new_process: bool) -> None:
    def build() -> Any:
        script: list[Any] = [call("pay", "p", amount=5), call("ask", "q"), "Helped."]
        helper = Agent(name="helper", model=ScriptedModel(script), tools=[pay, ask], callback_handler=None)
        return agent_of([call("helper", "h", input="Pay"), "Done."], tools=[helper])

    agent = build()
    (asked,) = agent("Go").interrupts
    if is_new_process:
        forget_process()
        agent = build()
    agent.add_hook(hook)
    answers: Any = [{"interruptResponse": {"interruptId": asked.id, "response": "yes"}}]
    agent(answers)
    assert amounts() == [5]
    assert results(agent)["h"].startswith("Helped.")
