"""Attaching: wrap an agent's calls, model calls and tool calls, and an orchestrator's calls and nodes.

The parts of an agent or orchestrator are attached with it: the agents behind its tools, the executors of its nodes. Some of
them do not exist yet when plugins are initialized, so each root call looks for new ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterMultiAgentInvocationEvent,
    AfterNodeCallEvent,
    AfterToolCallEvent,
    AfterToolsEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeMultiAgentInvocationEvent,
    BeforeNodeCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
    HookOrder,
    MessageAddedEvent,
)
from strands.middleware import ExecuteToolContext, ExecuteToolStage, InvokeModelContext, InvokeModelStage
from strands.multiagent.base import MultiAgentBase

from .._calls import direct_calls, meters
from .._calls.context import StepPhase, current_context, enclosing
from .._calls.durable_call import CallContext, DurableCall
from .._calls.local_execution import LocalExecution
from .._execution import decided, entry, keyboard_interrupt, stages
from .._execution.agent_invocation import AgentInvocation, running_agents, segments
from .._execution.attached import attached, lasting
from .._execution.opaque_node import Opaque
from .._execution.orchestrator_invocation import OrchestratorInvocation, running_orchestrators
from .._execution.resolver import CallResolver
from .._journal.owner import Owner
from .._records.calls import CallKind, CallRecord
from .._records.logs import safe_logger
from .._records.options import Options
from .._strands import sessions
from .._strands.agents import (
    AgentStreamContext,
    AgentStreamStage,
    agent_behind,
    agents_beside,
    is_agent,
    is_handoff,
    is_interrupted,
    is_model_driven,
    knows_interrupt,
    refuse_unsupported,
    stays_in_loop,
)
from .._strands.decisions import hide_cancel, wrap_hooks, wrap_middlewares
from .._strands.fingerprints import Config, config_of
from .._strands.orchestrators import OrchestratorAdapter, adapter_of
from .._strands.streams import patch_streams
from .._strands.watchers import watch_output
from ..errors import ExecutionBusyError, UnsupportedFeatureError
from .policy_names import refuse_unknown
from .visits import keep_hooks

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]


def attach(subject: Any, options: Options | None) -> None:
    """Attach to an agent or orchestrator and to its parts, once."""
    patch_streams(current_context, _enter_guest)
    if subject not in attached:
        adapter = adapter_of(subject)
        if adapter is None:
            _attach_agent(subject)
            if enclosing.get() is None:
                lasting.add(subject)
        else:
            _attach_orchestrator(adapter)
        attached[subject] = options
        keyboard_interrupt.watch(subject, lambda found: attached.get(found) is not None)
    elif options is not None:
        attached[subject] = options
    attach_parts(subject)


def attach_parts(subject: Any) -> None:
    """Attach to those parts of an agent or orchestrator that are new."""
    adapter = adapter_of(subject)
    if adapter is not None:
        adapter.settle()
        parts = list(adapter.executors().values())
    else:
        parts = [agent_behind(tool) for tool in list(subject.tool_registry.registry.values())]
        parts += agents_beside(subject)
    for part in parts:
        if is_agent(part) or (isinstance(part, MultiAgentBase) and adapter_of(part) is not None):
            attach(part, None)
        elif adapter is not None and part not in attached and hasattr(part, "stream_async"):
            attached[part] = None
            if not isinstance(part.stream_async, Opaque):  # it is one in a call of a guest
                part.stream_async = Opaque(part, part.stream_async)


def _enter_guest(*args: Any, **given: Any) -> Any:
    """Make a call of an agent or orchestrator that code in a step or hook calls."""
    from .guests import enter  # it is made of what is defined here

    return enter(*args, **given)


def _with_own_policies(subject: Any, context: CallContext) -> CallContext:
    """Have the policies of a Durability of its own hold for a call inside another, where the root has none."""
    options = context.options
    own = options if context.outer is None else attached.get(subject)
    if own is None or not own.tool_policies:
        return context
    refuse_unknown(subject, own.tool_policies)
    policies = {**own.tool_policies, **options.tool_policies}
    return replace(context, options=replace(options, tool_policies=policies))


# Agents


class AgentSubject:
    """An agent, as `entry` sees it."""

    is_guest = False

    def __init__(self, agent: Agent, original: Any) -> None:
        self.me, self.name, self._original = agent, agent.agent_id, original
        self.kind: CallKind = "agent"

    def config(self) -> Config:
        """Return its current configuration."""
        return config_of(self.me)

    def may_have_made(self, call: DurableCall, record: CallRecord) -> bool:
        return True

    def is_interrupted(self) -> bool:
        return is_interrupted(self.me)

    def may_know_better(self) -> bool:
        return sessions.speaks_for(self.me)

    def knows_interrupt(self, interrupt_id: str) -> bool:
        return knows_interrupt(self.me, interrupt_id)

    def busy_in(self) -> str | None:
        running = running_agents.get(self.me)
        return None if running is None else running.execution_id

    def enter(self, local: LocalExecution) -> None:
        local.writes(self.me)
        sessions.hand_over(self.me)

    def original(self, prompt: Any, given: dict[str, Any]) -> Events:
        return cast(Events, self._original(prompt, **given))

    def open(self, context: CallContext, resolver: CallResolver, prompt: Any, given: dict[str, Any]) -> Events:
        attach_parts(self.me)
        context = _with_own_policies(self.me, context)
        invocation = AgentInvocation(self.me, context, resolver, self._original)
        if context.outer is not None and self.me in lasting:
            self._recall(invocation, resolver)
        return invocation.open(prompt, given)

    def _recall(self, invocation: AgentInvocation, resolver: CallResolver) -> None:
        """Make an agent that the user's code calls remember its calls in this execution, if its id is unique."""
        address = resolver.address()
        if not address.member.startswith("@"):
            return  # an agent behind a tool or node is restored with it
        if sum(agent.agent_id == self.name for agent in lasting) == 1:
            invocation.recall(address.member)
        else:
            logger.warning(
                "agent_id=<%s>, scope=<%s> | several agents have this id, so none remembers calls of another process",
                self.name, address.scope,
            )  # fmt: skip


