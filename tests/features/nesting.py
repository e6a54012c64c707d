"""Agents inside agents: behind tools, nested twice, side by side, with a memory, asking a person, built by a tool."""

from __future__ import annotations

from typing import Any

from strands import Agent, ToolContext, tool

from strands_durable.testing import call
from tests.features.harness import LedgerModel, answered, durability, effect, feature, seen


@tool
def look_up(what: str) -> str:
    """Look something up."""
    effect("look_up", what=what)
    return f"found {what}"


@tool(context=True)
def count(tool_context: ToolContext) -> str:
    """Count in the agent's state."""
    state = tool_context.agent.state
    effect("count")
    state.set("n", (state.get("n") or 0) + 1)
    return f"counted to {state.get('n')}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    effect("approve", what=what)
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def helper(name: str, script: Any, tools: list[Any], **options: Any) -> Agent:
    return Agent(model=LedgerModel(script), name=name, tools=tools, callback_handler=None, **options)


def root(script: Any, tools: list[Any], **options: Any) -> Agent:
    return Agent(
        model=LedgerModel(script),
        tools=tools,
        plugins=[durability()],
        system_prompt="Lead.",
        callback_handler=None,
        **options,
    )


@feature(6, "an agent behind a tool")
def an_agent_behind_a_tool() -> Any:
    sub = helper("researcher", [call("look_up", what="Paris"), "Paris it is."], [look_up, count])
    agent = root([call("researcher", input="Where?"), "We go to Paris."], [sub.as_tool()])
    return [seen(agent, agent("Plan")), sub.messages and len(sub.messages), sub.event_loop_metrics.accumulated_usage]


@feature(6, "nested twice")
def nested_twice() -> Any:
    inner = helper("inner", [call("look_up", what="x"), "x."], [look_up])
    middle = helper("middle", [call("inner", input="x?"), "inner says x."], [inner.as_tool()])
    agent = root([call("middle", input="ask"), "So it is x."], [middle.as_tool()])
    return seen(agent, agent("Go"))


@feature(6, "side by side")
def side_by_side() -> Any:
    one = helper("one", [call("look_up", what="a"), "a."], [look_up])
    two = helper("two", ["b."], [])
    script = [[call("one", input="a?"), call("two", input="b?"), call("look_up", what="c")], "a, b and c."]
    agent = root(script, [one.as_tool(), two.as_tool(), look_up])
    return seen(agent, agent("Go"))


def _remembers(turn: int, messages: list[Any]) -> Any:
    if "toolResult" in messages[-1]["content"][0]:
        return f"I have {len(messages)} messages."
    return call("count")


@feature(6, "an agent that remembers")
def an_agent_that_remembers() -> Any:
    sub = helper("diary", _remembers, [count])
    agent = root(
        [call("diary", input="one"), call("diary", input="two"), "Both noted."], [sub.as_tool(preserve_context=True)]
    )
    result = seen(agent, agent("Note"))
    return [result, sub.state.get(), [message["content"] for message in sub.messages]]


@feature(6, "an agent that asks a person", lossy=True)
def an_agent_that_asks() -> Any:
    sub = helper("buyer", [call("approve", what="a boat"), "Bought."], [approve])
    agent = root([call("buyer", input="buy"), "We have a boat."], [sub.as_tool()])
    return seen(agent, answered(agent, "Buy", lambda found: f"yes to {found.reason}"))


@feature(6, "an agent that remembers and asks", lossy=True)
def an_agent_that_remembers_and_asks() -> Any:
    sub = helper("buyer", [call("approve", what="a boat"), "Bought."], [approve])
    agent = root([call("buyer", input="buy"), "We have a boat."], [sub.as_tool(preserve_context=True)])
    result = seen(agent, answered(agent, "Buy", lambda found: f"yes to {found.reason}"))
    return [result, [message["content"] for message in sub.messages]]


@tool
def delegate(topic: str) -> str:
    """Ask an agent that is made for this question, twice."""
    sub = Agent(
        model=LedgerModel([call("look_up", what=topic), f"{topic}!"]),
        tools=[look_up],
        plugins=[durability()],
        callback_handler=None,
    )
    effect("delegate", topic=topic)
    first = str(sub(f"What is {topic}?")).strip()
    other = Agent(model=LedgerModel(["Yes."]), plugins=[durability()], callback_handler=None)
    return f"{first} {other('Sure?')}".strip()


@feature(6, "agents that a tool builds")
def agents_that_a_tool_builds() -> Any:
    agent = root([[call("delegate", topic="a"), call("delegate", topic="b")], "Done."], [delegate])
    return seen(agent, agent("Go"))


@feature(6, "an agent that a tool calls, and that remembers")
def an_agent_that_a_tool_calls() -> Any:
    sub = helper("diary", _remembers, [count], agent_id="diary", plugins=[durability()])

    @tool
    def note(what: str) -> str:
        """Write into the diary."""
        return str(sub(what)).strip()

    agent = root([call("note", what="one"), call("note", what="two"), "Both noted."], [note])
    return seen(agent, agent("Note"))
