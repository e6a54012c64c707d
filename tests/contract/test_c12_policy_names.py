"""C12 and C20: a policy that would never apply is refused, and what is run again is logged."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from strands import Agent, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.tools import ToolProvider

from strands_durable import Durability, DurableAgent, ToolPolicy, durable, durable_agent, errors
from strands_durable._dispatch.registry import PolicyOverrides
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process

ASK = ToolPolicy(in_doubt="ask")
paid: list[str] = []


@pytest.fixture(autouse=True)
def unpaid() -> None:
    paid.clear()


@tool
def pay(amount: int) -> str:
    """Pay."""
    paid.append(f"{amount} EUR")
    return "paid"


@tool
def look() -> str:
    """Look."""
    return "seen"


PAYS = [call("pay", amount=5), "Done."]


def agent_of(policies: Any, script: Any = PAYS, tools: Any = (pay, look), **more: Any) -> Agent:
    plugins = [Durability("runs.db", execution_id="trip", tool_policies=policies)] if policies is not None else []
    return Agent(
        model=ScriptedModel(script),
        tools=list(tools),
        callback_handler=None,
        **{"plugins": plugins, **more},
    )


def crash_at(point: str, agent: Any, prompt: str = "Go") -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt)
    forget_process()


# Names


def test_c12_a_policy_for_an_unknown_tool_is_refused_before_anything_runs() -> None:
    agent = agent_of({"payy": ASK})
    with pytest.raises(errors.UnknownToolError, match=r"'payy'.*Did you mean 'pay'") as found:
        agent("Go")
    assert "look" in str(found.value)
    assert (paid, agent.model.calls) == ([], 0)
    forget_process()
    assert agent_of({"pay": ASK})("Go").stop_reason == "end_turn", "nothing was recorded under the id"


def test_c12_a_tool_that_was_added_before_the_first_call_is_known() -> None:
    agent = agent_of({"pay": ASK}, tools=[look])
    agent.tool_registry.process_tools([pay])
    assert agent("Go").stop_reason == "end_turn"


class Serves(ToolProvider):
    """Stands for an MCP server whose tools come and go."""

    async def load_tools(self, **kwargs: Any) -> Any:
        return [look]

    def add_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        pass

    def remove_consumer(self, consumer_id: Any, **kwargs: Any) -> None:
        pass


@pytest.mark.parametrize("more", [{"tools": [pay, Serves()]}, {"load_tools_from_directory": True}])
def test_c12_where_tools_may_come_later_an_unknown_name_is_a_warning_and_said_once(
    more: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of({"payy": ASK}, [*PAYS, "Again."], **more)
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        agent("Go")
        agent("Again")
    said = [record.getMessage() for record in caplog.records if "payy" in record.getMessage()]
    assert len(said) == 1
    assert "did you mean 'pay'" in said[0]


def test_c12_tools_of_agents_behind_tools_are_known() -> None:
    helper = agent_of(None, tools=[pay], name="helper")
    agent = agent_of({"pay": ASK, "helper": ASK}, [call("helper", input="Pay."), "Done."], tools=[helper])
    assert agent("Go").stop_reason == "end_turn"
    assert paid == ["5 EUR"]


def graph_of(policies: Any) -> Any:
    builder = GraphBuilder()
    builder.add_node(agent_of(None, ["Seen."], tools=[look], name="one"), "one")
    builder.add_node(agent_of(None, tools=[pay], name="two"), "two")
    builder.add_edge("one", "two")
    builder.set_plugins([Durability("runs.db", execution_id="graph", tool_policies=policies)])
    return builder.build()


def test_c12_the_tools_of_all_nodes_together_are_what_a_graph_knows() -> None:
    with pytest.raises(errors.UnknownToolError, match=r"'payy'.*Did you mean 'pay'"):
        graph_of({"payy": ASK, "look": ASK})("Go")
    with pytest.raises(errors.UnknownToolError, match="'two'"):
        graph_of({"two": ASK})("Go")
    assert graph_of({"pay": ASK, "look": ASK})("Go").status.value == "completed"


def test_c12_a_swarm_knows_the_tools_of_its_agents() -> None:
    def swarm_of(policies: Any) -> Swarm:
        agents = [agent_of(None, tools=[pay], name="one")]
        return Swarm(agents, plugins=[Durability("runs.db", execution_id="swarm", tool_policies=policies)])

    with pytest.raises(errors.UnknownToolError, match="Did you mean 'pay'"):
        swarm_of({"payy": ASK})("Go")
    assert swarm_of({"pay": ASK})("Go").status.value == "completed"


def test_c12_a_dispatched_agent_is_refused_where_it_is_dispatched() -> None:
    @durable_agent(name="misspelt", durable_backend="sqlite:///runs.db", tool_policies={"payy": ASK})
    def misspelt() -> Agent:
        return Agent(model=ScriptedModel(PAYS), tools=[pay], callback_handler=None)

    with pytest.raises(errors.UnknownToolError, match="Did you mean 'pay'"):
        misspelt("Go", execution_id="trip")
    assert paid == []


# Types


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"pay": "ask"}, r"tool_policies\['pay'\] is a str.*ToolPolicy"),
        ({"pay": {"in_doubt": "ask"}}, r"tool_policies\['pay'\] is a dict.*ToolPolicy"),
        ({pay: ASK}, "tool_policies has a key that is a DecoratedFunctionTool.*use the names of tools"),
        ([("pay", ASK)], "tool_policies is a list.*dict"),
        ({"pay": ToolPolicy}, r"tool_policies\['pay'\] is the class ToolPolicy"),
    ],
)
def test_c12_policies_of_a_wrong_type_are_refused_in_the_constructor(wrong: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Durability("runs.db", tool_policies=wrong)
    with pytest.raises(TypeError, match=said):
        durable_agent(tool_policies=wrong)
    with pytest.raises(TypeError, match=said):
        PolicyOverrides(tool_policies=wrong)


def test_c12_an_option_of_a_dispatched_agent_that_does_not_exist_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="on_drift"):
        durable_agent(on_drift="ignore")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="model_in_doubt"):
        durable_agent(model_in_doubt="verify")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="policies"):
        DurableAgent(lambda: agent_of(None), name="wrong", policies={"pay": ASK})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": "3"},
        {"retries": True},
        {"retries": 1.5},
        {"timeout": "5"},
        {"inline": "yes"},
        {"in_doubt": "verify", "verify": "look_up"},
    ],
)
def test_c12_a_field_of_a_wrong_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=next(reversed(wrong))):
        ToolPolicy(**wrong)


# Whose policies


def test_c20_the_policies_of_an_agent_inside_hold_for_its_tools_where_the_root_says_nothing() -> None:
    def run(root: Any) -> Any:
        helper = agent_of({"pay": ToolPolicy(in_doubt="fail")}, tools=[pay], name="helper")
        agent = Agent(
            model=ScriptedModel([call("helper", input="Pay."), "Done."]),
            tools=[helper],
            plugins=[Durability("runs.db", execution_id="outer", tool_policies=root)],
            callback_handler=None,
        )
        return agent, helper

    crash_at("tool.done:before@1", run(None)[0])
    assert paid == ["5 EUR"]
    agent, helper = run(None)
    agent("Go")
    assert paid == ["5 EUR"], "the payment was made again"
    assert "is unknown" in str(helper.messages)


# What is said


def test_c12_running_a_tool_in_doubt_again_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    crash_at("tool.done:before@1", agent_of({}))
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        agent_of({})("Go")
    (said,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    text = said.getMessage()
    assert text.startswith("execution_id=<trip>, tool=<pay>, step=<default#0/000001/000:")
    assert "attempt=<2>, idempotency_key=<" in text
    assert text.endswith("| tool in doubt is run again")
    assert len(paid) == 2


@pytest.mark.parametrize("answer", ["retry", "fail"])
def test_c12_of_what_a_person_decides_only_a_retry_is_a_warning(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    crash_at("tool.done:before@1", agent_of({"pay": ASK}))
    agent = agent_of({"pay": ASK})
    asked = agent("Go")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        found = asked.interrupts[0]
        agent([{"interruptResponse": {"interruptId": found.id, "response": answer}}])
    assert ("tool in doubt is run again" in caplog.text) == (answer == "retry")


def test_c12_a_recorded_side_effect_in_doubt_is_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []

    @tool
    async def book() -> str:
        """Book."""
        await durable.step("charge", lambda: made.append(1))
        return "booked"

    script = [call("book"), "Done."]
    crash_at("effect.done:before@1", agent_of(None, script, [book], **_durable()))
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        agent_of(None, script, [book], **_durable())("Go")
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "tool=<book>" in text and "tool in doubt is run again" in text]
    assert [text for text in said if "effect=<charge>" in text and "effect in doubt is run again" in text]
    assert len(made) == 2


def _durable() -> dict[str, Any]:
    return {"plugins": [Durability("runs.db", execution_id="trip")]}


def test_c05_returning_a_recorded_result_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    agent_of({})("Go")
    forget_process()
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        agent_of({})("Go")
    (said,) = caplog.records
    assert (said.levelno, said.getMessage()) == (
        logging.INFO,
        "execution_id=<trip>, call=<default#0>, status=<COMPLETED> | recorded result returned",
    )


def test_c25_a_recorded_result_of_another_agent_is_returned_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    agent_of({})("Go")
    forget_process()
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        result = agent_of({}, tools=[pay], system_prompt="Be brief.")("Go")
    assert str(result) == "Done.\n"
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert "tool 'look' was there, now it is gone" in said.getMessage()
    assert "the system prompt changed" in said.getMessage()
    assert said.getMessage().endswith("| recorded result returned, the agent has changed since")


def test_c25_a_recorded_result_of_another_topology_is_returned_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph_of({})("Go")
    forget_process()
    builder = GraphBuilder()
    for name in ("one", "two", "three"):
        builder.add_node(agent_of(None, ["Seen."], tools=[look], name=name), name)
    builder.add_edge("one", "two")
    builder.set_plugins([Durability("runs.db", execution_id="graph")])
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        builder.build()("Go")
    said = [record for record in caplog.records if "recorded result returned" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING]
    assert "'three' is new" in said[0].getMessage()
