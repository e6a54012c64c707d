"""C12 and C25: tools that a run has loaded into its agent are there again when it is resumed, and are no drift."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolsEvent
from strands.types.exceptions import EventLoopException

from strands_durable import ToolPolicy, durable_agent, errors, policy
from strands_durable._calls.local_execution import local_executions
from strands_durable.testing import ScriptedModel, call, forget_process
from tests.forgetful import agent_of, ask, die_at, memory, recall, results, runs, start_afresh


@pytest.fixture(autouse=True)
def fresh() -> None:
    start_afresh()


@tool
def extra(number: int) -> str:
    """Be there later."""
    runs.append(f"extra {number}")
    return f"extra {number}"


@tool(name="extra")
def extra_otherwise(text: str) -> str:
    """Be there later, but otherwise."""
    return text


extras: list[Any] = []
"""What the tool below adds."""


@policy(on_resume="rerun")
@tool(context=True)
def add_extra(tool_context: ToolContext) -> str:
    """Give the agent another tool."""
    runs.append("add")
    tool_context.agent.tool_registry.register_tool(extras[-1])
    return "added"


LOADS = [call("add_extra"), call("extra", number=1), "Done."]


@pytest.fixture
def one_extra() -> Iterator[None]:
    extras[:] = [extra]
    yield
    extras.clear()


@pytest.mark.usefixtures("one_extra")
@pytest.mark.parametrize(
    "point",
    ["tool.done:after@1", "model.start:after@2", "model.done:after@2", "tool.start:after@2", "tool.done:after@2"],
)
def test_c25_a_tool_that_was_added_during_the_run_is_added_again_and_is_no_drift(point: str) -> None:
    die_at(point, agent_of(LOADS, [add_extra]))
    agent = agent_of(LOADS, [add_extra])
    agent("Go")
    assert results(agent) == ["added", "extra 1"]
    assert runs.count("add") == 2


@pytest.mark.usefixtures("one_extra")
def test_c25_a_tool_that_is_added_again_and_has_changed_is_drift() -> None:
    die_at("tool.start:after@2", agent_of(LOADS, [add_extra]))
    extras.append(extra_otherwise)
    with pytest.raises(errors.DriftError, match="the schema of tool 'extra' changed"):
        agent_of(LOADS, [add_extra])("Go")


@pytest.mark.usefixtures("one_extra")
def test_c25_a_tool_that_was_added_and_is_not_added_again_is_drift() -> None:
    reuse = {"add_extra": ToolPolicy(on_resume="reuse")}
    die_at("tool.done:after@1", agent_of(LOADS, [add_extra], tool_policies=reuse))
    with pytest.raises(errors.DriftError, match="tool 'extra' was there, now it is gone"):
        agent_of(LOADS, [add_extra], tool_policies=reuse)("Go")


@pytest.mark.usefixtures("one_extra")
def test_c25_a_call_that_failed_right_after_a_tool_was_added_is_tried_again_on_the_same_object() -> None:
    agent = agent_of(LOADS, [add_extra])
    boom = [True]

    def explode(event: Any) -> None:
        if boom:
            boom.clear()
            raise RuntimeError("a hook failed")

    agent.hooks.add_callback(AfterToolsEvent, explode)
    with pytest.raises(EventLoopException, match="a hook failed"):
        agent("Go")
    forget_process()
    agent.messages.clear()
    agent("Go")
    assert results(agent) == ["added", "extra 1"]


@pytest.mark.usefixtures("one_extra")
def test_c12_calls_of_a_tool_that_was_added_are_made_again_too() -> None:
    @policy(on_resume="rerun")
    @tool
    def late(value: str) -> str:
        """Come late and live in the process."""
        memory["late"] = value
        return "kept"

    extras.append(late)
    script = [call("add_extra"), call("late", value="x"), call("recall"), "Done."]
    die_at("tool.start:after@3", agent_of(script, [add_extra, recall]))
    agent = agent_of(script, [add_extra, recall])
    agent("Go")
    assert results(agent)[-1] == "[('late', 'x')]"


@pytest.mark.usefixtures("one_extra")
def test_c12_a_policy_for_a_tool_that_is_added_later_is_no_error_where_tools_are_added() -> None:
    policies = {"add_extra": ToolPolicy(on_resume="rerun"), "extra": ToolPolicy(in_doubt="fail")}
    die_at("tool.done:before@2", agent_of(LOADS, [add_extra], tool_policies=policies))
    agent = agent_of(LOADS, [add_extra], tool_policies=policies)
    agent("Go")
    assert "is unknown" in results(agent)[-1]
    assert runs.count("extra 1") == 1


# Dispatched


@policy(on_resume="rerun")
@tool(context=True)
def learn(tool_context: ToolContext) -> str:
    """Give this very agent a tool."""
    runs.append("learn")
    tool_context.agent.tool_registry.register_tool(extra)
    return "learnt"


@durable_agent(name="quick-learner", durable_backend="sqlite:///runs.db")
def quick_learner() -> Agent:
    script = [call("learn"), call("ask"), call("extra", number=2), "Done."]
    return Agent(model=ScriptedModel(script), tools=[learn, ask], callback_handler=None)


def test_c12_the_next_worker_makes_the_calls_again() -> None:
    asked = quick_learner("Go", execution_id="trip")
    answer = [{"interruptResponse": {"interruptId": asked.interrupts[0].id, "response": "yes"}}]
    assert str(quick_learner(answer, execution_id="trip")) == "Done.\n"
    asyncio.run(quick_learner.backend.close())
    assert runs == ["learn", "learn", "extra 2"], "each worker builds an agent of its own"


@pytest.mark.usefixtures("one_extra")
def test_c12_a_second_object_in_the_same_process_is_given_what_the_first_one_has() -> None:
    def script(turn: int, messages: Any) -> Any:
        return [call("add_extra"), "Added.", call("extra", number=1), "Done."][turn]

    first = agent_of(script, [add_extra])
    first("Add it")
    local_executions.forget()  # the process lives on, and so does the first object
    second = agent_of(script, [add_extra])
    assert str(second("Add it")) == "Added.\n"
    second("Use it")
    assert results(second) == ["added", "extra 1"]
    assert runs == ["add", "add", "extra 1"]


def test_c12_what_another_agent_of_the_execution_did_to_the_process_is_there() -> None:
    def agents() -> tuple[Agent, Agent]:
        keeper = agent_of([call("remember", name="city", value="Rome"), "Kept."], agent_id="keeper")
        return keeper, agent_of([call("recall"), "Done."], agent_id="teller")

    keeper, teller = agents()
    keeper("Keep it")
    die_at("tool.start:after@1", teller, "Tell it")
    keeper, teller = agents()
    keeper("Keep it")
    teller("Tell it")
    assert results(teller) == ["[('city', 'Rome')]"]


def test_c12_what_a_call_did_that_failed_later_is_there_for_the_next_one() -> None:
    def script(turn: int, messages: Any) -> Any:
        if messages[-1]["content"][0].get("text") == "Recall it":
            return call("recall")
        return call("remember", name="city", value="Rome") if turn == 0 else "Done."

    class Breaks(ScriptedModel):
        async def stream(self, messages: Any, *args: Any, **given: Any) -> Any:
            if len(messages) == 3:
                raise ValueError("out of order")
            async for event in super().stream(messages, *args, **given):
                yield event

    def broken() -> Agent:
        agent = agent_of()
        agent.model = Breaks(script)
        return agent

    agent = broken()
    with pytest.raises(EventLoopException, match="out of order"):
        agent("Keep it")
    die_at("tool.start:after@1", agent, "Recall it")
    agent = broken()
    with pytest.raises(EventLoopException, match="out of order"):
        agent("Keep it")
    agent("Recall it")
    assert results(agent)[-1] == "[('city', 'Rome')]"
