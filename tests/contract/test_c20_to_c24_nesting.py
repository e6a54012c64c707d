"""C20 to C24: calls inside calls, nodes, and what a failed node means."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.agent import AgentResult
from strands.agent.base import AgentBase
from strands.hooks import AfterNodeCallEvent, BeforeNodeCallEvent, HookProvider, HookRegistry
from strands.middleware import ExecuteToolStage
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import MultiAgentBase, Status
from strands.telemetry.metrics import EventLoopMetrics

from strands_durable import Durability, ToolPolicy, current_step
from strands_durable.errors import DriftError, InDoubtError, UnsupportedFeatureError
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process

warnings.filterwarnings("ignore", message="graph has no max_node_executions")

seen: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@tool
def look_up(what: str) -> str:
    """Look something up."""
    seen[f"look_up {what}"] += 1
    return f"found {what}"


@tool(context=True)
def stop(tool_context: ToolContext) -> str:
    """Cancel, once."""
    seen["stop"] += 1
    if seen["stop"] == 1:
        tool_context.agent.cancel()
    return "stopped"


class Counted(ScriptedModel):
    """A scripted model that counts its calls, and fails a given number of times."""

    def __init__(self, name: str, script: Any, failures: int = 0) -> None:
        super().__init__(script)
        self.name, self.failures = name, failures

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        seen[self.name] += 1
        if seen[self.name] <= self.failures:
            raise RuntimeError(f"{self.name} is out of order")
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


def agent(name: str, script: Any, tools: list[Any] | None = None, failures: int = 0, **options: Any) -> Agent:
    model = Counted(name, script, failures)
    return Agent(model=model, name=name, tools=tools or [], callback_handler=None, **options)


def durability(**options: Any) -> Durability:
    return Durability("runs.db", **{"execution_id": "trip", **options})


def chain(*nodes: Agent | tuple[str, Any], hooks: list[Any] | None = None, options: Any = None, **settings: Any) -> Any:
    """Return a graph of nodes one after the other, as a new process builds it."""
    forget_process()
    builder = GraphBuilder()
    names = []
    for node in nodes:
        name, executor = node if isinstance(node, tuple) else (node.name, node)
        builder.add_node(executor, name)
        names.append(name)
    for source, target in itertools.pairwise(names):
        builder.add_edge(source, target)
    builder.set_entry_point(names[0])
    builder.set_plugins([durability(**(options or {}))])
    builder.set_hook_providers(hooks or [])
    if "node_timeout" in settings:
        builder.set_node_timeout(settings["node_timeout"])
    return builder.build()


class Watch(HookProvider):
    """Counts what happens around nodes."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeNodeCallEvent, lambda event: seen.update([f"before {event.node_id}"]))
        registry.add_callback(AfterNodeCallEvent, lambda event: seen.update([f"after {event.node_id}"]))


def crash_at(point: str, run: Any) -> None:
    with CrashPoints().crashing(point, "raise"), pytest.raises(SimulatedCrash):
        run()


