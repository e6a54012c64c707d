"""Agents inside agents, graphs and swarms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.graph import Graph
from strands.vended_tools.subagent import make_subagent
from strands.vended_tools.swarm import make_swarm

from strands_durable import Durability, policy
from strands_durable.testing import Answer, call

from .hands import agent_of, note, played

# Behind tools


@played
def nested(folder: str, asks: bool = False) -> Agent:
    """An agent behind a tool of an agent behind a tool, which may ask a person."""
    deep = call("approve", what="a boat") if asks else call("book", city="Oslo")
    inner = agent_of(folder, [deep, "It is done."], "approve", "book", name="inner")
    middle = agent_of(folder, [call("inner", input="do it"), "They did it."], inner.as_tool(), name="middle")
    return agent_of(folder, [call("middle", input="have it done"), "Done."], middle.as_tool())


@played
def side_by_side(folder: str) -> Agent:
    """Agents of one name behind tools, at work at the same time, one of them with a memory."""
    one = agent_of(folder, [call("book", city="a"), "a."], "book", name="same")
    two = agent_of(folder, ["b.", "b again."], name="same")
    uses = [call("one", input="a?"), call("two", input="b?"), call("book", city="c")]
    shared = [one.as_tool(name="one"), two.as_tool(name="two", preserve_context=True)]
    return agent_of(folder, [uses, call("two", input="b?"), "Done."], "book", *shared)


@played
def building(folder: str, durable: bool) -> Agent:
    """A tool that builds agents itself and calls them."""

    @tool
    def delegate(topic: str) -> str:
        """Ask an agent that is made for this question."""
        own = [Durability("elsewhere.db", execution_id="other")] if durable else []
        helper = agent_of(folder, [call("book", city=topic), f"{topic}!"], "book", plugins=own)
        note(folder, "delegate", topic=topic)
        return str(helper(f"What is {topic}?")).strip()

    return agent_of(folder, [[call("delegate", topic="a"), call("delegate", topic="b")], "Done."], delegate)


def shared(task: str, inner: Any, outer: Any) -> Any:
    """Return the script of a model that agents share: ``inner`` for a conversation that begins with the task."""
    return lambda turn, messages: (inner if task in str(messages[0]["content"]) else outer)[turn]


def asking(book: str) -> list[Any]:
    """Return the turns of an agent that books, asks a person, and books."""
    return [call(book, city="Oslo"), call("approve", what="a boat"), call(book, city="Rome"), "It is done."]


@played
def subagent(folder: str, book: str = "book") -> Agent:
    """Strands' own tool that delegates, to an agent that asks a person."""
    script = shared("Have it done.", asking(book), [call("subagent", task="Have it done."), "Done."])
    return agent_of(folder, script, book, "approve", make_subagent())


@played
def swarm_tool(folder: str, book: str = "book") -> Agent:
    """Strands' own tool that builds a Swarm, of an agent that asks a person."""
    asks = call("swarm", task="Have it done.", agents=[{"name": "doer", "instructions": "Do it."}])
    script = shared("User Request: Have it done.", asking(book), [asks, "Done."])
    return agent_of(folder, script, book, "approve", make_swarm())


@played
def crews(folder: str) -> Agent:
    """A tool that builds a Swarm and a Graph, in which an agent calls a tool that builds one more."""

    @tool
    def inner(city: str) -> str:
        """Have one more do it."""
        return str(agent_of(folder, [call("book", city=city), f"{city}!"], "book")(f"What is {city}?")).strip()

    @tool
    async def crew(task: str) -> str:
        """Have a crew do it."""
        over = call("handoff_to_agent", agent_name="two", message="yours", context={})
        one = agent_of(folder, [call("book", city="a"), over, "Given."], "book", name="one")
        swarm = await Swarm([one, agent_of(folder, ["two"], name="two")]).invoke_async(task)
        graph = graph_of(
            {"c": agent_of(folder, [call("inner", city="c"), "c"], inner), "d": agent_of(folder, ["d"])}, ("c", "d")
        )
        found = await graph.invoke_async(task)
        return f"{swarm.status.value} {found.status.value}"

    return agent_of(folder, [call("crew", task="Go there."), "Done."], crew)


@played
def slowly(folder: str, in_doubt: str) -> Agent:
    """A tool that must not run again, with an agent that takes its time."""

    @policy(in_doubt=in_doubt)  # type: ignore[arg-type]
    @tool
    def delegate() -> str:
        """Have an agent do two things."""
        note(folder, "delegate")
        script = [call("half"), call("book", city="Oslo"), "Both."]
        return str(agent_of(folder, script, "half", "book")("Do both")).strip()

    return agent_of(folder, [call("delegate"), "Done."], delegate)


@played
def outer(folder: str, url: str) -> Agent:
    """A tool that has another durable agent do something, twice."""

    @tool
    def delegate(task: str) -> str:
        """Have another durable agent do it."""
        note(folder, "delegate", task=task)
        return " ".join(str(errand.on(url)(task, folder=folder)).strip() for _ in range(2))

    return agent_of(folder, [call("delegate", task="Oslo"), "Done."], delegate)


