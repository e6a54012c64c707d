"""Access to private parts of Strands' agents, for strands-agents 1.62.

Each has a contract test in tests/contract/test_strands_private.py that fails when a new version moves it. Public API
(stages, hooks, snapshots, metrics) is used directly where it is needed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
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

from .._records.policy import DEFAULT, MARK, ToolPolicy
from .decisions import is_cancelled

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
    "answer_passed_on",
    "answer_to",
    "cancel_flags",
    "carried_by",
    "has_policy",
    "has_session",
    "is_agent",
    "is_handoff",
    "is_in_use",
    "is_interrupted",
    "is_model_driven",
    "is_next_to_tools",
    "knows_interrupt",
    "output_model",
    "own_interrupt",
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
    """Return these fields as `take_snapshot` would, but without copying: the caller encodes them at once."""
    return {
        "conversation_manager_state": agent.conversation_manager.get_state(),
        "interrupt_state": agent._interrupt_state.to_dict(),
        "model_state": agent._model_state,
    }


def is_interrupted(agent: Agent) -> bool:
    """Return True if the agent waits for answers and accepts nothing else."""
    return bool(agent._interrupt_state.activated)


def passes_on_interrupts(agent: Agent, interrupt_ids: Iterable[str]) -> bool:
    """Return True if an agent waits for answers to interrupts of an agent behind one of its tools."""
    state = agent._interrupt_state
    return state.activated and any(known.endswith(f":{inner}") for known in state.interrupts for inner in interrupt_ids)


def wait_for_answers(agent: Agent) -> None:
    """Make an agent accept answers."""
    agent._interrupt_state.activate()


def knows_interrupt(agent: Agent, interrupt_id: str) -> bool:
    """Return True if the agent has raised this interrupt."""
    return interrupt_id in agent._interrupt_state.interrupts


def own_interrupt(agent: Agent, form: dict[str, Any]) -> Interrupt:
    """Return a recorded interrupt: the agent's own object if it has raised it, so that an answer to the one reaches the other.

    Strands' tools that delegate keep the agent that asked, and read the answers there.
    """
    return agent._interrupt_state.interrupts.get(form["id"]) or Interrupt(**form)


def answer_to(agent: Agent, interrupt_id: str) -> Any:
    """Return a person's answer to an interrupt, or None."""
    interrupt = agent._interrupt_state.interrupts.get(interrupt_id)
    return None if interrupt is None else interrupt.response


def answer_passed_on(agent: Agent, interrupt_id: str) -> Any:
    """Return the answer to a question of an agent inside a tool, which the tool asked in its own name or as it was."""
    answer = answer_to(agent, interrupt_id)
    if answer is not None:
        return answer
    named = (found.response for found in agent._interrupt_state.interrupts.values() if found.name == interrupt_id)
    return next((response for response in named if response is not None), None)


def cancel_flags(agent: Agent) -> dict[str, Any] | None:
    """Return the cancel requested in this invocation, by `agent.cancel` or the caller's signal, as arguments of `cancel`."""
    is_over = is_cancelled(agent)
    if not agent._deferred_cancel and not is_over:
        return None
    return {"message": agent._cancel_message, "after_current_tools": not is_over}


def is_in_use(agent: Agent) -> bool:
    """Return True if the agent is in a call: Strands refuses another one, or lets it share the result."""
    return agent._concurrency._invocation_lock.locked()


def is_model_driven(invocation_state: dict[str, Any]) -> bool:
    """Return True for a tool call of the loop, False for a direct `agent.tool.x()`, which is not a step."""
    return "event_loop_cycle_id" in invocation_state


def stays_in_loop(tool: Any) -> bool:
    """Return True if a tool's effect is on the loop itself, so that it must run again: structured output."""
    return getattr(tool, "tool_type", None) == "structured_output"


def is_agent(value: Any) -> TypeGuard[Agent]:
    """Return True for an agent; a mock that claims to be one has no loop to attach to."""
    return issubclass(type(value), Agent)


def is_handoff(tool: Any) -> bool:
    """Return True for the tool with which agents of a swarm hand off: its effect is on the swarm's state."""
    return getattr(tool, "tool_name", None) == "handoff_to_agent"


def agent_behind(tool: Any) -> Agent | None:
    """Return the agent that a tool calls if that is all it does: the steps of that agent are then recorded, not the tool."""
    return tool.agent if isinstance(tool, _AgentAsTool) else None