def _attach_agent(agent: Agent) -> None:
    reason = refuse_unsupported(agent)
    if reason is not None:
        raise UnsupportedFeatureError(
            f"Durability on agent {getattr(agent, 'name', agent)!r}", reason, "Build the agent without it."
        )
    agent.stream_async = partial(_stream_agent, agent, agent.stream_async)  # type: ignore[method-assign]
    if not keep_hooks(agent):
        hook_into_agent(agent)


def hook_into_agent(agent: Agent) -> None:
    """Wrap an agent's model calls, tool calls and hooks."""
    meters.register()
    watch_output(agent)
    agent.add_middleware(InvokeModelStage, _invoke_model)
    agent.add_middleware(ExecuteToolStage, _execute_tool)
    agent.add_middleware(AgentStreamStage, _run_pass)
    wrap_middlewares(agent, partial(decided.around_middlewares, _execute_tool))
    wrap_hooks(agent, decided.around_hooks)
    hide_cancel(agent, partial(_is_running_on_record, agent))
    for event_type, callback, order in _AGENT_HOOKS:
        agent.hooks.add_callback(event_type, callback, order=order)


# Each of these returns an async generator instead of being one, which saves a layer for every event of a stream.


def _stream_agent(agent: Agent, original: Any, prompt: Any = None, **given: Any) -> Events:
    return entry.call(attached.get(agent), AgentSubject(agent, original), prompt, given)


def _invoke_model(context: InvokeModelContext, next_fn: Any) -> Events:
    call = running_agents.get(context.agent)  # type: ignore[call-overload]
    if call is None or call.is_left_running:
        return cast(Events, next_fn(context))
    return stages.invoke_model(call, context, next_fn)


def _execute_tool(context: ExecuteToolContext, next_fn: Any) -> Events:
    if not is_model_driven(context.invocation_state):
        return cast(Events, direct_calls.run(context, next_fn))
    call = running_agents.get(context.agent)  # type: ignore[call-overload]
    if call is None or call.is_left_running:
        return cast(Events, next_fn(context))
    if stays_in_loop(context.tool) or (is_handoff(context.tool) and call.is_turn):
        return stages.run_in_loop(call, context, next_fn)
    request = call.tools.request(context.tool_use)
    if call.tools.decisions.is_over(request):
        return decided.once_more(call, request)
    events = stages.execute_tool(call, context, next_fn)
    call.local.follow(events)
    return events


def _is_running_on_record(agent: Agent) -> bool:
    call = running_agents.get(agent)
    return call is not None and call.tools.decisions.batch is not None


def _run_pass(context: AgentStreamContext, next_fn: Any) -> Events:
    found = segments.get(context.agent)  # type: ignore[call-overload]
    return cast(Events, next_fn(context)) if found is None else found.run(context, next_fn)


# Orchestrators


