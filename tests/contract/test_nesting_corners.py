"""Corners of calls inside calls, of graphs and of swarms, each of them once wrong."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterNodeCallEvent, BeforeNodeCallEvent, HookProvider, HookRegistry
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import Status
from strands.multiagent.graph import Graph

from strands_durable import Durability, ToolPolicy
from strands_durable.errors import ExecutionBusyError
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process

warnings.filterwarnings("ignore", message="graph has no max_node_executions")


class Failing(ScriptedModel):
    """A scripted model that fails the first times that it is asked, over all processes."""

    def __init__(self, script: Any, failures: list[str]) -> None:
        super().__init__(script)
        self.failures = failures

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if self.failures:
            raise RuntimeError(self.failures.pop())
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


@tool
def look_up(what: str) -> str:
    """Look something up."""
    return f"found {what}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


@tool(context=True)
def mark(key: str, tool_context: ToolContext) -> str:
    """Leave a mark for the nodes that follow."""
    tool_context.invocation_state.setdefault("marks", {})[key] = True
    return "marked"


def agent(name: str, script: Any, tools: list[Any] | None = None, failures: list[str] | None = None) -> Agent:
    model = Failing(script, failures if failures is not None else [])
    return Agent(model=model, name=name, tools=tools or [], callback_handler=None)


def root(script: Any, tools: list[Any], **options: Any) -> Agent:
    return Agent(model=ScriptedModel(script), tools=tools, plugins=[durability(**options)], callback_handler=None)


def durability(**options: Any) -> Durability:
    """Return the plugin as a new process makes it."""
    forget_process()
    return Durability("runs.db", execution_id="trip", **options)


def graph(nodes: dict[str, Any], edges: list[tuple[str, str]], **options: Any) -> Graph:
    builder = GraphBuilder()
    for node_id, executor in nodes.items():
        builder.add_node(executor, node_id)
    for source, target in edges:
        builder.add_edge(source, target)
    builder.set_plugins([durability(**options)])
    return builder.build()


def crash_at(point: str, run: Any) -> None:
    with CrashPoints().crashing(point, "raise"), pytest.raises(SimulatedCrash):
        run()


def answers(result: Any) -> list[dict[str, Any]]:
    return [
        {"interruptResponse": {"interruptId": found.id, "response": f"yes to {found.reason}"}}
        for found in result.interrupts
    ]


def handoff(to: str) -> Any:
    return call("handoff_to_agent", agent_name=to, message=f"over to {to}", context={})


def history(swarm_result: Any) -> list[str]:
    return [node.node_id for node in swarm_result.node_history]


def test_c23_dying_twice_where_a_swarm_resumes_does_not_lose_the_handoff() -> None:
    def swarm() -> Swarm:
        plugins = [durability()]
        return Swarm([agent("one", [handoff("two"), "given"]), agent("two", ["done"])], plugins=plugins)

    crash_at("node.done:after@1", lambda: swarm()("Go"))
    crash_at("call.reopen:after@1", lambda: swarm()("Go"))
    assert history(swarm()("Go")) == ["one", "two"]


def test_c24_dying_twice_where_a_graph_resumes_does_not_lose_its_usage() -> None:
    def pair() -> Graph:
        return graph({"a": agent("a", ["a"]), "b": agent("b", ["b"])}, [("a", "b")])

    crash_at("node.start:after@2", lambda: pair()("Go"))
    crash_at("call.reopen:after@1", lambda: pair()("Go"))
    result = pair()("Go")
    assert result.accumulated_usage["totalTokens"] == 30
    assert result.execution_count == 2


def test_c24_a_finished_call_that_had_failed_before_counts_whole() -> None:
    failures = ["out of order"]

    def one() -> Graph:
        return graph({"a": agent("a", ["a"], failures=failures)}, [])

    with pytest.raises(RuntimeError, match="out of order"):
        one()("Go")
    crash_at("node.done:before@1", lambda: one()("Go"))
    assert one()("Go").accumulated_usage["totalTokens"] == 15
    assert one()("Go").results["a"].accumulated_usage["totalTokens"] == 15


@pytest.mark.parametrize("then", ["two", "one"])
def test_c24_a_swarm_that_failed_at_a_limit_is_not_completed_by_running_it_again(then: str) -> None:
    def one(turn: int, messages: list[Any]) -> Any:
        is_last = "over to one" in messages[0]["content"][0]["text"]
        return "done" if turn or is_last else handoff(then)

    def swarm(limit: int) -> Swarm:
        plugins = [durability()]
        return Swarm([agent("one", one), agent("two", ["done"])], plugins=plugins, max_iterations=limit)

    assert swarm(1)("Go").status is Status.FAILED
    again = swarm(1)("Go")
    assert (again.status, history(again)) == (Status.FAILED, ["one"])
    crash_at("call.reopen:after@1", lambda: swarm(1)("Go"))
    more = swarm(2)("Go")
    assert (more.status, history(more)) == (Status.COMPLETED, ["one", then])


def test_c24_a_graph_resumes_after_one_node_asked_and_its_neighbour_failed() -> None:
    failures = ["out of order"]

    def pair() -> Graph:
        left, right = (
            agent("left", [call("approve", what="it"), "left"], [approve]),
            agent("r", ["r"], failures=failures),
        )
        return graph(
            {"start": agent("start", ["s"]), "left": left, "right": right}, [("start", "left"), ("start", "right")]
        )

    with pytest.raises(RuntimeError, match="out of order"):
        pair()("Go")
    asked = pair()("Go")
    assert [found.reason for found in asked.interrupts] == ["it"]
    result = pair()(answers(asked))
    assert result.status is Status.COMPLETED
    assert sorted(result.results) == ["left", "right", "start"]


class Gate(HookProvider):
    """Asks a person before a node."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeNodeCallEvent, self.ask)

    def ask(self, event: BeforeNodeCallEvent) -> None:
        event.interrupt("go on?", reason="gate")


