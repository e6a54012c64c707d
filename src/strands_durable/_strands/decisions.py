"""Where Strands lets others decide about a tool call: its hooks, the chain of middlewares around it, cancels and questions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any

from strands import Agent
from strands.agent._agent_delegation import AgentDelegation
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.middleware import ExecuteToolStage
from strands.tools.executors import SequentialToolExecutor


def wrap_hooks(owner: Any, around: Callable[..., Any]) -> None:
    """Have ``around`` run the hooks of an agent or orchestrator: it gets what runs them, and the event."""
    owner.hooks.invoke_callbacks_async = partial(around, owner.hooks.invoke_callbacks_async)


def wrap_middlewares(agent: Agent, around: Callable[..., Any]) -> None:
    """Have ``around`` run the middlewares of an agent: it gets what runs them, the stage, its context and its end."""
    registry: Any = agent._middleware_registry
    registry.invoke = partial(around, registry.invoke)


def hide_cancel(agent: Agent, is_hidden: Callable[[], bool]) -> None:
    """Let Strands' loop see no cancel of this agent while ``is_hidden``."""

    def observe() -> bool:
        return is_cancelled(agent) and not is_hidden()

    agent._observe_cancellation = observe  # type: ignore[method-assign]


def is_cancelled(agent: Agent) -> bool:
    """Return True if the invocation is cancelled, by `agent.cancel` or the caller's signal."""
    return type(agent)._observe_cancellation(agent)


def checks_each(agent: Agent) -> bool:
    """Return True if a cancel stops the calls of a batch that have not begun: they run one after the other."""
    return isinstance(agent.tool_executor, SequentialToolExecutor)


def tool_named(agent: Agent, name: str) -> Any:
    """Return the tool that Strands runs under a name, if there is one."""
    registry = agent.tool_registry
    return registry.dynamic_tools.get(name) or registry.registry.get(name)


def chosen(event: BeforeToolCallEvent, before: Any) -> str:
    """Return the name of the tool that hooks chose; ``before`` is the tool that was chosen before they ran."""
    if event.selected_tool is None or event.selected_tool is before:
        return event.tool_use["name"]  # Strands looks the name up again
    return event.selected_tool.tool_name


def wraps_of(agent: Agent) -> list[Callable[..., Any]]:
    """Return the wraps around an agent's tool calls, from the outside to the inside."""
    tagged = agent._middleware_registry._handlers.get(ExecuteToolStage, [])
    return [found.handler for found in tagged if found.phase == "wrap"]


def inside(agent: Agent, wrap: Callable[..., Any], end: Any) -> Any:
    """Return what a wrap around the agent's tool calls gets as ``next_fn``."""
    wraps, registry = wraps_of(agent), type(agent._middleware_registry)()
    for inner in wraps[wraps.index(wrap) + 1 :]:
        registry.add_middleware(ExecuteToolStage, inner)
    return registry.compose(ExecuteToolStage, end)


def is_last_word(agent: Agent) -> bool:
    """Return True if nothing can change what our wrap returns: neither a middleware outside it nor a hook after it."""
    tagged = agent._middleware_registry._handlers.get(ExecuteToolStage, [])
    outside = takewhile(
        lambda found: not _is_ours(found.handler), sorted(tagged, key=lambda found: found.phase == "wrap")
    )
    hooks = agent.hooks._registered_callbacks.get(AfterToolCallEvent, [])
    return all(_decides_nothing(found.handler) for found in outside) and all(
        _decides_nothing(hook.callback) for hook in hooks
    )


def _is_ours(function: Any) -> bool:
    return bool(getattr(function, "__module__", "").partition(".")[0] == __name__.partition(".")[0])


def _decides_nothing(function: Any) -> bool:
    """Return True for what is ours, and for Strands' own plugin on each agent, which only notes what has delegated."""
    return _is_ours(function) or getattr(function, "__module__", "") == AgentDelegation.__module__


def ask(agent: Agent, questions: list[Any]) -> None:
    """Make questions those of the agent."""
    for question in questions:
        agent._interrupt_state.interrupts.setdefault(question.id, question)


def unask(agent: Agent, questions: list[Any]) -> None:
    """Forget questions that are not to be asked."""
    for question in questions:
        agent._interrupt_state.interrupts.pop(question.id, None)