class OrchestratorSubject:
    """An orchestrator, as `entry` sees it."""

    is_guest = False

    def __init__(self, adapter: OrchestratorAdapter, original: Any) -> None:
        self.me, self.name, self.kind = adapter.me, adapter.name, adapter.kind
        self._adapter, self._original = adapter, original

    def config(self) -> Config:
        """Return its current configuration."""
        return self._adapter.topology()

    def may_have_made(self, call: DurableCall, record: CallRecord) -> bool:
        return True

    def is_interrupted(self) -> bool:
        return self._adapter.is_interrupted()

    def may_know_better(self) -> bool:
        return False

    def knows_interrupt(self, interrupt_id: str) -> bool:
        return self._adapter.knows_interrupt(interrupt_id)

    def busy_in(self) -> str | None:
        running = running_orchestrators.get(self.me)
        return None if running is None else running.execution_id

    def enter(self, local: LocalExecution) -> None:
        """Do nothing: all state of an orchestrator is in its calls."""

    def original(self, prompt: Any, given: dict[str, Any]) -> Events:
        running = running_orchestrators.get(self.me)
        if running is not None:  # Strands would run both calls on one state, and we would record that
            why = f"The {self.kind} {self.name!r} is in another call and runs one at a time. Wait for that call to end."
            raise ExecutionBusyError(running.execution_id, str(Owner.me()), why)
        return cast(Events, self._original(prompt, **given))

    def open(self, context: CallContext, resolver: CallResolver, prompt: Any, given: dict[str, Any]) -> Events:
        attach_parts(self.me)
        context = _with_own_policies(self.me, context)
        return OrchestratorInvocation(self._adapter, context, resolver, self._original).open(prompt, given)


def _attach_orchestrator(adapter: OrchestratorAdapter) -> None:
    me: Any = adapter.me
    me.stream_async = partial(_stream_orchestrator, me, me.stream_async)
    if not keep_hooks(me):
        hook_into_orchestrator(adapter)


def hook_into_orchestrator(adapter: OrchestratorAdapter) -> None:
    """Wrap an orchestrator's nodes and hooks."""
    adapter.intercept(partial(running_orchestrators.get, adapter.me))
    wrap_hooks(adapter.me, _around_hooks)


def _stream_orchestrator(me: Any, original: Any, task: Any, invocation_state: Any = None, **more: Any) -> Events:
    adapter = adapter_of(me)
    assert adapter is not None
    given = {"invocation_state": {} if invocation_state is None else invocation_state, **more}
    return entry.call(attached.get(me), OrchestratorSubject(adapter, original), task, given)


# Hooks


async def _around_hooks(invoke: Any, event: Any) -> Any:
    """Wrap the hooks of an orchestrator: act before the first of them and after the last."""
    call = running_orchestrators.get(getattr(event, "source", None))
    if call is None:
        return await invoke(event)
    if isinstance(event, BeforeMultiAgentInvocationEvent):
        call.enter_call("before")
    elif isinstance(event, AfterMultiAgentInvocationEvent):
        call.enter_call("after")
    elif isinstance(event, BeforeNodeCallEvent):
        call.node_begins(event.node_id, event.invocation_state or {})
    elif isinstance(event, AfterNodeCallEvent):
        call.node_returns(event.node_id)
    event, questions = await invoke(event)
    if isinstance(event, BeforeNodeCallEvent):
        questions = decided.before_node(call, event, questions)
    elif isinstance(event, AfterNodeCallEvent):
        call.node_ends(event.node_id)
    return event, questions


def _on(moment: Callable[[Any, Any], Any]) -> Any:
    """Return a hook that calls ``moment(call, event)`` in a durable call of an agent, and does nothing outside of one."""

    def callback(event: Any) -> None:
        call = running_agents.get(event.agent)
        if call is not None:
            moment(call, event)

    return callback


def _around_tool(phase: StepPhase) -> Any:
    """Return a hook that enters the hooks before or after a tool call."""

    def callback(event: Any) -> None:
        call = running_agents.get(event.agent)
        if not is_model_driven(event.invocation_state):
            direct_calls.enter(event.tool_use, phase)
        elif call is not None:
            call.enter_tool(event.tool_use, phase)

    return callback


_FIRST, _LAST = HookOrder.SDK_FIRST, HookOrder.SDK_LAST
_AGENT_HOOKS: list[tuple[Any, Any, int]] = [
    (BeforeInvocationEvent, _on(lambda call, event: call.invocation_begins(event.invocation_state)), _FIRST),
    (BeforeModelCallEvent, _on(lambda call, event: call.enter_model("before")), _FIRST),
    (AfterModelCallEvent, _on(lambda call, event: call.enter_model("after")), _FIRST),
    (MessageAddedEvent, _on(lambda call, event: call.message_added(event.message)), _LAST),
    (BeforeToolsEvent, _on(lambda call, event: call.tools_begin(event.message)), _FIRST),
    (BeforeToolCallEvent, _around_tool("before"), _FIRST),
    (AfterToolCallEvent, _around_tool("after"), _FIRST),
    (AfterToolsEvent, _on(lambda call, event: call.tools_end()), _FIRST),
    (AfterInvocationEvent, _on(lambda call, event: call.enter_call("after")), _FIRST),
]
FUNCTIONS = {_invoke_model, _execute_tool, _run_pass, *(callback for _, callback, _ in _AGENT_HOOKS)}
"""The middlewares and hooks of an attached agent."""