@pytest.mark.parametrize("is_new_process", [False, True])
def test_c04_a_swarm_asks_before_a_node_and_then_inside_it(is_new_process: bool) -> None:
    def swarm() -> Swarm:
        plugins = [durability()]
        nodes = [agent("one", [call("approve", what="it"), "done"], [approve])]
        return Swarm(nodes, plugins=plugins, hooks=[Gate()])

    team = swarm()
    asked = team("Go")
    assert [found.reason for found in asked.interrupts] == ["gate"]
    team = swarm() if is_new_process else team
    asked = team(answers(asked))
    assert [found.reason for found in asked.interrupts] == ["it"]
    team = swarm() if is_new_process else team
    assert team(answers(asked)).status is Status.COMPLETED
    assert "it: yes to it" in str(team.nodes["one"].executor.messages)


def test_c05_a_graph_that_resumes_writes_to_the_invocation_state_that_it_was_given() -> None:
    def one() -> Graph:
        return graph({"a": agent("a", [call("mark", key="a"), "a"], [mark])}, [])

    crash_at("tool.start:after@1", lambda: one()("Go", {}))
    resumed: dict[str, Any] = {}
    one()("Go", resumed)
    assert resumed["marks"] == {"a": True}


def test_c14_a_node_that_resumes_leaves_its_neighbours_part_of_the_invocation_state() -> None:
    def pair() -> Graph:
        left = agent("left", [call("mark", key="left"), "left"], [mark])
        right = agent("right", [call("look_up", what="1"), call("look_up", what="2"), "right"], [look_up])
        return graph({"left": left, "right": right}, [])

    whole: dict[str, Any] = {}
    pair()("Go", whole)
    Path("runs.db").unlink()
    for at in range(1, 10):
        with CrashPoints().crashing(f"model.start:after@{at}", "raise"), suppress(SimulatedCrash):
            pair()("Go", {})
        resumed: dict[str, Any] = {}
        pair()("Go", resumed)
        assert resumed["marks"] == whole["marks"] == {"left": True}
        forget_process()
        Path("runs.db").unlink()


