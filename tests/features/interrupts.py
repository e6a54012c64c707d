"""A person's answer, days later, in a new process."""

from __future__ import annotations

from typing import Any

from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent, BeforeToolsEvent
from strands.middleware import ExecuteToolStage

from strands_durable.testing import call, forget_process
from tests.crash.scenarios import book
from tests.features.harness import LedgerModel, answered, durability, effect, feature, seen


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    effect("approve", what=what)
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


@tool(context=True)
async def approve_twice(what: str, tool_context: ToolContext) -> str:
    """Ask a person two things, one after the other."""
    first = tool_context.interrupt("colour", reason=what)
    second = tool_context.interrupt("size", reason=first)
    effect("approve_twice", what=what)
    return f"{what}: {first}, {second}"


def build(script: list[Any], tools: list[Any]) -> Agent:
    return Agent(
        model=LedgerModel(script),
        tools=tools,
        plugins=[durability()],
        callback_handler=None,
    )


def asked(result: Any) -> list[Any]:
    """What a person sees of the questions of a result."""
    return sorted([found.name, found.reason] for found in result.interrupts or ())


def response(found: Any, answer: Any) -> dict[str, Any]:
    return {"interruptResponse": {"interruptId": found.id, "response": answer}}


@feature(1, "a tool asks twice")
def a_tool_asks() -> Any:
    agent = build([call("approve_twice", what="wall"), "Done."], [approve_twice])
    result = answered(agent, "Paint", lambda found: f"{found.name}!")
    return seen(agent, result)


@feature(1, "hooks ask before a tool, and before all tools")
def hooks_ask() -> Any:
    agent = build([call("book", city="Paris"), "Booked."], [book])

    def before_tools(event: BeforeToolsEvent) -> None:
        if event.interrupt("all", reason="the batch") == "no":
            event.cancel = "not today"

    def before_tool(event: BeforeToolCallEvent) -> None:
        if event.interrupt("one", reason=event.tool_use["input"]["city"]) == "no":
            event.cancel_tool = "not there"

    agent.add_hook(before_tools)
    agent.add_hook(before_tool)
    result = answered(agent, "Book", lambda found: "yes")
    return seen(agent, result)


@feature(1, "middleware asks around a tool")
def middleware_asks() -> Any:
    agent = build([call("book", city="Paris"), "Booked."], [book])

    async def gate(context: Any, next_fn: Any) -> Any:
        answer = context.interrupt("gate", reason=context.tool_use["input"]).response
        changed = context.replace(tool_use={**context.tool_use, "input": {"city": answer}})
        async for event in next_fn(changed):
            yield event

    agent.add_middleware(ExecuteToolStage, gate)
    result = answered(agent, "Book", lambda found: "Rome")
    return seen(agent, result)


@feature(1, "several ask at once, answered in parts and backwards")
def answered_in_parts() -> Any:
    uses = [call("approve", what="paint"), call("book", city="Paris"), call("approve", what="sand")]
    agent = build([uses, "Done."], [approve, book])
    result = agent("Paint")
    while result.interrupts:
        last = max(result.interrupts, key=lambda found: str(found.reason))
        result = agent([response(last, f"yes to {last.reason}")])
    return seen(agent, result)


@feature(1, "answered by another process")
def answered_elsewhere() -> Any:
    script = [call("approve", what="paint"), "Done."]
    agent = build(script, [approve])
    result = agent("Paint")
    questions = asked(result)
    if result.interrupts:
        answers = [response(found, {"yes": [1, found.reason]}) for found in result.interrupts]
        del agent
        forget_process()
        agent = build(script, [approve])
        result = agent(answers)
    return seen(agent, result), questions in ([], [["approval", "paint"]])
