"""`Durability`: the plugin that makes an agent survive.

It stands at three places of an agent: around `stream_async` (every way in: `agent(...)`, `invoke_async`, `stream_async`),
around each model call and around each tool call. The loop in between stays Strands' own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, Literal, cast

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    AfterToolsEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
    HookOrder,
    MessageAddedEvent,
)
from strands.middleware import ExecuteToolContext, ExecuteToolStage, InvokeModelContext, InvokeModelStage
from strands.plugins import MultiAgentPlugin, Plugin

from . import _stages
from ._call import Call
from ._keys import checked_id
from ._policy import ModelInDoubt, ToolPolicy, policy_of
from ._root import Options, active, root_call, segments
from ._store import path_of
from ._strands import (
    AgentStreamContext,
    AgentStreamStage,
    is_model_driven,
    quicken_copies,
    refuse_unsupported,
    silence_unheard_traces,
    stays_in_loop,
)
from .errors import UnsupportedFeatureError

Events = AsyncGenerator[Any, None]


class Durability(Plugin, MultiAgentPlugin):
    """Record every model call and every tool call of an agent, and go on after any failure.

    Give it to an agent and run the script again after a crash: it goes on at the first step that has no recorded result.

    Args:
        store: The file that keeps the journal: a path or a ``sqlite:///`` URL.
        execution_id: Names the run. The same id goes on with the same run; without one, each call is a new run.
            ``invocation_state={"execution_id": ...}`` names it per call and wins.
        on_drift: What to do when the agent that goes on is not the one that was recorded.
        on_failed: Whether running a failed call again tries it again, or raises `ExecutionFailedError`.
        on_completed: Whether running a completed run again returns its results, or starts a new run under the same id.
            Made for scripts with one call: killed between two calls, a run looks completed.
        model_in_doubt: What to do with a model call that was under way in a crash.
        tool_policies: By tool name: what to do with a tool call that was under way in a crash, retries, timeouts.
        lease_seconds: How long an owner that cannot be seen counts as alive.
        segment_turns: After how many turns the inner loop is entered anew. Invisible; bounds recursion and memory.
        busy_seconds: How long to wait for a store that another process has locked.
    """

    name = "strands-durable"

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        execution_id: str | None = None,
        on_drift: Literal["raise", "warn", "rerun"] = "raise",
        on_failed: Literal["resume", "raise"] = "resume",
        on_completed: Literal["return", "restart"] = "return",
        model_in_doubt: ModelInDoubt = "retry",
        tool_policies: Mapping[str, ToolPolicy] | None = None,
        lease_seconds: float = 10.0,
        segment_turns: int = 20,
        busy_seconds: float = 10.0,
    ) -> None:
        super().__init__()
        _check("on_drift", on_drift, "raise", "warn", "rerun")
        _check("on_failed", on_failed, "resume", "raise")
        _check("on_completed", on_completed, "return", "restart")
        _check("model_in_doubt", model_in_doubt, "retry", "ask", "fail")
        if lease_seconds <= 0 or busy_seconds <= 0 or segment_turns < 1:
            raise ValueError("lease_seconds, busy_seconds and segment_turns must be positive")
        self._model_in_doubt: ModelInDoubt = model_in_doubt
        self._tool_policies = dict(tool_policies or {})
        self._options = Options(
            path=path_of(store),
            execution_id=None if execution_id is None else checked_id(execution_id),
            on_drift=on_drift,
            on_failed=on_failed,
            on_completed=on_completed,
            lease_seconds=lease_seconds,
            segment_turns=segment_turns,
            busy_seconds=busy_seconds,
        )

    def init_agent(self, agent: Agent) -> None:
        """Stand around the agent's calls, model calls and tool calls."""
        reason = refuse_unsupported(agent)
        if reason is not None:
            raise UnsupportedFeatureError("Durability on this agent", reason, "Build the agent without it.")
        silence_unheard_traces()
        quicken_copies()
        agent.stream_async = partial(_stream, self._options, agent, agent.stream_async)  # type: ignore[method-assign]
        agent.add_middleware(InvokeModelStage, self._invoke_model)
        agent.add_middleware(ExecuteToolStage, self._execute_tool)
        agent.add_middleware(AgentStreamStage, _run_pass)
        for event_type, callback, order in _HOOKS:
            agent.hooks.add_callback(event_type, callback, order=order)

    def register_hooks(self, registry: Any, **kwargs: Any) -> None:
        """Refuse to be a hook: it would see the loop, and could not make it durable."""
        raise UnsupportedFeatureError(
            "Durability among an agent's hooks",
            "it is a plugin, and a bidirectional agent has none",
            "Pass it to an Agent as plugins=[Durability(...)].",
        )

    # Each of these returns an async generator: one layer less for every event of a stream than being one.

    def _invoke_model(self, context: InvokeModelContext, next_fn: Any) -> Events:
        call = active.get(context.agent)  # type: ignore[call-overload]
        if call is None:
            return cast(Events, next_fn(context))
        return _stages.invoke_model(call, self._model_in_doubt, context, next_fn)

    def _execute_tool(self, context: ExecuteToolContext, next_fn: Any) -> Events:
        call = active.get(context.agent)  # type: ignore[call-overload]
        if call is None or not is_model_driven(context.invocation_state) or stays_in_loop(context.tool):
            return cast(Events, next_fn(context))
        policy = policy_of(context.tool, context.tool_use["name"], self._tool_policies)
        return _stages.execute_tool(call, policy, context, next_fn)


def _stream(options: Options, agent: Agent, original: Any, prompt: Any = None, **given: Any) -> Events:
    return root_call(options, agent, original, prompt, given)


def _run_pass(context: AgentStreamContext, next_fn: Any) -> Events:
    found = segments.get(context.agent)  # type: ignore[call-overload]
    return cast(Events, next_fn(context)) if found is None else found.run(context, next_fn)


def _on(moment: Any) -> Any:
    """Make a hook of what a call does at a moment; nothing happens outside of a durable call."""

    def callback(event: Any) -> None:
        call: Call | None = active.get(event.agent)
        if call is not None:
            moment(call, event)

    return callback


_FIRST, _LAST = HookOrder.SDK_FIRST, HookOrder.SDK_LAST
_HOOKS: list[tuple[Any, Any, int]] = [
    (BeforeInvocationEvent, _on(lambda call, event: call.invocation_begins(event.invocation_state)), _FIRST),
    (BeforeModelCallEvent, _on(lambda call, event: call.enter_model("before")), _FIRST),
    (AfterModelCallEvent, _on(lambda call, event: call.enter_model("after")), _FIRST),
    (MessageAddedEvent, _on(lambda call, event: call.message_added(event.message)), _LAST),
    (BeforeToolsEvent, _on(lambda call, event: call.tools_begin(event.message)), _FIRST),
    (BeforeToolCallEvent, _on(lambda call, event: call.enter_tool(event.tool_use, "before")), _FIRST),
    (AfterToolCallEvent, _on(lambda call, event: call.enter_tool(event.tool_use, "after")), _FIRST),
    (AfterToolsEvent, _on(lambda call, event: call.tools_end()), _FIRST),
    (AfterInvocationEvent, _on(lambda call, event: call.enter_call("after")), _FIRST),
]


def _check(name: str, value: str, *allowed: str) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: use one of {', '.join(map(repr, allowed))}")
