"""Agents, Graphs and Swarms that the code of a step or hook builds and calls: attached for that call, and only for it.

Everything that calls one comes through `_strands.streams`. Its parts are guests, too, when they are called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack
from functools import partial
from typing import Any

from strands import Agent
from strands.multiagent.base import MultiAgentBase

from .._calls.context import StepContext, enclosing
from .._calls.durable_call import CallContext, DurableCall
from .._execution import entry, part_of_step
from .._execution.agent_invocation import AgentInvocation
from .._execution.attached import attached
from .._execution.opaque_node import Opaque
from .._execution.orchestrator_invocation import OrchestratorInvocation
from .._execution.resolver import CallResolver
from .._journal import messages
from .._records.calls import CallRecord
from .._strands.agents import has_session, is_agent, is_in_use, refuse_unsupported
from .._strands.fingerprints import base_change
from .._strands.orchestrators import OrchestratorAdapter, adapter_of
from .._strands.streams import Borrowed
from .._strands.watchers import unwatch_state
from .attach import FUNCTIONS, AgentSubject, OrchestratorSubject, hook_into_agent, hook_into_orchestrator
from .visits import attached_during

Events = AsyncGenerator[Any, None]


def enter(step_context: StepContext, subject: Any, original: Any, *args: Any, **given: Any) -> Any:
    """Return the events of a call where ``step_context`` is; of one that is not to be attached, as Strands would."""
    call = enclosing.get()
    is_attached = subject in attached  # then its own `stream_async` has decided
    if is_attached or call is None or not call.is_open or call.is_left_running or not _holds_children(step_context):
        return original(*args, **given)
    adapter = None if is_agent(subject) else adapter_of(subject)
    if adapter is not None:
        return _call_orchestrator(adapter, original, *args, **given)
    reason = refuse_unsupported(subject)
    if reason is not None:
        part_of_step.say(step_context, subject.agent_id, reason)
    if reason is not None or is_in_use(subject):  # Strands refuses it; the other call keeps its messages
        return original(*args, **given)
    return _call_agent(subject, original, *args, **given)


def _holds_children(step_context: StepContext) -> bool:
    """Return True if what code calls there is recorded."""
    is_in_model = step_context.kind == "model" and step_context.phase == "running"
    return not (is_in_model or step_context.recorded.is_opaque or step_context.recorded.is_over)


def _call_agent(agent: Agent, original: Any, prompt: Any = None, **given: Any) -> Events:
    return entry.call(None, _GuestAgent(agent, original), prompt, given)


def _call_orchestrator(
    adapter: OrchestratorAdapter, original: Any, task: Any, invocation_state: Any = None, **more: Any
) -> Events:
    given = {"invocation_state": {} if invocation_state is None else invocation_state, **more}
    return entry.call(None, _GuestOrchestrator(adapter, original), task, given)


class _GuestAgent(AgentSubject):
    """An agent that is attached for one call."""

    is_guest = True

    def may_have_made(self, call: DurableCall, record: CallRecord) -> bool:
        """Compare the conversation that an agent was built with; one that was called before has that of its calls."""
        agent = self.me
        was_called = agent in call.local.trackers or bool(agent.event_loop_metrics.agent_invocations)
        if was_called or has_session(agent) or not agent.messages:
            return True
        found = messages.read(call.journal, record.lineage, record.base)[: len(agent.messages)]
        return base_change(found, agent.messages) is None

    def open(self, context: CallContext, resolver: CallResolver, prompt: Any, given: dict[str, Any]) -> Events:
        invocation = AgentInvocation(self.me, context, resolver, self._original)
        return attached_during(self.me, self._hook_into, partial(invocation.open, prompt, given))

    def _hook_into(self, undo: ExitStack) -> None:
        undo.callback(lambda: unwatch_state(self.me.state))
        undo.callback(Borrowed(self.me).give_back, FUNCTIONS)
        hook_into_agent(self.me)


class _GuestOrchestrator(OrchestratorSubject):
    """An orchestrator that is attached for one call, with its nodes that are neither agents nor orchestrators."""

    is_guest = True

    def open(self, context: CallContext, resolver: CallResolver, prompt: Any, given: dict[str, Any]) -> Events:
        self._adapter.settle()
        invocation = OrchestratorInvocation(self._adapter, context, resolver, self._original)
        return attached_during(self.me, self._hook_into, partial(invocation.open, prompt, given))

    def _hook_into(self, undo: ExitStack) -> None:
        undo.callback(Borrowed(self.me).give_back, set())
        hook_into_orchestrator(self._adapter)
        for executor in self._adapter.executors().values():
            _wrap_opaque(executor, undo)


def _wrap_opaque(executor: Any, undo: ExitStack) -> None:
    """Record a node as one step that we cannot see into."""
    is_seen_into = is_agent(executor) or (isinstance(executor, MultiAgentBase) and adapter_of(executor) is not None)
    if is_seen_into or executor in attached or not hasattr(executor, "stream_async"):
        return
    own = vars(executor).get("stream_async")
    if own is None:
        undo.callback(vars(executor).pop, "stream_async", None)
    else:
        undo.callback(setattr, executor, "stream_async", own)
    executor.stream_async = Opaque(executor, executor.stream_async)
