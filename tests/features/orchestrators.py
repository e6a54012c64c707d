"""Graphs and swarms."""

from __future__ import annotations

import warnings
from typing import Any

from strands import Agent, ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.session.file_session_manager import FileSessionManager

from strands_durable.testing import call
from tests.features.harness import LedgerModel, answered, durability, effect, feature

warnings.filterwarnings("ignore", message="graph has no max_node_executions")


@tool
def look_up(what: str) -> str:
    """Look something up."""
    effect("look_up", what=what)
    return f"found {what}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    effect("approve", what=what)
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def agent(name: str, script: Any, tools: list[Any] | None = None, **options: Any) -> Agent:
    return Agent(model=LedgerModel(script), name=name, tools=tools or [], callback_handler=None, **options)


def echo(turn: int, messages: list[Any]) -> str:
    """Answer with what came in."""
    return "<" + "|".join(block["text"].strip() for block in messages[-1]["content"]) + ">"


def outcome_of(result: Any) -> Any:
    """Return what must be equal of an orchestrator's result."""
    nodes = {
        node_id: [found.status.value, str(found.result), dict(found.accumulated_usage), found.execution_count]
        for node_id, found in result.results.items()
    }
    order = getattr(result, "execution_order", None) or getattr(result, "node_history", [])
    return {
        "status": result.status.value,
        "nodes": dict(sorted(nodes.items())),
        "order": sorted(node.node_id for node in order)
        if hasattr(result, "execution_order")
        else [n.node_id for n in order],
        "usage": dict(result.accumulated_usage),
        "count": result.execution_count,
        "interrupts": len(result.interrupts),
    }


def diamond(*, hooks: list[Any] | None = None, **scripts: Any) -> Any:
    builder = GraphBuilder()
    builder.add_node(agent("start", scripts.get("start", [call("look_up", what="s"), "started"]), [look_up]), "start")
    builder.add_node(agent("same", scripts.get("left", [call("look_up", what="l"), "left"]), [look_up]), "left")
    builder.add_node(agent("same", scripts.get("right", ["right"])), "right")
    builder.add_node(agent("join", scripts.get("join", echo)), "join")
    for source, target in (("start", "left"), ("start", "right"), ("left", "join"), ("right", "join")):
        builder.add_edge(source, target)
    builder.set_plugins([durability()])
    if hooks:
        builder.set_hook_providers(hooks)
    return builder.build()


@feature(7, "a graph with a fan-in")
def a_graph_with_a_fan_in() -> Any:
    return outcome_of(diamond()("Go"))


@feature(7, "a graph with a cycle and a condition")
def a_graph_with_a_cycle() -> Any:
    def again(state: Any) -> bool:
        return len(state.execution_order) < 4

    builder = GraphBuilder()
    builder.add_node(agent("draft", lambda turn, messages: f"draft of {len(messages)}"), "draft")
    builder.add_node(agent("review", lambda turn, messages: f"review of {len(messages)}"), "review")
    builder.add_node(agent("never", ["never"]), "never")
    builder.add_edge("draft", "review")
    builder.add_edge("review", "draft", condition=again)
    builder.add_edge("review", "never", condition=lambda state: False)
    builder.set_entry_point("draft")
    builder.set_max_node_executions(9)
    builder.set_plugins([durability()])
    return outcome_of(builder.build()("Write"))


@feature(7, "a graph in a graph")
def a_graph_in_a_graph() -> Any:
    inner = GraphBuilder()
    inner.add_node(agent("a", [call("look_up", what="a"), "a"], [look_up]), "a")
    inner.add_node(agent("b", echo), "b")
    inner.add_edge("a", "b")
    outer = GraphBuilder()
    outer.add_node(inner.build(), "inner")
    outer.add_node(agent("last", echo), "last")
    outer.add_edge("inner", "last")
    outer.set_plugins([durability()])
    return outcome_of(outer.build()("Go"))


@feature(7, "a graph whose nodes ask people", lossy=True)
def a_graph_whose_nodes_ask() -> Any:
    graph = diamond(
        start=["started"], left=[call("approve", what="left"), "left"], right=[call("approve", what="right"), "r"]
    )
    for node_id in ("left", "right"):
        graph.nodes[node_id].executor.tool_registry.process_tools([approve])
    return outcome_of(answered(graph, "Go", lambda found: f"yes to {found.reason}"))


def handoff(to: str, message: str, **context: Any) -> Any:
    return call("handoff_to_agent", agent_name=to, message=message, context=context)


@feature(7, "a swarm that hands over, back and forth")
def a_swarm() -> Any:
    def one(turn: int, messages: list[Any]) -> Any:
        text = messages[0]["content"][0]["text"]
        if "back to you" in text:
            return "finished" if turn else call("look_up", what="last")
        return [handoff("two", "over to you", found="it"), "handed over"][min(turn, 1)]

    swarm = Swarm(
        [
            agent("one", one, [look_up]),
            agent(
                "two",
                [call("look_up", what="two"), handoff("one", "back to you", more=[1, 2]), "handed back"],
                [look_up],
            ),
        ],
        plugins=[durability()],
    )
    result = swarm("Go")
    return [outcome_of(result), swarm.shared_context.context]


