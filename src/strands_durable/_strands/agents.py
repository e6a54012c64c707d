"""What Strands' agents keep to themselves, for strands-agents 1.62: names of this room that Strands marks private.

Each has a contract test in tests/contract/test_strands_private.py that fails when a new version moves it. What is public
(stages, hooks, snapshots, metrics) is used directly where it is needed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from strands import Agent
from strands.agent._agent_as_tool import _AgentAsTool
from strands.interrupt import Interrupt, InterruptException
from strands.interrupt import _InterruptState as InterruptState
from strands.middleware import ExecuteToolStage
from strands.middleware._agent_stream import AgentStreamContext, AgentStreamStage
from strands.tools import PythonAgentTool, ToolProvider
from strands.tools.decorator import DecoratedFunctionTool
from strands.types._events import AgentResultEvent, EventLoopStopEvent, ForceStopEvent, ToolInterruptEvent
from strands.types.agent import ConcurrentInvocationMode
from strands.types.events import TypedEvent

__all__ = [
    "AgentResultEvent",
    "AgentStreamContext",
    "AgentStreamStage",
    "EventLoopStopEvent",
    "ForceStopEvent",
    "Interrupt",
    "InterruptException",
    "InterruptState",
    "ToolInterruptEvent",
    "TypedEvent",
    "agent_behind",
    "agents_beside",
    "answer_to",
    "cancel_flags",
    "carried_by",
    "has_session",
    "is_agent",
    "is_handoff",
    "is_interrupted",
    "is_model_driven",
    "is_next_to_tools",
    "knows_interrupt",
    "output_model",
    "passes_on_interrupts",
    "refuse_unsupported",
    "restore_retries",
    "set_model_state",
    "stays_in_loop",
    "sync_function",
    "wait_for_answers",
    "with_function",
]


def carried_by(agent: Agent) -> dict[str, Any]:
    """Return what `take_snapshot` would of these fields, without its copies: it is encoded at once."""
    return {
        "conversation_manager_state": agent.conversation_manager.get_state(),
        "interrupt_state": agent._interrupt_state.to_dict(),
        "model_state": agent._model_state,
    }


def is_interrupted(agent: Agent) -> bool:
    """Say whether the agent waits for answers; it then takes nothing else."""
    return bool(agent._interrupt_state.activated)


def passes_on_interrupts(agent: Agent, interrupt_ids: Iterable[str]) -> bool:
    """Say whether an agent waits for answers to interrupts of an agent behind one of its tools."""
    state = agent._interrupt_state
    return state.activated and any(known.endswith(f":{found}") for known in state.interrupts for found in interrupt_ids)


def wait_for_answers(agent: Agent) -> None:
    """Have an agent take answers."""
    agent._interrupt_state.activate()


def knows_interrupt(agent: Agent, interrupt_id: str) -> bool:
    """Say whether the agent has raised this interrupt."""
    return interrupt_id in agent._interrupt_state.interrupts


def answer_to(agent: Agent, interrupt_id: str) -> Any:
    """Return a person's answer to an interrupt, or None."""
    found = agent._interrupt_state.interrupts.get(interrupt_id)
    return None if found is None else found.response


def cancel_flags(agent: Agent) -> dict[str, Any] | None:
    """Return what `agent.cancel` or the caller's signal asked for in this invocation, as arguments of `agent.cancel`."""
    is_cancelled = agent._observe_cancellation()
    if not agent._deferred_cancel and not is_cancelled:
        return None
    return {"message": agent._cancel_message, "after_current_tools": not is_cancelled}


def is_model_driven(invocation_state: dict[str, Any]) -> bool:
    """Tell a tool call of the loop from a direct `agent.tool.x()`, which is not a step."""
    return "event_loop_cycle_id" in invocation_state


def stays_in_loop(tool: Any) -> bool:
    """Say whether a tool's effect is the loop itself, so that it must run again: structured output."""
    return getattr(tool, "tool_type", None) == "structured_output"


def is_agent(found: Any) -> TypeGuard[Agent]:
    """Say whether something is an agent; a mock that claims to be one has no loop to stand in."""
    return issubclass(type(found), Agent)


