"""Every contact with names that Strands marks private, in one place, for strands-agents 1.62.

Each has a contract test in tests/contract/test_strands_private.py that fails when a new version moves it. What is public
(stages, hooks, snapshots, metrics) is used directly where it is needed.
"""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from strands import Agent
from strands.agent._agent_as_tool import _AgentAsTool
from strands.event_loop import _retry, event_loop, streaming
from strands.interrupt import Interrupt, InterruptException
from strands.interrupt import _InterruptState as InterruptState
from strands.middleware import ExecuteToolStage
from strands.middleware._agent_stream import AgentStreamContext, AgentStreamStage
from strands.session import RepositorySessionManager
from strands.telemetry.tracer import get_tracer
from strands.tools import PythonAgentTool, ToolProvider
from strands.tools.decorator import DecoratedFunctionTool
from strands.types._events import AgentResultEvent, EventLoopStopEvent, ForceStopEvent, ToolInterruptEvent
from strands.types.agent import ConcurrentInvocationMode
from strands.types.events import TypedEvent
from strands.types.json_dict import JSONSerializableDict

__all__ = [
    "AgentResultEvent",
    "AgentStreamContext",
    "AgentStreamStage",
    "EventLoopStopEvent",
    "ForceStopEvent",
    "Interrupt",
    "InterruptException",
    "InterruptState",
    "SessionLog",
    "ToolInterruptEvent",
    "TypedEvent",
    "WatchedState",
    "agent_behind",
    "agents_beside",
    "answer_to",
    "cancel_flags",
    "carried_by",
    "changed_model_state",
    "copied",
    "force_output",
    "forced_output",
    "has_session",
    "is_agent",
    "is_handoff",
    "is_interrupted",
    "is_model_driven",
    "is_next_to_tools",
    "knows_interrupt",
    "offer_auxiliary",
    "output_model",
    "passes_on_interrupts",
    "quicken_copies",
    "refuse_unsupported",
    "session_log",
    "set_model_state",
    "silence_unheard_traces",
    "stays_in_loop",
    "sync_function",
    "wait_for_answers",
    "watch_model_states",
    "watch_output",
    "watch_state",
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


class SessionLog:
    """The messages of one agent in the store of a session manager that keeps one record for each."""

    def __init__(self, manager: RepositorySessionManager, agent: Agent) -> None:
        self._manager, self._agent = manager, agent

    def records(self, offset: int) -> list[Any]:
        """Return the records from ``offset`` on."""
        found: list[Any] = self._manager.session_repository.list_messages(
            self._manager.session_id, self._agent.agent_id, offset=offset
        )
        return found

    def append(self, message: Any) -> None:
        """Write a message after the last one."""
        self._manager.append_message(message, self._agent)

    def rewind(self, kept: list[Any]) -> None:
        """Have the next message written after those in ``kept``, over what is there."""
        self._manager._latest_agent_message[self._agent.agent_id] = kept[-1] if kept else None
        self._manager._held_records[self._agent.agent_id] = list(kept)


def session_log(agent: Agent) -> SessionLog | None:
    """Return the log of the agent's session, if it has one."""
    manager = agent._session_manager
    return SessionLog(manager, agent) if isinstance(manager, RepositorySessionManager) else None


def output_model(agent: Agent) -> Any:
    """Return the agent's default structured output model."""
    return agent._default_structured_output_model


_outputs: weakref.WeakKeyDictionary[Agent, Any] = weakref.WeakKeyDictionary()
"""What each agent's pass under way knows of its structured output: it lives nowhere else."""


def watch_output(agent: Agent) -> None:
    """Follow what the passes of an agent know of their structured output."""
    make_terminal = agent._make_agent_stream_terminal
    reference = weakref.ref(agent)

    def noting(structured_output_context: Any, *given: Any, **named: Any) -> Any:
        found = reference()
        if found is not None:
            _outputs[found] = structured_output_context
        return make_terminal(structured_output_context, *given, **named)

    agent._make_agent_stream_terminal = noting  # type: ignore[method-assign]


def forced_output(agent: Agent) -> Any:
    """Return the tool choice that the pass under way forces on the model to have structured output, or None."""
    found = _outputs.get(agent)
    return found.tool_choice if found is not None and found.forced_mode else None


def force_output(agent: Agent, tool_choice: Any) -> None:
    """Force structured output in the pass under way, as it was forced in the process that is gone."""
    found = _outputs.get(agent)
    if found is not None:
        found.set_forced_mode(tool_choice)


_model_states: weakref.WeakKeyDictionary[Agent, dict[str, Any]] = weakref.WeakKeyDictionary()
"""What the model call under way of each agent is given as its own state, to change in place; it lives nowhere else."""


def watch_model_states() -> None:
    """Follow the state that models change in a call."""
    make_terminal = event_loop._make_invoke_model_terminal
    if getattr(make_terminal, "_strands_durable", False):
        return

    def noting(agent: Any, cycle_span: Any, tracer: Any, model_state: dict[str, Any]) -> Any:
        if is_agent(agent):
            _model_states[agent] = model_state
        return make_terminal(agent, cycle_span, tracer, model_state)

    noting._strands_durable = True  # type: ignore[attr-defined]
    event_loop._make_invoke_model_terminal = noting


def changed_model_state(agent: Agent) -> dict[str, Any] | None:
    """Return what the model call under way has made of the model's own state; None if it left it as it was."""
    found = _model_states.get(agent)
    return None if found is None or found == agent._model_state else found


def set_model_state(agent: Agent, state: dict[str, Any]) -> None:
    """Put the state in place that a model keeps on its server's behalf."""
    kept = dict(state)
    agent._model_state.clear()
    agent._model_state.update(kept)


def offer_auxiliary(offer: Callable[[Agent, Any], Any]) -> None:
    """Have ``offer(agent, model)`` say what `Agent.aux_model` gives: the model itself, or one that stands in for it."""
    found = vars(Agent)["aux_model"]
    if getattr(found.fget, "_strands_durable", False):
        return

    def aux_model(agent: Agent) -> Any:
        return offer(agent, found.fget(agent))

    aux_model.__doc__ = found.fget.__doc__
    aux_model._strands_durable = True  # type: ignore[attr-defined]
    Agent.aux_model = property(aux_model, found.fset)  # type: ignore[assignment]


class WatchedState(JSONSerializableDict):
    """An agent's state that tells who writes to it. An existing object becomes one in place: references stay good."""

    def set(self, key: str, value: Any) -> None:
        """Set a value and tell the watcher; if it objects, the value is as it was."""
        before = dict(self._data)
        super().set(key, value)
        try:
            self.__dict__["_watcher"](key, False)
        except BaseException:
            super().set(key, before[key]) if key in before else super().delete(key)
            raise

    def delete(self, key: str) -> None:
        """Delete a key and tell the watcher."""
        super().delete(key)
        self.__dict__["_watcher"](key, True)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the watcher out of copies."""
        return {**{k: v for k, v in super().__getstate__().items() if k != "_watcher"}, "_watcher": _nobody}


def _nobody(key: str, deleted: bool) -> None:
    """Watch a copy: nobody does."""


_watched_types: dict[type, type] = {JSONSerializableDict: WatchedState}


def watch_state(state: Any, watcher: Any) -> None:
    """Have ``watcher(key, deleted)`` called for each write to ``state``."""
    kind = type(state)
    state.__dict__["_watcher"] = watcher
    if not isinstance(state, WatchedState):
        watched = _watched_types.setdefault(kind, type(kind.__name__, (WatchedState, kind), {}))
        state.__class__ = watched


_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


class _NotPlain(Exception):
    """A value holds more than JSON data and bytes."""


def _plain_copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) is str else _plain_copy(item) for key, item in value.items()}
    if kind is list:
        return [_plain_copy(item) for item in value]
    if kind in _ATOMS:
        return value
    raise _NotPlain


def copied(value: Any, memo: Any = None) -> Any:
    """Copy as `copy.deepcopy` does."""
    try:
        return _plain_copy(value)
    except (_NotPlain, RecursionError):
        return copy.deepcopy(value, memo)


class _QuickCopy:
    """Stands in for the module ``copy`` where Strands copies the whole conversation, twice per model call.

    Plain data is copied three times as fast, without the book-keeping for what plain data cannot have. Anything else is copied
    as before.
    """

    copy = staticmethod(copy.copy)

    deepcopy = staticmethod(copied)


def quicken_copies() -> None:
    """Spare most of the time that a long run spends on copies of its messages; nobody sees a difference but the clock."""
    for module in (event_loop, streaming):
        module.copy = _QuickCopy  # type: ignore[attr-defined]


_FOR_A_TOOL = ("agent", "model", "messages", "system_prompt", "tool_config")


def put_for_tool(invocation_state: dict[str, Any]) -> dict[str, Any]:
    """Return what Strands has just put into an invocation state for the tool that it is about to run.

    The nodes of a graph share one invocation state: who waits before he runs a tool finds there what was put for another.
    """
    return {key: invocation_state[key] for key in _FOR_A_TOOL if key in invocation_state}


class _Patience:
    """Stands in for the module ``asyncio`` where Strands waits before it asks a model again."""

    def __init__(self, pause: Callable[[float, str], Any]) -> None:
        self._pause = pause

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._pause(seconds, "throttled")


def wait_elsewhere(pause: Callable[[float, str], Any]) -> None:
    """Have ``pause(seconds, what)`` wait where `ModelRetryStrategy` does."""
    _retry.asyncio = _Patience(pause)  # type: ignore[assignment, attr-defined]


def silence_unheard_traces() -> None:
    """Spare the encoding of the whole conversation into span events that nobody records.

    Strands does it three times per cycle even without an exporter: a fifth of a long run. A span that records is untouched.
    """
    tracer = get_tracer()
    add_event_messages = tracer._add_event_messages
    if getattr(add_event_messages, "_strands_durable", False):
        return

    def guarded(span: Any, messages: Any) -> None:
        if span.is_recording():
            add_event_messages(span, messages)

    guarded._strands_durable = True  # type: ignore[attr-defined]
    tracer._add_event_messages = guarded  # type: ignore[method-assign]
