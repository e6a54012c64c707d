"""Agents, Swarms and Graphs that tools build for one call: of Strands, of strands-agents-tools, and a user's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from strands import Agent, ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.vended_tools.subagent import make_subagent
from strands.vended_tools.swarm import make_swarm

from strands_durable.testing import call, forget_process
from tests.crash.scenarios import pay
from tests.features.harness import BriefModel, durability, effect, feature, seen

os.environ["BYPASS_TOOL_CONSENT"] = "true"

TWO = [call("pay", amount=5), call("pay", amount=7), "Paid."]


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def build(script: Any, *tools: Any) -> Agent:
    return Agent(
        model=BriefModel(script),
        tools=list(tools),
        plugins=[durability()],
        system_prompt="Lead.",
        callback_handler=None,
    )


def child(script: Any, tools: Any = (pay,), **options: Any) -> Agent:
    return Agent(model=BriefModel(script), tools=list(tools), callback_handler=None, **options)


def split(task: str, inner: list[Any], outer: list[Any]) -> Callable[[int, list[Any]], Any]:
    """Return the script of a model that agents share: ``inner`` for a conversation that begins with the task."""
    return lambda turn, messages: (inner if task in str(messages[0]["content"]) else outer)[turn]


@tool
async def own(what: str) -> str:
    """Have two agents do it that are made for it, one of them with another inside."""

    @tool
    def inner(what: str) -> str:
        """Have one more do it."""
        return str(child([call("pay", amount=9), "Nine."])(what)).strip()

    effect("own")
    agents = [child(TWO), child([call("inner", what=what), "Done inside."], [inner])]
    return " ".join(
        [str(found).strip() for found in await asyncio.gather(*(each.invoke_async(what) for each in agents))]
    )


@feature(16, "agents of a tool's own")
def agents_of_a_tools_own() -> Any:
    agent = build([call("own", what="it"), "Done."], own)
    return seen(agent, agent("Go"))


@tool
async def team(what: str) -> str:
    """Have a team do it: a Swarm, and then a Graph."""
    over = call("handoff_to_agent", agent_name="b", message="yours", context={})
    swarm = Swarm([child([call("pay", amount=1), over, "Given."], name="a"), child(["Two."], name="b")])
    first = await swarm.invoke_async(what)
    builder = GraphBuilder()
    builder.add_node(child([call("pay", amount=3), "Three."]), "c")
    builder.add_node(child(["Four."]), "d")
    builder.add_edge("c", "d")
    builder.set_execution_timeout(600)
    second = await builder.build().invoke_async(what)
    return f"{first.status.value} {second.status.value} {str(second.results['d'].result).strip()}"


@feature(16, "a Swarm and a Graph of a tool's own")
def teams_of_a_tools_own() -> Any:
    agent = build([call("team", what="it"), "Done."], team)
    return seen(agent, agent("Go"))


@feature(16, "strands.vended_tools: subagent")
def subagent() -> Any:
    agent = build(split("Pay.", TWO, [call("subagent", task="Pay."), "Done."]), pay, make_subagent())
    return seen(agent, agent("Go"))


@feature(16, "strands.vended_tools: swarm")
def swarm() -> Any:
    asks = call("swarm", task="Pay.", agents=[{"name": "payer", "instructions": "Pay."}])
    agent = build(split("User Request: Pay.", TWO, [asks, "Done."]), pay, make_swarm())
    return seen(agent, agent("Go"))


@feature(16, "strands-agents-tools: use_agent, think")
def old_tools() -> Any:
    from strands_tools.think import think  # not there on the other versions of Python
    from strands_tools.use_agent import use_agent

    tasks = {
        "Pay in one.": [call("pay", amount=5), "Paid in one."],
        "Think of it.": [call("pay", amount=7), "Thought."],
        "Go": [
            [call("use_agent", prompt="Pay in one.", system_prompt="Pay.")],
            call("think", thought="Think of it.", cycle_count=1, system_prompt="Think."),
            "Done.",
        ],
    }

    def script(turn: int, messages: list[Any]) -> Any:
        return next(found for task, found in tasks.items() if task in str(messages[0]["content"]))[turn]

    agent = build(script, pay, use_agent, think)
    found = seen(agent, agent("Go"))
    contents = [block for message in found["messages"] for block in message["content"]]
    for block in contents:  # what a use_agent call took, in seconds
        if "Metrics" in str(block):
            del block["toolResult"]["content"][2]
    return found


def _in_new_processes(make: Callable[[], Agent]) -> Any:
    """Call an agent and answer each of its questions with a new one, as a new process would."""
    agent = make()
    result = agent("Go")
    while result.interrupts:
        answers = [{"interruptResponse": {"interruptId": each.id, "response": "yes"}} for each in result.interrupts]
        forget_process()
        agent = make()
        result = agent(answers)
    return seen(agent, result)


ASKING = [call("pay", amount=5), call("approve", what="it"), call("pay", amount=7), "Paid."]


@feature(16, "a question inside a subagent, answered in a new process")
def subagent_asks() -> Any:
    script = split("Pay.", ASKING, [call("subagent", task="Pay."), "Done."])
    return _in_new_processes(lambda: build(script, pay, approve, make_subagent()))


@feature(16, "a question inside a swarm, answered in a new process")
def swarm_asks() -> Any:
    asks = call("swarm", task="Pay.", agents=[{"name": "payer", "instructions": "Pay."}])
    script = split("User Request: Pay.", ASKING, [asks, "Done."])
    return _in_new_processes(lambda: build(script, pay, approve, make_swarm()))