def is_handoff(tool: Any) -> bool:
    """Say whether a tool is the one by which the agents of a swarm hand over: its effect is the swarm's state."""
    return getattr(tool, "tool_name", None) == "handoff_to_agent"


def agent_behind(tool: Any) -> Agent | None:
    """Return the agent that a tool calls, if that is all it does: then its inner steps are the steps."""
    return tool.agent if isinstance(tool, _AgentAsTool) else None


def sync_function(tool: Any) -> Callable[..., Any] | None:
    """Return the function of a tool that Strands runs in a thread; None if it has none, or an async one."""
    if not isinstance(tool, (DecoratedFunctionTool, PythonAgentTool)):
        return None
    function: Callable[..., Any] = tool._tool_func
    return None if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else function


def with_function(tool: Any, function: Callable[..., Any]) -> Any:
    """Return the same tool with another function behind it."""
    found = copy.copy(tool)
    found._tool_func = function
    return found


def is_next_to_tools(agent: Any) -> bool:
    """Say whether no middleware of the user stands between ours and the agent's tools."""
    wraps = [
        tagged.handler for tagged in agent._middleware_registry._handlers[ExecuteToolStage] if tagged.phase == "wrap"
    ]
    origins = [wrap.__module__.partition(".")[0] for wrap in wraps]
    return set(origins[origins.index(__name__.partition(".")[0]) :]) <= {__name__.partition(".")[0], "strands"}


def agents_beside(agent: Agent) -> list[Agent]:
    """Return the agents that an agent's parts call on its behalf."""
    found = getattr(agent.conversation_manager, "summarization_agent", None)
    return [found] if isinstance(found, Agent) else []


def refuse_unsupported(agent: Agent) -> str | None:
    """Return the reason why this agent cannot be made durable, if there is one."""
    if not is_agent(agent):
        return f"only a strands.Agent runs in steps, and a {type(agent).__name__} does not"
    if agent._background_tasks is not None:
        return "background tasks outlive the step that starts them, and their ids are random"
    if agent.concurrent_invocation_mode == ConcurrentInvocationMode.UNSAFE_REENTRANT:
        return "reentrant calls of one agent cannot be told apart"
    if agent._checkpointing:
        return "checkpointing=True ends the call at each step, where the journal records it and goes on"
    return None


def has_session(agent: Agent) -> bool:
    """Say whether a session manager fills the agent's messages."""
    return agent._session_manager is not None


def session_id_of(agent: Any) -> str | None:
    """Return the session that an agent or orchestrator keeps its conversation in."""
    manager = getattr(agent, "_session_manager", None) or getattr(agent, "session_manager", None)
    return getattr(manager, "session_id", None)


def providers_of(agent: Agent) -> list[ToolProvider]:
    """Return what serves an agent tools over a connection: MCP clients, and others of their kind."""
    return list(agent.tool_registry._tool_providers)


def output_model(agent: Agent) -> Any:
    """Return the agent's default structured output model."""
    return agent._default_structured_output_model


def set_model_state(agent: Agent, state: dict[str, Any]) -> None:
    """Put the state in place that a model keeps on its server's behalf."""
    kept = dict(state)
    agent._model_state.clear()
    agent._model_state.update(kept)


def restore_retries(agent: Agent, errors: Iterable[Exception]) -> None:
    """Have an agent's retry strategy count on from errors of the model call under way that another process has met."""
    strategy = agent._retry_strategy
    if strategy is not None:
        strategy._current_attempt = sum(strategy.is_retryable(error) for error in errors)


_FOR_A_TOOL = ("agent", "model", "messages", "system_prompt", "tool_config")


def put_for_tool(invocation_state: dict[str, Any]) -> dict[str, Any]:
    """Return what Strands has just put into an invocation state for the tool that it is about to run.

    The nodes of a graph share one invocation state: who waits before he runs a tool finds there what was put for another.
    """
    return {key: invocation_state[key] for key in _FOR_A_TOOL if key in invocation_state}
