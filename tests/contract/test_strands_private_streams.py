"""What `_strands.streams` and `_strands.public_tools` rest on, for the installed version of Strands."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelStage
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.graph import Graph
from strands.vended_tools.subagent import make_subagent
from strands.vended_tools.swarm import make_swarm
from strands_tools import agent_graph, graph, swarm, think, use_agent, use_llm, workflow

from strands_durable._strands.agents import is_in_use
from strands_durable._strands.public_tools import delegates, if_repeated
from strands_durable._strands.streams import Borrowed, patch_streams
from strands_durable.testing import ScriptedModel, call

where: ContextVar[Any] = ContextVar("where", default=None)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what comes through the patched classes, while the variable is set."""
    found: list[Any] = []
    for kind in (Agent, Graph, Swarm):
        original: Any = kind.stream_async
        monkeypatch.setattr(kind, "stream_async", getattr(original, "__wrapped__", original))

    def enter(value: Any, subject: Any, original: Any, *args: Any, **given: Any) -> Any:
        found.append((value, subject))
        return original(*args, **given)

    patch_streams(where, enter)
    return found


def agent_of(script: Any, tools: Any = (), **options: Any) -> Agent:
    return Agent(model=ScriptedModel(script), tools=list(tools), callback_handler=None, **options)


@pytest.mark.parametrize("kind", ["agent", "tool", "sync tool", "graph", "swarm"])
def test_every_call_of_an_agent_comes_through_its_class(entered: list[Any], kind: str) -> None:
    inner = agent_of(["Hi."], name="inner")

    @tool
    def use() -> str:
        """Call an agent, in a thread."""
        return str(inner("Hi?"))

    builder = GraphBuilder()
    builder.add_node(inner, "inner")
    builder.set_execution_timeout(60)
    calls: dict[str, Any] = {
        "agent": inner,
        "tool": agent_of([call("inner", input="?"), "Done."], [inner.as_tool()]),
        "sync tool": agent_of([call("use"), "Done."], [use]),
        "graph": builder.build(),
        "swarm": Swarm([inner]),
    }
    subject = calls[kind]
    subject("Go")
    assert not entered, "outside of durable calls nothing happens"
    token = where.set("here")
    with suppress(Exception):  # its script is at its end
        subject("Go")
    where.reset(token)
    assert entered[0] == ("here", subject)


def test_what_is_put_on_an_agent_is_taken_off_again() -> None:
    agent = agent_of(["Hi."])

    async def ours(context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            yield event

    def hook(event: Any) -> None: ...

    async def theirs(context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            yield event

    agent.add_middleware(InvokeModelStage, theirs)
    borrowed = Borrowed(agent)
    agent.add_middleware(InvokeModelStage, ours)
    agent.hooks.add_callback(AfterModelCallEvent, hook)
    agent._observe_cancellation = lambda: False  # type: ignore[method-assign]
    borrowed.give_back({ours, hook})
    registry = agent._middleware_registry._handlers
    assert [tagged.handler for tagged in registry[InvokeModelStage]] == [theirs]
    assert hook not in [entry.callback for entry in agent.hooks._registered_callbacks.get(AfterModelCallEvent, [])]
    assert "_observe_cancellation" not in vars(agent)


def test_strands_tools_that_delegate_are_known() -> None:
    known = agent_of([], [use_agent, use_llm, think, swarm, graph]).tool_registry.registry
    assert all(map(delegates, [*known.values(), make_subagent(), make_swarm()]))
    others = agent_of([], [agent_graph, workflow]).tool_registry.registry
    assert len(others) == 2
    assert all("threads" in str(if_repeated(each)) for each in others.values())
    assert not any(map(delegates, others.values()))


def test_an_agent_is_in_use_while_it_is_called() -> None:
    seen: list[bool] = []

    @tool
    def look() -> str:
        """Look."""
        seen.append(is_in_use(agent))
        return "seen"

    agent = agent_of([call("look"), "Done."], [look])
    assert not is_in_use(agent)
    agent("Go")
    assert seen == [True]
    assert not is_in_use(agent)