def policy_of(tool: Any, name: str, given: dict[str, ToolPolicy]) -> ToolPolicy:
    """Return the policy of a tool: by name from ``tool_policies`` first, then from its decorator."""
    if name in given:
        return given[name]
    return _marked(tool) or DEFAULT


def has_policy(tool: Any, name: str, given: Mapping[str, ToolPolicy]) -> bool:
    """Return True if a user chose the policy of a tool."""
    return name in given or _marked(tool) is not None


def _marked(tool: Any) -> ToolPolicy | None:
    """Return the policy of a tool's decorator."""
    marked = getattr(tool, MARK, None) or getattr(getattr(tool, "_tool_func", None), MARK, None)
    return marked if isinstance(marked, ToolPolicy) else None


def sync_function(tool: Any) -> Callable[..., Any] | None:
    """Return the function of a tool that Strands runs in a thread; None if it has none or it is async."""
    if not isinstance(tool, (DecoratedFunctionTool, PythonAgentTool)):
        return None
    function: Callable[..., Any] = tool._tool_func
    return None if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else function


def with_function(tool: Any, function: Callable[..., Any]) -> Any:
    """Return a copy of a tool that calls another function."""
    if type(tool) not in (DecoratedFunctionTool, PythonAgentTool):
        copied = copy.copy(tool)
        copied._tool_func = function
        return copied
    copied = object.__new__(type(tool))  # what `copy.copy` does, in a quarter of the time
    vars(copied).update(vars(tool), _tool_func=function)
    return copied


def is_next_to_tools(agent: Any) -> bool:
    """Return True if no middleware of the user runs between ours and the agent's tools."""
    wraps = [
        tagged.handler for tagged in agent._middleware_registry._handlers[ExecuteToolStage] if tagged.phase == "wrap"
    ]
    origins = [wrap.__module__.partition(".")[0] for wrap in wraps]
    return set(origins[origins.index(__name__.partition(".")[0]) :]) <= {__name__.partition(".")[0], "strands"}


def agents_beside(agent: Agent) -> list[Agent]:
    """Return the agents that an agent's parts call on its behalf."""
    summarizer = getattr(agent.conversation_manager, "summarization_agent", None)
    return [summarizer] if isinstance(summarizer, Agent) else []


def refuse_unsupported(agent: Agent) -> str | None:
    """Return the reason why this agent cannot be made durable, if there is one."""
    if not is_agent(agent):
        return f"only a strands.Agent runs in steps, and a {type(agent).__name__} does not"
    if agent._background_tasks is not None:
        return "background tasks outlive the step that starts them, and their ids are random"
    if agent.concurrent_invocation_mode == ConcurrentInvocationMode.UNSAFE_REENTRANT:
        return "reentrant calls of one agent cannot be distinguished"
    if agent._checkpointing:
        return "checkpointing=True ends the call at each step, where the journal records it and continues"
    return None


def has_session(agent: Agent) -> bool:
    """Return True if a session manager fills the agent's messages."""
    return agent._session_manager is not None


def session_id_of(agent: Any) -> str | None:
    """Return the id of the session in which an agent or orchestrator keeps its conversation."""
    manager = getattr(agent, "_session_manager", None) or getattr(agent, "session_manager", None)
    return getattr(manager, "session_id", None)


def providers_of(agent: Agent) -> list[ToolProvider]:
    """Return the providers of an agent's tools, such as MCP clients, which need a connection."""
    return list(agent.tool_registry._tool_providers)


def output_model(agent: Agent) -> Any:
    """Return the agent's default structured output model."""
    return agent._default_structured_output_model


def set_model_state(agent: Agent, state: dict[str, Any]) -> None:
    """Replace the state that the agent keeps for its model's server."""
    kept = dict(state)
    agent._model_state.clear()
    agent._model_state.update(kept)


def restore_retries(agent: Agent, errors: Iterable[Exception]) -> None:
    """Let an agent's retry strategy continue from the errors that another process met in the running model call."""
    strategy = agent._retry_strategy
    if strategy is not None:
        strategy._current_attempt = sum(strategy.is_retryable(error) for error in errors)


_FOR_A_TOOL = ("agent", "model", "messages", "system_prompt", "tool_config")


def put_for_tool(invocation_state: dict[str, Any]) -> dict[str, Any]:
    """Return what Strands has just put into an invocation state for the tool that it is about to run.

    Nodes of a graph share one invocation state, so these keys may belong to another node by the time a queued tool runs.
    """
    return {key: invocation_state[key] for key in _FOR_A_TOOL if key in invocation_state}
