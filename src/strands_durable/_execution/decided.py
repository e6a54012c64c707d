"""What is on record was decided: on resume, hooks, middlewares, cancels and questions have no say about it (C61).

Strands asks all of them again about every tool call of the answer with which it resumes. Whatever they say about a call with
something on record is not followed, with a warning; a call in doubt is left to its policy. About the other calls of the same
answer they decide as they always do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from strands.hooks import AfterToolCallEvent, BeforeNodeCallEvent, BeforeToolCallEvent, BeforeToolsEvent
from strands.middleware import ExecuteToolContext, ExecuteToolStage, ToolResultEvent

from .._calls.agent_call import Call
from .._calls.decisions import Batch
from .._calls.durable_call import DurableCall, journal_guard
from .._calls.orchestrator_call import OrchestratorCall
from .._calls.tool_steps import ToolRequest
from .._records import keys
from .._records.logs import safe_logger
from .._strands.agents import ToolInterruptEvent, is_model_driven
from .._strands.decisions import ask, checks_each, chosen, inside, is_cancelled, tool_named, unask
from .agent_invocation import running_agents

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]


class _Stopped(list[Any]):
    """No question of its own, for a call that waits for the answer to that of another: true although it is empty."""

    def __bool__(self) -> bool:
        return True


# Hooks


async def around_hooks(invoke: Any, event: Any) -> Any:
    """Run the hooks of an agent."""
    around = _AROUND.get(type(event))
    call = None if around is None else running_agents.get(event.agent)
    if around is None or call is None or (around is not _before_tools and not is_model_driven(event.invocation_state)):
        return await invoke(event)
    return await around(call, invoke, event)


async def _before_tools(call: Call, invoke: Any, event: BeforeToolsEvent) -> Any:
    event, questions = await invoke(event)
    decisions = call.tools.decisions
    requests = call.tools.requests() if decisions.has_record else []
    known = [request.name for request in requests if decisions.is_on_record(request)]
    if not known:
        return event, questions
    for wish, is_wanted in (("cancel", bool(event.cancel)), ("interrupt", bool(questions))):
        if is_wanted:
            _warn(call, "tools", ", ".join(known), keys.tools_key(call.progress.ordinal), wish)
    message = event.cancel if isinstance(event.cancel, str) else "Tool cancelled by hook"
    unask(call.agent, questions)
    decisions.batch_begins(Batch(message if event.cancel else None, questions))
    event.cancel = False
    return event, []


async def _before_tool(call: Call, invoke: Any, event: BeforeToolCallEvent) -> Any:
    request, decisions = call.tools.request(event.tool_use), call.tools.decisions
    decisions.pass_begins(request)
    given, decide = event.tool_use, _decided if decisions.is_on_record(request) else _undecided
    event, questions = await decide(call, invoke, event, request)
    if event.tool_use is not given:
        call.tools.rewrite(request, event.tool_use)
    return event, questions


async def _decided(call: Call, invoke: Any, event: BeforeToolCallEvent, request: ToolRequest) -> Any:
    """Run the hooks before a call on record."""
    name, given, selected = call.tools.decisions.name_of(request), event.tool_use, event.selected_tool
    event, questions = await invoke(event)
    wishes = []
    if questions:
        unask(call.agent, questions)
        wishes.append("interrupt")
    if event.cancel_tool:
        event.cancel_tool = False
        wishes.append("cancel_tool")
    if chosen(event, selected) not in (name, request.name):  # the tool on record may be the choice of a middleware
        event.tool_use, event.selected_tool = {**given, "name": name}, tool_named(call.agent, name)
        wishes.append("tool_use")
    for wish in wishes:
        _warn(call, "tool", name, request.key, wish)
    return event, []


async def _undecided(call: Call, invoke: Any, event: BeforeToolCallEvent, request: ToolRequest) -> Any:
    """Run the hooks before a call with nothing on record, unless it has been decided for the whole batch."""
    batch, agent = call.tools.decisions.batch, call.agent
    if request.retry > 0:  # another try of a call on record
        return await invoke(event)
    if batch is not None and batch.questions:
        questions, batch.questions[:] = [*batch.questions], []
        ask(agent, questions)
        batch.is_asking = True
        return event, questions
    if batch is not None and batch.is_asking:
        return event, _Stopped()
    if batch is not None and (batch.message is not None or (checks_each(agent) and is_cancelled(agent))):
        event.cancel_tool = call.tools.decisions.cancel_rest()
        return event, []
    return await invoke(event)


async def _after_tool(call: Call, invoke: Any, event: AfterToolCallEvent) -> Any:
    request, decisions = call.tools.request(event.tool_use, back=1), call.tools.decisions
    batch, result = decisions.batch, decisions.result(request)
    if result is None:  # it was cancelled, or answered by a middleware outside ours
        is_batch = batch is not None and batch.message is not None and event.cancel_message == batch.message
        return (event, []) if is_batch else await invoke(event)
    left = decisions.left(request)
    if left is not None:
        await _run_without_effect(call, invoke, event, request, left)
        return event, []
    found = await invoke(event)
    if event.retry and is_cancelled(call.agent):
        event.retry = False  # as Strands decides, which may not see the cancel now
    with journal_guard(call, starts=False):
        decisions.settle(request, event.result, retry=event.retry)
    return found


async def _run_without_effect(
    call: Call, invoke: Any, event: AfterToolCallEvent, request: ToolRequest, left: dict[str, Any]
) -> None:
    """Run hooks whose decision is on record."""
    retry, result = "retry" in left, left.get("result", call.tools.decisions.result(request))
    try:
        await invoke(event)
    except Exception as error:
        _warn(call, "tool", request.name, request.key, repr(error))
    if event.retry != retry:
        _warn(call, "tool", request.name, request.key, "retry")
        event.retry = retry
    if event.result != result and not retry:
        _warn(call, "tool", request.name, request.key, "result")
        event.result = result


_AROUND: dict[type, Any] = {
    BeforeToolsEvent: _before_tools,
    BeforeToolCallEvent: _before_tool,
    AfterToolCallEvent: _after_tool,
}


def before_node(call: OrchestratorCall, event: BeforeNodeCallEvent, questions: list[Any]) -> list[Any]:
    """Let the hooks before a node decide nothing if what the node does is on record; return the questions that stand."""
    if not call.is_on_record(event.node_id) or not (event.cancel_node or questions):
        return questions
    wish = "cancel_node" if event.cancel_node else "interrupt"
    _warn(call, "node", event.node_id, call.key_of(event.node_id), wish)
    event.cancel_node = False
    return []


def _warn(call: DurableCall, kind: str, name: str, key: str, wish: str) -> None:
    path = keys.path(call.record.scope, call.record.position, key)
    logger.warning(
        "execution_id=<%s>, %s=<%s>, step=<%s>, wish=<%s> | not followed: what it is about is on record",
        call.execution_id, kind, name, path, wish,
    )  # fmt: skip


# Middlewares


def around_middlewares(run_tool: Any, invoke: Any, stage: Any, context: Any, end: Any) -> Events:
    """Run the middlewares of an agent; ``run_tool`` is our wrap around its tools."""
    call = running_agents.get(context.agent) if stage is ExecuteToolStage else None
    if call is not None and is_model_driven(context.invocation_state):
        request = call.tools.request(context.tool_use)
        if call.tools.decisions.is_on_record(request):
            return _through(call, request, run_tool, invoke(stage, context, end), context, end)
    events: Events = invoke(stage, context, end)
    return events


async def _through(
    call: Call, request: ToolRequest, run_tool: Any, events: Events, context: ExecuteToolContext, end: Any
) -> Events:
    """Run the middlewares around a call on record; one outside ours can neither keep the call from us nor undo its record."""
    decisions = call.tools.decisions
    try:
        async for event in events:
            if decisions.has_entered(request) or not isinstance(event, (ToolInterruptEvent, ToolResultEvent)):
                yield event
    except Exception as error:
        if decisions.has_entered(request):
            if decisions.left(request) is None or decisions.result(request) is None:
                raise
            _warn(call, "tool", request.name, request.key, repr(error))
            yield ToolResultEvent(decisions.result(request))
    finally:
        await events.aclose()
    if not decisions.has_entered(request):
        _warn(call, "tool", request.name, request.key, "middleware")
        async for event in run_tool(context, inside(call.agent, run_tool, end)):
            yield event


def come_through(call: Call, context: ExecuteToolContext) -> tuple[ExecuteToolContext, ToolRequest]:
    """Return the call that has come through the middlewares outside ours; one on record, with the tool that it was of."""
    request, decisions = call.tools.request(context.tool_use), call.tools.decisions
    decisions.enter(request)
    if context.tool is not tool_named(call.agent, request.name) and context.tool is not None:
        request = replace(request, name=context.tool.tool_name)  # a hook or middleware chose it
    name = decisions.name_of(request)
    if name == request.name or not decisions.is_on_record(request):
        return context, request
    _warn(call, "tool", name, request.key, "tool_use")
    tool_use: Any = {**context.tool_use, "name": name}
    return context.replace(tool=tool_named(call.agent, name), tool_use=tool_use), replace(request, name=name)


async def once_more(call: Call, request: ToolRequest) -> Events:
    """Return the result of a call that a middleware outside ours makes once more, though its last try is on record."""
    _warn(call, "tool", request.name, request.key, "middleware")
    yield ToolResultEvent(call.tools.decisions.result(request))