def test_c29_two_handoffs_in_one_answer_count_as_two_in_a_new_process() -> None:
    def swarm() -> Swarm:
        plugins = [durability()]
        nodes = [agent("one", [[handoff("two"), handoff("nobody"), handoff("two")], "given"]), agent("two", ["done"])]
        return Swarm(nodes, plugins=plugins)

    counts = []
    for _ in range(2):
        team = swarm()
        team("Go")
        found = team.nodes["one"].executor.event_loop_metrics.tool_metrics["handoff_to_agent"]
        counts.append((found.call_count, found.success_count, found.error_count))
    assert counts == [(3, 2, 1), (3, 2, 1)]


def test_c12_an_agent_behind_a_tool_is_tried_again_by_its_policy() -> None:
    sub = agent("sub", ["here"], failures=["out", "out"])
    lead = root([call("sub", input="?"), "done"], [sub.as_tool()], tool_policies={"sub": ToolPolicy(retries=2)})
    lead("Go")
    assert lead.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "here\n"}]


def test_c20_an_agent_behind_tools_of_two_agents_remembers_what_both_asked() -> None:
    def team() -> Agent:
        sub = agent("sub", lambda turn, messages: f"{len(messages)} messages")
        mid = agent("mid", [call("sub", input="2"), "asked"], [sub.as_tool(preserve_context=True)])
        script = [call("sub", input="1"), call("mid", input="ask"), call("sub", input="3"), "done"]
        return root(script, [sub.as_tool(preserve_context=True), mid.as_tool()])

    crash_at("model.start:after@6", lambda: team()("Go"))
    lead = team()
    lead("Go")
    assert lead.messages[6]["content"][0]["toolResult"]["content"] == [{"text": "5 messages\n"}]


def test_c05_an_agent_that_is_also_used_as_a_tool_remembers_what_it_was_asked_there() -> None:
    def team() -> tuple[Agent, Agent]:
        model = ScriptedModel(lambda turn, messages: f"{len(messages)} messages")
        expert = Agent(model=model, name="expert", agent_id="expert", plugins=[durability()], callback_handler=None)
        return expert, root([call("expert", input="?"), "done"], [expert.as_tool(preserve_context=True)])

    expert, lead = team()
    expert("One")
    lead("Go")
    assert len(expert.messages) == 4
    expert, lead = team()
    expert("One")
    lead("Go")
    assert len(expert.messages) == 4
    assert str(expert("Three")).strip() == "5 messages"


