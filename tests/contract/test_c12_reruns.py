"""C12 and C25: finished calls of tools whose effect lives in the process are made again by the process that resumes."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest
import strands_tools.graph
from strands import Agent, ToolContext, tool
from strands.multiagent import GraphBuilder
from strands.tools.decorator import DecoratedFunctionTool

from strands_durable import Durability, ToolPolicy, current_step, durable, errors, policy
from strands_durable._calls.local_execution import local_executions
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.forgetful import SCRIPT, agent_of, ask, die_at, memory, recall, remember, results, runs, start_afresh


@pytest.fixture(autouse=True)
def fresh() -> None:
    start_afresh()


# What is made again


@pytest.mark.parametrize("point", ["tool.done:after@1", "model.done:before@2", "tool.start:after@2"])
def test_c12_a_finished_call_is_made_again_where_its_effect_lives_in_the_process(
    point: str, caplog: pytest.LogCaptureFixture
) -> None:
    die_at(point, agent_of())
    agent = agent_of()
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        agent("Go")
    assert results(agent) == ["city is Rome", "[('city', 'Rome')]"]
    assert runs == ["remember city=Rome", "remember city=Rome", "recall"]
    (said,) = [record.getMessage() for record in caplog.records if "repeated" in record.getMessage()]
    assert said.startswith("execution_id=<trip>, tool=<remember>, step=<default#0/000001/000:")


def test_c12_without_the_policy_it_is_not() -> None:
    die_at("model.done:before@2", agent_of())
    agent = agent_of(tool_policies={"remember": ToolPolicy(on_resume="reuse")})
    agent("Go")
    assert results(agent) == ["city is Rome", "[]"]
    assert runs == ["remember city=Rome", "recall"]


def test_c12_a_policy_that_is_given_after_the_kill_holds() -> None:
    reuse, rerun = ({"remember": ToolPolicy(on_resume=found)} for found in ("reuse", "rerun"))
    die_at("model.done:before@2", agent_of(tool_policies=reuse))
    agent = agent_of(tool_policies=rerun)
    agent("Go")
    assert results(agent) == ["city is Rome", "[('city', 'Rome')]"]


def test_c12_calls_are_made_again_in_order_and_only_those_that_had_succeeded() -> None:
    values = [("city", "Rome"), ("city", "bad"), ("day", "Monday"), ("city", "Oslo")]
    script = [*(call("remember", name=name, value=value) for name, value in values), call("recall"), "Done."]
    die_at("model.done:before@5", agent_of(script))
    runs.clear()
    agent = agent_of(script)
    agent("Go")
    assert runs == ["remember city=Rome", "remember day=Monday", "remember city=Oslo", "recall"]
    assert results(agent)[-1] == "[('city', 'Oslo'), ('day', 'Monday')]"


def test_c12_a_function_of_the_input_says_which_calls_are_made_again() -> None:
    script = [call("remember", name="a", value="1"), call("remember", name="b", value="2"), call("recall"), "Done."]
    only_b = {"remember": ToolPolicy(on_resume=lambda given: given["name"] == "b")}
    die_at("model.done:before@3", agent_of(script, tool_policies=only_b))
    agent = agent_of(script, tool_policies=only_b)
    agent("Go")
    assert results(agent)[-1] == "[('b', '2')]"


# What stays as it was


def test_c12_the_recorded_result_stays_what_the_model_sees(caplog: pytest.LogCaptureFixture) -> None:
    @policy(on_resume="rerun")
    @tool(context=True)
    def connect(tool_context: ToolContext) -> str:
        """Connect, and change what a tool may change."""
        runs.append("connect")
        tool_context.agent.state.set("connections", (tool_context.agent.state.get("connections") or 0) + 1)
        tool_context.invocation_state["connected"] = len(runs)
        return f"session {len(runs)}"

    script = [call("connect"), call("recall"), "Done."]
    die_at("model.done:before@2", agent_of(script, [connect, recall]))
    agent = agent_of(script, [connect, recall])
    state: dict[str, Any] = {}
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        agent("Go", invocation_state=state)
    assert runs == ["connect", "connect", "recall"]
    assert results(agent)[0] == "session 1"
    assert agent.state.get("connections") == 1
    assert state["connected"] == 1
    assert len(agent.messages) == 6
    (said,) = [record.getMessage() for record in caplog.records]
    assert "session 1" not in said
    assert "tool=<connect>" in said
    assert said.endswith("| repeated call gave another result, the recorded one stays")


def test_c12_what_a_repeated_call_has_recorded_inside_is_not_done_again() -> None:
    seen: list[Any] = []

    @policy(on_resume="rerun")
    @tool
    async def connect() -> str:
        """Connect, with a recorded step inside."""
        step = current_step()
        assert step is not None
        seen.append((step.key, step.attempt, step.replaying, step.idempotency_key))
        return await durable.step("register", lambda: runs.append("register") or "registered")

    script = [call("connect"), call("recall"), "Done."]
    die_at("model.done:before@2", agent_of(script, [connect, recall]))
    agent_of(script, [connect, recall])("Go")
    assert runs == ["register", "recall"]
    (key, first, is_replaying, idempotency), (again, second, is_replaying_again, same) = seen
    assert (key, idempotency) == (again, same)
    assert (first, is_replaying, second, is_replaying_again) == (1, False, 1, True)


# Errors


def test_c12_a_call_that_cannot_be_made_again_is_an_error_and_nothing_else_runs() -> None:
    broken = []

    @policy(on_resume="rerun")
    @tool
    def connect() -> str:
        """Connect."""
        if broken:
            raise ConnectionError("the server is gone")
        memory["connection"] = "open"
        return "connected"

    script = [call("connect"), call("recall"), "Done."]
    die_at("model.done:before@2", agent_of(script, [connect, recall]))
    broken.append(True)
    with pytest.raises(errors.RerunError, match=r"connect.*the server is gone"):
        agent_of(script, [connect, recall])("Go")
    forget_process()
    assert runs == []
    broken.clear()
    agent = agent_of(script, [connect, recall])
    agent("Go")
    assert results(agent) == ["connected", "[('connection', 'open')]"]


def test_c12_a_call_that_cannot_be_made_again_can_be_left_out() -> None:
    die_at("model.done:before@2", agent_of())
    runs.clear()
    broken = DecoratedFunctionTool("remember", remember.tool_spec, _refuse, remember._metadata)
    with pytest.raises(errors.RerunError, match="on_resume"):
        agent_of(tools=[broken, recall, ask], tool_policies={"remember": ToolPolicy(on_resume="rerun")})("Go")
    forget_process()
    agent = agent_of(tools=[broken, recall, ask], tool_policies={"remember": ToolPolicy(on_resume="reuse")})
    agent("Go")
    assert results(agent) == ["city is Rome", "[]"]


def _refuse(name: str, value: str) -> str:
    raise ConnectionError("the server is gone")


def test_c12_a_call_that_asks_a_person_cannot_be_made_again() -> None:
    script = [call("ask"), call("recall"), "Done."]
    rerun = {"ask": ToolPolicy(on_resume="rerun")}
    agent = agent_of(script, tool_policies=rerun)
    asked = agent("Go")
    answer = [{"interruptResponse": {"interruptId": asked.interrupts[0].id, "response": "yes"}}]
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("model.done:before@1", "raise"):
        agent(answer)
    forget_process()
    with pytest.raises(errors.RerunError, match="asked a person"):
        agent_of(script, tool_policies=rerun)("Go")


def test_c12_a_process_that_has_the_effect_already_is_not_asked_for_it_twice() -> None:
    @policy(on_resume="rerun")
    @tool
    def connect() -> str:
        """Connect, once in a process."""
        runs.append("connect")
        if "connection" in memory:
            raise ConnectionError("there is a connection already")
        memory["connection"] = "open"
        return "connected"

    script = [call("connect"), call("recall"), "Done."]
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("model.done:before@2", "raise"):
        agent_of(script, [connect, recall])("Go")
    local_executions.forget()  # but the process lives on: a new object resumes
    agent = agent_of(script, [connect, recall])
    agent("Go")
    assert results(agent) == ["connected", "[('connection', 'open')]"]


def test_c12_an_error_in_the_function_that_chooses_loses_no_result() -> None:
    def choose(given: dict[str, Any]) -> bool:
        raise KeyError("no such thing")

    agent = agent_of(tool_policies={"remember": ToolPolicy(on_resume=choose)})
    agent("Go")
    assert results(agent) == ["city is Rome", "[('city', 'Rome')]"]


def test_c12_an_error_in_the_function_that_chooses_stops_a_resume() -> None:
    def choose(given: dict[str, Any]) -> bool:
        raise KeyError("no such thing")

    die_at("model.done:before@2", agent_of())
    with pytest.raises(errors.RerunError, match="no such thing"):
        agent_of(tool_policies={"remember": ToolPolicy(on_resume=choose)})("Go")


# When


def test_c12_an_object_that_has_made_the_calls_itself_does_not_make_them_again() -> None:
    script = [call("remember", name="city", value="Rome"), call("ask"), call("recall"), "Done."]
    agent = agent_of(script)
    asked = agent("Go")
    agent([{"interruptResponse": {"interruptId": asked.interrupts[0].id, "response": "yes"}}])
    assert runs == ["remember city=Rome", "recall"]


def test_c12_a_new_object_makes_them_again_once_and_only_when_something_is_left_to_run() -> None:
    script = [call("remember", name="city", value="Rome"), call("ask"), call("recall"), "Done."]
    asked = agent_of(script)("Go")
    forget_process()
    memory.clear()
    agent = agent_of(script)
    assert agent("Go").stop_reason == "interrupt"
    assert runs == ["remember city=Rome"], "open questions were returned, and nothing was to be run"
    agent([{"interruptResponse": {"interruptId": asked.interrupts[0].id, "response": "yes"}}])
    assert runs == ["remember city=Rome", "remember city=Rome", "recall"]


@pytest.mark.parametrize("point", [None, "model.done:before@1", "tool.start:after@1"])
def test_c12_what_earlier_calls_did_is_there_for_a_later_one(point: str | None) -> None:
    def script(turn: int, messages: Any) -> Any:
        return [SCRIPT[0], "Kept.", call("recall"), "Done."][turn]

    first = agent_of(script)
    first("Keep it")
    if point is None:
        forget_process()
        memory.clear()
    else:
        die_at(point, first, "Recall it")
    agent = agent_of(script)
    assert str(agent("Keep it")) == "Kept.\n"
    assert runs == ["remember city=Rome"], "a finished call is only returned"
    agent("Recall it")
    assert runs == ["remember city=Rome", "remember city=Rome", "recall"]
    assert results(agent)[-1] == "[('city', 'Rome')]"


# Where


def test_c12_the_calls_of_an_agent_behind_a_tool_are_made_again() -> None:
    def crew() -> Agent:
        helper = agent_of([SCRIPT[0], "Kept."], durable=False, name="helper")
        return agent_of([call("helper", input="Keep it"), call("recall"), "Done."], [helper, recall])

    die_at("tool.start:after@2", crew())
    agent = crew()
    agent("Go")
    assert results(agent)[-1] == "[('city', 'Rome')]"
    assert runs == ["remember city=Rome", "remember city=Rome", "recall"]


def test_c12_the_calls_of_nodes_that_have_ended_are_made_again() -> None:
    def graph() -> Any:
        builder = GraphBuilder()
        builder.add_node(agent_of([SCRIPT[0], "Kept."], durable=False, name="one"), "one")
        builder.add_node(agent_of([call("recall"), "Done."], durable=False, name="two"), "two")
        builder.add_edge("one", "two")
        builder.set_plugins([Durability("runs.db", execution_id="graph")])
        return builder.build()

    die_at("tool.start:after@2", graph())
    found = graph()
    assert found("Go").status.value == "completed"
    assert results(found.nodes["two"].executor)[-1] == "[('city', 'Rome')]"
    assert runs == ["remember city=Rome", "remember city=Rome", "recall"]


def test_c12_the_calls_of_an_agent_that_a_tool_builds_are_made_again_when_it_is_resumed() -> None:
    @tool
    async def delegate() -> str:
        """Have an agent of its own do it."""
        inner = agent_of([SCRIPT[0], call("recall"), "Inner."], agent_id="inner")
        return str(await inner.invoke_async("Do it"))

    def outer() -> Agent:
        return agent_of([call("delegate"), "Done."], [delegate], execution_id="outer")

    die_at("tool.start:after@3", outer())
    outer()("Go")
    assert runs == ["remember city=Rome", "remember city=Rome", "recall"]
    assert memory == {"city": "Rome"}


def test_c12_the_calls_of_an_agent_outside_that_a_tool_calls_are_made_again() -> None:
    def crew() -> Agent:
        helper = agent_of([SCRIPT[0], "Kept."], agent_id="helper", execution_id="other")

        @tool
        async def delegate() -> str:
            """Ask the agent outside."""
            return str(await helper.invoke_async("Keep it"))

        agent = agent_of([call("delegate"), call("recall"), "Done."], [delegate, recall])
        vars(agent)["helper"] = helper
        return agent

    die_at("tool.start:after@3", crew())
    gc.collect()
    agent = crew()
    agent("Go")
    assert results(agent)[-1] == "[('city', 'Rome')]"


def test_c12_calls_of_public_tools_are_not_repeated_in_the_process_that_made_them() -> None:
    node = {"id": "a", "role": "writer", "system_prompt": "Write."}
    create = call("graph", action="create", graph_id="once", topology={"nodes": [node], "edges": []})
    script = [create, call("graph", action="execute", graph_id="once", task="Write."), "Done."]

    def turns(turn: int, messages: list[Any]) -> Any:
        return script[turn] if "Go" in str(messages[0]) else "Written."

    plugins = [Durability("runs.db", execution_id="trip")]
    agent = Agent(model=ScriptedModel(turns), tools=[strands_tools.graph], plugins=plugins, callback_handler=None)
    agent("Go")
    results = [
        block["toolResult"] for message in agent.messages for block in message["content"] if "toolResult" in block
    ]
    assert [found["status"] for found in results] == ["success", "success"], results