@feature(7, "a swarm whose node asks a person", lossy=True)
def a_swarm_that_asks() -> Any:
    swarm = Swarm(
        [
            agent("one", [handoff("two", "ask them", for_whom="us"), "handed over"]),
            agent("two", [call("approve", what="it"), "approved"], [approve]),
        ],
        plugins=[durability()],
    )
    return [outcome_of(answered(swarm, "Go", lambda found: f"yes to {found.reason}")), swarm.shared_context.context]


@tool(context=True)
def mark(key: str, tool_context: ToolContext) -> str:
    """Leave a mark for the nodes that follow."""
    effect("mark", item=key)
    tool_context.invocation_state.setdefault("marks", {})[key] = len(tool_context.invocation_state.get("marks", {}))
    return "marked"


@feature(7, "a graph that decides by its invocation state")
def a_graph_that_decides() -> Any:
    def is_marked(state: Any, *, invocation_state: dict[str, Any], **kwargs: Any) -> bool:
        return "go" in invocation_state.get("marks", {})

    builder = GraphBuilder()
    builder.add_node(agent("a", [call("mark", key="go"), "a"], [mark]), "a")
    builder.add_node(agent("b", [call("mark", key="b"), "b"], [mark]), "b")
    builder.add_node(agent("c", ["c"]), "c")
    builder.add_edge("a", "b", condition=is_marked)
    builder.add_edge("a", "c", condition=lambda state, *, invocation_state, **kwargs: not invocation_state.get("marks"))
    builder.set_plugins([durability()])
    invocation_state: dict[str, Any] = {"tenant": "t1"}
    result = builder.build()("Go", invocation_state=invocation_state)
    return [outcome_of(result), invocation_state.get("marks"), invocation_state["tenant"]]


@feature(7, "a graph that resets a node on its second visit")
def a_graph_that_resets() -> Any:
    builder = GraphBuilder()
    builder.add_node(agent("draft", lambda turn, messages: f"draft of {len(messages)}"), "draft")
    builder.add_node(agent("review", lambda turn, messages: f"review of {len(messages)}"), "review")
    builder.add_edge("draft", "review")
    builder.add_edge("review", "draft", condition=lambda state: len(state.execution_order) < 4)
    builder.set_entry_point("draft")
    builder.reset_on_revisit()
    builder.set_max_node_executions(9)
    builder.set_plugins([durability()])
    graph = builder.build()
    result = graph("Write")
    return [outcome_of(result), [len(node.executor.messages) for node in graph.nodes.values()]]


@feature(7, "a swarm in a graph that asks a person", lossy=True)
def a_swarm_in_a_graph() -> Any:
    swarm = Swarm(
        [
            agent("one", [handoff("two", "ask them"), "handed over"]),
            agent("two", [call("approve", what="it"), "approved"], [approve]),
        ]
    )
    builder = GraphBuilder()
    builder.add_node(agent("first", ["ready"]), "first")
    builder.add_node(swarm, "team")
    builder.add_node(agent("last", echo), "last")
    builder.add_edge("first", "team")
    builder.add_edge("team", "last")
    builder.set_plugins([durability()])
    return outcome_of(answered(builder.build(), "Go", lambda found: f"yes to {found.reason}"))


@feature(7, "a graph with a session of its own")
def a_graph_with_a_session() -> Any:
    builder = GraphBuilder()
    builder.add_node(agent("a", [call("look_up", what="a"), "a"], [look_up]), "a")
    builder.add_node(agent("b", echo), "b")
    builder.add_edge("a", "b")
    builder.set_session_manager(FileSessionManager(session_id="s", storage_dir="sessions"))
    builder.set_plugins([durability()])
    return outcome_of(builder.build()("Go"))


@feature(7, "a swarm with a session of its own")
def a_swarm_with_a_session() -> Any:
    swarm = Swarm(
        [
            agent("one", [handoff("two", "yours", k=1), "handed over"]),
            agent("two", [call("look_up", what="x"), "x"], [look_up]),
        ],
        session_manager=FileSessionManager(session_id="s", storage_dir="sessions"),
        plugins=[durability()],
    )
    return [outcome_of(swarm("Go")), swarm.shared_context.context]


@feature(7, "two calls of one graph")
def two_calls_of_one_graph() -> Any:
    builder = GraphBuilder()
    builder.add_node(agent("a", lambda turn, messages: f"{len(messages)} messages"), "a")
    builder.add_node(agent("b", echo), "b")
    builder.add_edge("a", "b")
    builder.set_plugins([durability()])
    graph = builder.build()
    return [outcome_of(graph("One")), outcome_of(graph("Two"))]