def test_c07_a_graph_that_is_in_a_call_takes_no_other_one() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Take as long as it needs."""
        started.set()
        await ended.wait()
        return "at last"

    team = graph({"a": agent("a", [call("slow"), "a"], [slow])}, [])

    async def both() -> Any:
        first = asyncio.create_task(team.invoke_async("Go"))
        await started.wait()
        with pytest.raises(ExecutionBusyError, match="has not ended yet"):
            await team.invoke_async("Other")
        ended.set()
        return await first

    assert asyncio.run(both()).status is Status.COMPLETED


def test_c21_a_node_is_not_taken_for_another_whose_id_begins_like_it() -> None:
    failures = ["out of order"]

    def pair() -> Graph:
        first = agent("first", ["1"], failures=failures)
        return graph({"step@1": first, "step@2": agent("second", ["2"])}, [])

    with pytest.raises(RuntimeError, match="out of order"):
        pair()("Go")
    assert pair()("Go").status is Status.COMPLETED


def test_c12_two_nodes_in_doubt_at_once_are_two_questions() -> None:
    def pair() -> Graph:
        nodes = {name: agent(name, [call("look_up", what=name), name], [look_up]) for name in ("a", "b/model~0")}
        return graph(nodes, [], tool_policies={"look_up": ToolPolicy(in_doubt="ask")})

    crash_at("tool.start:after@2", lambda: pair()("Go"))
    team = pair()
    asked = team("Go")
    assert len({found.id for found in asked.interrupts}) == 2
    given = [
        {"interruptResponse": {"interruptId": found.id, "response": {"result": found.reason["input"]["what"]}}}
        for found in asked.interrupts
    ]
    assert team(given).status is Status.COMPLETED
    results = {name: node.executor.messages[2]["content"][0]["toolResult"] for name, node in team.nodes.items()}
    assert {name: result["content"] for name, result in results.items()} == {
        name: [{"text": name}] for name in ("a", "b/model~0")
    }


def test_c12_two_nodes_whose_model_calls_are_in_doubt_are_two_questions() -> None:
    class Slow(ScriptedModel):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            for _ in range(100):  # until the other node has begun, too
                await asyncio.sleep(0)
            async for chunk in super().stream(*args, **kwargs):
                yield chunk

    def pair() -> Graph:
        nodes = {name: Agent(model=Slow([name]), callback_handler=None) for name in ("a", "b")}
        return graph(nodes, [], model_in_doubt="ask")

    crash_at("model.start:after@2", lambda: pair()("Go"))
    asked = pair()("Go")
    assert len({found.id for found in asked.interrupts}) == 2


class BadAfterwards(HookProvider):
    """Raises after a node, once."""

    def __init__(self, failures: list[str]) -> None:
        self.failures = failures

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(AfterNodeCallEvent, self.fail)

    def fail(self, event: AfterNodeCallEvent) -> None:
        if self.failures:
            raise RuntimeError(self.failures.pop())


def test_c24_a_node_after_which_a_hook_failed_has_run_all_the_same() -> None:
    failures = ["bad hook"]

    def swarm() -> Swarm:
        plugins = [durability()]
        nodes = [agent("one", [handoff("two"), "given"]), agent("two", ["done"])]
        return Swarm(nodes, plugins=plugins, hooks=[BadAfterwards(failures)])

    assert swarm()("Go").status is Status.FAILED
    result = swarm()("Go")
    assert (result.status, history(result)) == (Status.COMPLETED, ["one", "two"])


@pytest.mark.parametrize("is_new_process", [False, True])
def test_c04_a_node_that_asks_on_its_second_visit_takes_the_answer(is_new_process: bool) -> None:
    def again(state: Any) -> bool:
        return len(state.execution_order) < 4

    def review(turn: int, messages: list[Any]) -> Any:
        is_answered = "toolResult" in messages[-1]["content"][0]
        return f"reviewed {len(messages)}" if is_answered else call("approve", f"id-{turn}", what=f"turn {turn}")

    def cycle() -> Graph:
        builder = GraphBuilder()
        builder.add_node(agent("draft", lambda turn, messages: f"draft {turn}"), "draft")
        builder.add_node(agent("review", review, [approve]), "review")
        builder.add_edge("draft", "review")
        builder.add_edge("review", "draft", condition=again)
        builder.set_entry_point("draft")
        builder.set_max_node_executions(9)
        builder.set_plugins([durability()])
        return builder.build()

    team = cycle()
    result = team("Go")
    for _ in range(2):
        assert len(result.interrupts) == 1
        team = cycle() if is_new_process else team
        result = team(answers(result))
    assert [node.node_id for node in result.execution_order] == ["draft", "review", "draft", "review"]
    assert result.status is Status.COMPLETED


@pytest.mark.parametrize("is_new_process", [False, True])
def test_c04_a_question_that_a_hook_asks_at_every_visit_is_answered_at_every_visit(is_new_process: bool) -> None:
    def loop() -> Graph:
        builder = GraphBuilder()
        builder.add_node(agent("a", lambda turn, messages: f"{len(messages)} messages"), "a")
        builder.add_edge("a", "a", condition=lambda state: len(state.execution_order) < 2)
        builder.set_entry_point("a")
        builder.set_max_node_executions(9)
        builder.set_plugins([durability()])
        builder.set_hook_providers([Gate()])
        return builder.build()

    team = loop()
    result = team("Go")
    for _ in range(2):
        assert result.status is Status.INTERRUPTED
        team = loop() if is_new_process else team
        result = team(answers(result))
    assert result.status is Status.COMPLETED
    assert len(result.execution_order) == 2