@played
def errand(folder: str) -> Agent:
    """What `outer` calls."""
    return agent_of(folder, [call("book", city="Oslo"), "Booked."], "book")


# Graphs and swarms


def echo(turn: int, messages: list[Any]) -> str:
    """Answer with what came in."""
    return "<" + "|".join(block["text"].strip() for block in messages[-1]["content"]) + ">"


def graph_of(nodes: dict[str, Any], *edges: Any, entries: tuple[str, ...] = ()) -> Graph:
    """Return a graph; an edge is a pair, or a pair and a condition."""
    builder = GraphBuilder()
    for node_id, executor in nodes.items():
        builder.add_node(executor, node_id)
    for source, target, *condition in edges:
        builder.add_edge(source, target, *condition)
    for entry in entries:
        builder.set_entry_point(entry)
    builder.set_max_node_executions(12)
    return builder.build()


@played
def diamond(folder: str) -> Graph:
    """Two nodes at the same time, of agents of one name, and one that comes after both."""
    nodes = {
        "start": agent_of(folder, [call("book", city="s"), "started"], "book"),
        "left": agent_of(folder, [call("book", city="l"), "left"], "book", name="same"),
        "right": agent_of(folder, ["right"], name="same"),
        "join": agent_of(folder, ["joined"]),
    }
    return graph_of(nodes, ("start", "left"), ("start", "right"), ("left", "join"), ("right", "join"))


@played
def deciding(folder: str) -> Graph:
    """Conditional edges, and a cycle."""

    def again(state: Any) -> bool:
        return len(state.execution_order) < 4

    nodes = {
        "draft": agent_of(folder, lambda turn, messages: f"draft of {len(messages)}"),
        "review": agent_of(folder, lambda turn, messages: f"review of {len(messages)}"),
        "never": agent_of(folder, ["never"]),
    }
    edges = (("draft", "review"), ("review", "draft", again), ("review", "never", lambda state: False))
    return graph_of(nodes, *edges, entries=("draft",))


@played
def crowd(folder: str) -> Graph:
    """Nodes whose tools run at the same time, and look at their agents."""
    uses = [call("keep", key="a"), call("keep", key="b")]
    nodes = {name: agent_of(folder, [uses, call("tell"), name], "keep", "tell", name=name) for name in ("x", "y", "z")}
    return graph_of(nodes)


@played
def graph_asking(folder: str) -> Graph:
    """Nodes that ask at the same time."""
    nodes = {
        name: agent_of(folder, [call("approve", what=name), f"{name}."], "approve", name=name)
        for name in ("left", "right")
    }
    return graph_of({**nodes, "last": agent_of(folder, ["last"])}, ("left", "last"), ("right", "last"))


@played
def graph_failing(folder: str) -> Graph:
    """A node that fails until the file ``fixed`` exists, beside one that does not fail."""

    def turn(number: int, messages: Any) -> Any:
        if number == 0:
            return call("book", city="Rome")
        return Answer(text="Fixed.", errors=[] if Path(folder, "fixed").exists() else [ValueError("out of order")] * 9)

    nodes = {
        "first": agent_of(folder, ["first"]),
        "broken": agent_of(folder, turn, "book"),
        "last": agent_of(folder, ["last"]),
    }
    return graph_of(nodes, ("first", "broken"), ("broken", "last"))


def handoff(to: str, message: str, **context: Any) -> Any:
    return call("handoff_to_agent", agent_name=to, message=message, context=context)


@played
def swarm(folder: str) -> Swarm:
    """Two agents that hand over, back and forth."""

    def one(turn: int, messages: list[Any]) -> Any:
        if "back to you" in messages[0]["content"][0]["text"]:
            return "finished" if turn else call("book", city="last")
        return [handoff("two", "over to you", found="it"), "handed over"][min(turn, 1)]

    two = [call("book", city="two"), handoff("one", "back to you", more=[1, 2]), "handed back"]
    return Swarm([agent_of(folder, one, "book", name="one"), agent_of(folder, two, "book", name="two")])


@played
def swarm_asking(folder: str) -> Swarm:
    """An agent of a swarm that asks a person."""
    one = agent_of(folder, [handoff("two", "ask them"), "handed over"], name="one")
    return Swarm([one, agent_of(folder, [call("approve", what="it"), "approved"], "approve", name="two")])


@played
def graph_in_graph(folder: str) -> Graph:
    """A graph and a swarm as nodes of a graph, the one in the other."""
    team = Swarm([agent_of(folder, [call("approve", what="it"), "approved"], "approve", name="one")])
    inner = graph_of({"a": agent_of(folder, [call("book", city="a"), "a"], "book"), "team": team}, ("a", "team"))
    return graph_of({"inner": inner, "last": agent_of(folder, ["last"])}, ("inner", "last"))