def rows(sql: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def test_c20_the_enclosing_execution_wins_over_a_durability_of_the_agent_inside() -> None:
    inner = agent("inner", lambda turn, messages: "x", plugins=[Durability("other.db", execution_id="mine")])
    root = agent("root", [call("inner", input="?"), "done"], [inner.as_tool()], plugins=[durability()])
    root("Go")
    assert not Path("other.db").exists()
    assert rows("SELECT count(*) FROM calls WHERE parent > 0") == [(1,)]
    inner("Alone")
    assert Path("other.db").exists()


def test_c20_a_finished_call_of_an_agent_that_a_tool_builds_is_not_made_again() -> None:
    @tool
    def ask() -> str:
        """Ask an agent, then do something else."""
        answer = str(agent("expert", ["it is x"], plugins=[durability()])("?"))
        seen["asked"] += 1
        if seen["asked"] == 1:
            raise SimulatedCrash("after the agent")
        return answer

    def script() -> Agent:
        forget_process()
        return agent("root", [call("ask"), "done"], [ask], plugins=[durability()])

    with pytest.raises(SimulatedCrash):
        script()("Go")
    assert str(script()("Go")).strip() == "done"
    assert seen["expert"] == 1
    assert seen["asked"] == 2


def test_c21_a_step_is_named_by_its_path_and_equal_names_do_not_meet() -> None:
    keys = []

    @tool
    def note() -> str:
        """Note the key."""
        step = current_step()
        assert step is not None
        keys.append((step.key, step.idempotency_key))
        return "noted"

    def same(tool_name: str) -> Any:
        return Agent(model=ScriptedModel([call("note"), "ok"]), tools=[note], callback_handler=None).as_tool(
            name=tool_name
        )

    root = agent(
        "root", [[call("a", input="1"), call("b", input="2")], "done"], [same("a"), same("b")], plugins=[durability()]
    )
    root("Go")
    assert len(set(keys)) == 2
    assert all("default#0/000001/00" in key for key, _ in keys)
    assert all(key.endswith("#0/000001/000:call-0-0~0") for key, _ in keys)


def test_c22_the_agents_of_a_swarm_and_late_tools_are_attached_at_the_call() -> None:
    forget_process()
    root = agent("root", [call("late", input="?"), "done"], plugins=[durability()])
    root.tool_registry.process_tools([agent("late", ["here"]).as_tool()])
    root("Go")
    assert rows("SELECT member FROM calls WHERE parent > 0") == [("late",)]


def test_c22_on_agents_attached_by_themselves_a_users_wrap_stays_outside_the_journal() -> None:
    inner = agent("inner", [call("look_up", what="x"), "x"], [look_up])

    async def loud(context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            if hasattr(event, "tool_result"):
                event.tool_result["content"] = [{"text": event.tool_result["content"][0]["text"].upper()}]
            yield event

    inner.add_middleware(ExecuteToolStage, loud)
    root = agent("root", [call("inner", input="?"), "done"], [inner.as_tool()], plugins=[durability()])
    root("Go")
    assert "FOUND X" in str(inner.messages)
    assert "found x" in rows("SELECT result FROM steps WHERE name = 'look_up'")[0][0]


def test_c23_a_kill_inside_a_node_never_enters_an_earlier_node_again() -> None:
    def graph() -> Any:
        return chain(agent("a", ["a"]), agent("b", [call("look_up", what="b"), "b"], [look_up]), hooks=[Watch()])

    crash_at("tool.done:before@1", lambda: graph()("Go"))
    assert seen["before b"] == 1
    result = graph()("Go")
    assert result.status is Status.COMPLETED
    assert [node.node_id for node in result.execution_order] == ["a", "b"]
    assert seen["before a"] == seen["after a"] == seen["a"] == 1
    assert seen["before b"] == 2  # it resumes the visit that had begun
    assert seen["b"] == 2


def test_c23_a_visit_is_on_record_before_it_runs() -> None:
    def graph() -> Any:
        return chain(agent("a", ["a"]))

    crash_at("node.start:after@1", lambda: graph()("Go"))
    assert rows("SELECT name, status FROM steps WHERE kind = 'node'") == [("a", "started")]
    assert seen["a"] == 0


class Foreign(AgentBase):
    """An executor that is no Strands agent: one opaque step."""

    def __init__(self, crash: bool = False) -> None:
        self.crash = crash

    async def invoke_async(self, prompt: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __call__(self, prompt: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream_async(self, prompt: Any = None, **kwargs: Any) -> Any:
        seen["foreign"] += 1
        if self.crash:
            raise SimulatedCrash("inside")
        message: Any = {"role": "assistant", "content": [{"text": "from afar"}]}
        yield {"result": AgentResult("end_turn", message, EventLoopMetrics(), {})}


def _interrupted_foreign(**options: Any) -> Any:
    with pytest.raises(SimulatedCrash):
        chain(("far", Foreign(crash=True)), agent("b", ["b"]))("Go")
    return chain(("far", Foreign()), agent("b", ["b"]), options=options)


def test_c23_an_executor_that_is_not_an_agent_is_one_opaque_step() -> None:
    def graph() -> Any:
        return chain(("far", Foreign()), agent("b", ["b"]))

    crash_at("model.done:before@1", lambda: graph()("Go"))
    result = graph()("Go")
    assert seen["foreign"] == 1
    assert str(result.results["far"].result).strip() == "from afar"
    assert "from afar" in str(graph().nodes["far"].executor and graph()("Go").results["far"].result)
    assert seen["foreign"] == 1


def test_c23_an_opaque_node_in_doubt_is_run_again_by_default() -> None:
    assert _interrupted_foreign()("Go").status is Status.COMPLETED
    assert seen["foreign"] == 2


def test_c23_an_opaque_node_in_doubt_can_be_refused_or_verified() -> None:
    with pytest.raises(InDoubtError, match="far"):
        _interrupted_foreign(tool_policies={"far": ToolPolicy(in_doubt="fail")})("Go")
    assert seen["foreign"] == 1
    asked = []

    def verify(step: Any) -> str:
        asked.append((step.tool, step.attempt))
        return "it had answered"

    options = {"tool_policies": {"far": ToolPolicy(in_doubt="verify", verify=verify)}}
    result = chain(("far", Foreign()), agent("b", ["b"]), options=options)("Go")
    assert str(result.results["far"].result).strip() == "it had answered"
    assert seen["foreign"] == 1
    assert asked


class Gate(HookProvider):
    """Asks a person before a node, or cancels it."""

    def __init__(self, cancel: bool = False) -> None:
        self.cancel = cancel

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeNodeCallEvent, self.ask)

    def ask(self, event: BeforeNodeCallEvent) -> None:
        if event.node_id != "b":
            return
        if self.cancel:
            event.cancel_node = "not today"
        else:
            seen[f"answer {event.interrupt('go on?', reason='b')}"] += 1


def test_c23_an_interrupt_before_a_node_is_answered_in_another_process() -> None:
    def graph() -> Any:
        return chain(agent("a", ["a"]), agent("b", ["b"]), hooks=[Gate()])

    first = graph()("Go")
    assert first.status is Status.INTERRUPTED
    open_ones = graph()("Go").interrupts
    assert [found.id for found in open_ones] == [found.id for found in first.interrupts]
    answers = [{"interruptResponse": {"interruptId": found.id, "response": "yes"}} for found in open_ones]
    assert graph()(answers).status is Status.COMPLETED
    assert graph()("Go").status is Status.COMPLETED
    assert (seen["a"], seen["b"], seen["answer yes"]) == (1, 1, 1)


def test_c23_a_cancelled_node_stays_cancelled_on_record_and_is_tried_again() -> None:
    with pytest.raises(RuntimeError, match="not today"):
        chain(agent("a", ["a"]), agent("b", ["b"]), hooks=[Gate(cancel=True)])("Go")
    assert rows("SELECT name, status FROM steps WHERE kind = 'node'") == [("a", "done"), ("b", "failed")]
    result = chain(agent("a", ["a"]), agent("b", ["b"]))("Go")
    assert result.status is Status.COMPLETED
    assert result.failed_nodes == 0
    assert (seen["a"], seen["b"]) == (1, 1)


def test_c24_a_failed_node_stays_on_record_and_only_it_and_what_follows_run_again() -> None:
    def graph() -> Any:
        return chain(
            agent("a", ["a"]), agent("b", [call("look_up", what="b"), "b"], [look_up], failures=1), agent("c", ["c"])
        )

    with pytest.raises(Exception, match="b is out of order"):
        graph()("Go")
    result = graph()("Go")
    assert result.status is Status.COMPLETED
    assert (result.failed_nodes, result.completed_nodes) == (0, 3)
    assert (seen["a"], seen["b"], seen["c"]) == (1, 3, 1)
    assert rows("SELECT name, attempt, status FROM steps WHERE kind = 'node' ORDER BY id") == [
        ("a", 1, "done"), ("b", 1, "failed"), ("b", 2, "done"), ("c", 1, "done"),
    ]  # fmt: skip
    assert rows("SELECT count(*) FROM failures WHERE call = 1") == [(1,)]


def test_c24_a_failed_swarm_is_tried_again_where_it_failed() -> None:
    handoff = call("handoff_to_agent", agent_name="b", message="yours", context={"k": 1})

    def swarm(**options: Any) -> Swarm:
        forget_process()
        nodes = [agent("a", [handoff, "given"]), agent("b", ["b"], failures=1)]
        return Swarm(nodes, plugins=[durability(**options)])

    assert swarm()("Go").status is Status.FAILED
    kept = swarm(on_failed="raise")("Go")
    assert kept.status is Status.FAILED
    assert kept.results["b"].status is Status.FAILED
    assert seen["b"] == 1
    result = swarm()("Go")
    assert result.status is Status.COMPLETED
    assert [node.node_id for node in result.node_history] == ["a", "b"]
    assert (seen["a"], seen["b"]) == (2, 2)


def test_c24_a_completed_orchestrator_returns_its_result_and_runs_nothing() -> None:
    def graph() -> Any:
        return chain(agent("a", ["one"]), agent("b", ["two"]), hooks=[Watch()])

    first, again = graph()("Go"), graph()("Go")
    assert str(again.results["b"].result) == str(first.results["b"].result) == "two\n"
    assert again.accumulated_usage == first.accumulated_usage
    assert [node.node_id for node in again.execution_order] == ["a", "b"]
    assert again.execution_order[0].executor.messages  # live nodes, as they were left
    assert (seen["a"], seen["before a"], seen["after b"]) == (1, 1, 1)


def test_c24_a_changed_topology_is_drift() -> None:
    crash_at("model.done:before@2", lambda: chain(agent("a", ["a"]), agent("b", ["b"]))("Go"))
    with pytest.raises(DriftError) as caught:
        chain(agent("a", ["a"]), agent("c", ["c"]))("Go")
    assert "'b' was there, now it is gone" in str(caught.value)
    assert "'a -> c' is new" in str(caught.value)
    assert seen["c"] == 0
    assert chain(agent("a", ["a"]), agent("b", ["b"]))("Go").status is Status.COMPLETED


def test_c24_a_node_that_timed_out_resumes_where_it_was() -> None:
    @tool
    async def slow() -> str:
        """Take too long, once."""
        seen["slow"] += 1
        if seen["slow"] == 1:
            await asyncio.Event().wait()
        return "at last"

    def graph() -> Any:
        return chain(agent("a", [call("look_up", what="1"), call("slow"), "a"], [look_up, slow]), node_timeout=3)

    with pytest.raises(Exception, match="timed out"):
        graph()("Go")
    assert rows("SELECT status FROM steps WHERE kind = 'node'") == [("failed",)]
    assert graph()("Go").status is Status.COMPLETED
    assert (seen["look_up 1"], seen["slow"], seen["a"]) == (1, 2, 3)


def test_c24_an_agent_that_cancelled_itself_in_a_node_is_asked_again() -> None:
    def graph() -> Any:
        return chain(agent("a", [call("stop"), "a"], [stop]), agent("b", ["b"]))

    assert graph()("Go").status is Status.FAILED
    result = graph()("Go")
    assert result.status is Status.COMPLETED
    assert result.failed_nodes == 0
    assert seen["b"] == 1


def test_c24_a_node_that_failed_beside_others_is_tried_again_only_when_the_run_has_failed() -> None:
    def graph() -> Any:
        forget_process()
        builder = GraphBuilder()
        builder.add_node(agent("a", [call("stop"), "a"], [stop]), "a")
        builder.add_node(agent("b", ["b"]), "b")
        builder.add_node(agent("c", ["c"]), "c")
        builder.add_edge("b", "c")
        builder.set_plugins([durability()])
        return builder.build()

    crash_at("call.end:after@3", lambda: graph()("Go"))  # in c, after a had failed and b had ended
    result = graph()("Go")
    assert result.status is Status.FAILED
    assert (seen["a"], seen["b"], seen["c"]) == (1, 1, 1)
    assert {node.node_id for node in result.execution_order} == {"a", "b", "c"}
    assert graph()("Go").status is Status.COMPLETED
    assert (seen["a"], seen["b"], seen["c"]) == (3, 1, 1)


def test_c31_an_orchestrator_of_an_unknown_kind_is_refused() -> None:
    class Own(MultiAgentBase):
        async def invoke_async(self, task: Any, invocation_state: Any = None, **kwargs: Any) -> Any:
            raise NotImplementedError

        def serialize_state(self) -> Any:
            raise NotImplementedError

        def deserialize_state(self, payload: Any) -> None:
            raise NotImplementedError

    with pytest.raises(UnsupportedFeatureError, match="Graph and Swarm"):
        durability().init_multi_agent(Own())


def test_c07_an_error_of_ours_inside_a_node_leaves_the_root_call_and_fails_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = chain(agent("a", ["a"]), agent("b", [call("look_up", what="b"), "b"], [look_up]))
    crash_at("tool.done:before@1", lambda: graph("Go"))
    changed = agent("b", [call("look_up", what="b"), "b"], [look_up], system_prompt="Other.")
    with pytest.raises(DriftError, match="system prompt"):
        chain(agent("a", ["a"]), changed)("Go")
    assert rows("SELECT status FROM executions") == [("RUNNING",)]
    assert rows("SELECT count(*) FROM failures") == [(0,)]
