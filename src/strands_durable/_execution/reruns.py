"""Finished tool calls that are made again on resume, because their effect lived in the process that is gone.

Before a call runs anything, every such call of its execution that the agents here have not made themselves is made again, in
the order in which they had ended, on the agent that had made it. Nothing is recorded of it: the recorded result is what counts,
what the repeated call does to state, messages and invocation state is put back, and hooks do not fire. A `durable.step`
inside it and an agent that it calls give what is on record of them.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from typing import Any

from strands import Agent

from .._calls.agent_call import Call
from .._calls.durable_call import CallContext, DurableCall
from .._calls.tool_steps import ToolRequest
from .._journal.sqlite.journal import Journal
from .._journal.sqlite.tool_rows import MadeBy, ToolRow, calls_of_run, finished_tools, input_of
from .._records.calls import CallRecord
from .._records.codec import encodable
from .._records.logs import safe_logger
from .._records.policy import ToolPolicy
from .._strands.agents import agent_behind, agents_beside, is_agent, policy_of
from .._strands.orchestrators import adapter_of
from .._strands.public_tools import lives_in_process, may_live_in_process
from .attached import lasting_agent, lasting_agents, options_of
from .repeated_call import FinishedCall, Repetition, forget_made, is_made_on, note_made, step_name

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]

_objects: weakref.WeakValueDictionary[tuple[str, str, int, int], Any] = weakref.WeakValueDictionary()
"""What makes a call here, by store, execution, run and the call's id."""


def forget() -> None:
    """Forget everything, as a new process would."""
    forget_made()
    _objects.clear()


def is_rerun(policy: ToolPolicy, tool: Any, given: Any) -> bool:
    """Say whether a finished call with this input is one to make again."""
    if policy.on_resume is None:
        return lives_in_process(tool, given)
    return policy.on_resume(given) if callable(policy.on_resume) else policy.on_resume == "rerun"


def note_rerun(call: Call, policy: ToolPolicy, tool: Any, request: ToolRequest) -> dict[str, Any] | None:
    """Return what is recorded of a call that another process is to make again; it was made here."""
    if tool is None or not _may_rerun(tool, policy):
        return None
    try:
        if not is_rerun(policy, tool, request.input):
            return None
    except Exception as error:  # what the tool gave is not lost for that; a resume asks again
        logger.warning("tool=<%s>, error=<%r> | on_resume raised", request.name, error)
    note_made(call.agent, step_name(call.execution_id, call.record, request.key))
    return {"input": request.input} if encodable(request.input) else None


def note_object(subject: Any, journal: Journal, record: CallRecord) -> None:
    """Remember which object makes a call here, or is given the end of it."""
    _objects[_place(journal, record.call_id)] = subject


def first(events: Events, subject: Any, call: DurableCall, invocation_state: Any) -> Events:
    """Return the events of a call that is about to run here, after what has to be made again before it."""
    note_object(subject, call.journal, call.record)
    if not any(_may_be_due(each, call.options.tool_policies, set()) for each in _involved(subject, call)):
        return events
    return _Reruns(call, invocation_state).before(events)


def _place(journal: Journal, call_id: int) -> tuple[str, str, int, int]:
    return str(journal.store.path), journal.execution_id, journal.run, call_id


def _involved(subject: Any, call: DurableCall) -> list[Any]:
    """Return what may have made calls in this run: what is called, and what a tool of a finished step has called."""
    is_begun = call.record.attempt > 1 or call.record.position > 0
    return [subject, *lasting_agents()] if is_begun else [subject]


def _may_be_due(subject: Any, policies: dict[str, ToolPolicy], seen: set[int]) -> bool:
    """Say whether an agent, or one inside it, has a tool with calls that are made again."""
    if id(subject) in seen:
        return False
    seen.add(id(subject))
    adapter = adapter_of(subject)
    if adapter is not None:
        parts = list(adapter.executors().values())
    elif is_agent(subject):
        tools, given = list(subject.tool_registry.registry.items()), _with_own(subject, policies)
        if any(_may_rerun(tool, policy_of(tool, name, given)) for name, tool in tools):
            return True
        parts = [agent_behind(tool) for _, tool in tools] + agents_beside(subject)
    else:
        return False
    return any(part is not None and _may_be_due(part, policies, seen) for part in parts)


def _may_rerun(tool: Any, policy: ToolPolicy) -> bool:
    if agent_behind(tool) is not None:  # its steps are the steps
        return False
    return may_live_in_process(tool) if policy.on_resume is None else policy.on_resume != "reuse"


def _with_own(agent: Agent, policies: dict[str, ToolPolicy]) -> dict[str, ToolPolicy]:
    """Return the policies that hold for the tools of an agent in a call with these."""
    own = options_of(agent)
    return policies if own is None else {**own.tool_policies, **policies}


class _Reruns:
    """What has to be made again before one call."""

    def __init__(self, call: DurableCall, invocation_state: Any) -> None:
        self._call = call
        self._state = invocation_state if isinstance(invocation_state, dict) else {}
        self._journal, self._policies = call.journal, call.options.tool_policies
        self._calls: dict[int, MadeBy] = {}
        self._records: dict[int, CallRecord] = {}

    async def before(self, events: Events) -> Events:
        """Make again what is due, then give the events."""
        try:
            rows = finished_tools(self._journal)
            self._calls = calls_of_run(self._journal) if rows else {}
            for row in rows:  # a tool that is not there yet may come with one of them
                await self._made_again(row)
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def _made_again(self, row: ToolRow) -> None:
        agent = self._wanted(row)
        if agent is None:
            return
        step = self._journal.step(row.step_id)
        given = input_of(self._journal, row, step)
        tool = agent.tool_registry.registry[row.name]
        policy = policy_of(tool, row.name, _with_own(agent, self._policies))
        if given is None:
            logger.warning(
                "execution_id=<%s>, tool=<%s>, step=<%s> | finished call cannot be repeated, its input is not on record",
                self._journal.execution_id, row.name, row.key,
            )  # fmt: skip
        else:
            repetition = Repetition(agent, tool, policy, self._past(row), step, given)
            try:
                is_due = is_rerun(policy, tool, given)
            except Exception as error:
                raise repetition.error(f"its on_resume raised {error!r}") from error
            if is_due:
                await repetition.run(self._state)

    def _past(self, row: ToolRow) -> FinishedCall:
        call = self._call
        context = CallContext(call.control, call.local, call.options)
        return FinishedCall(context, self._record(row.call_id))

    def _record(self, call_id: int) -> CallRecord:
        if call_id not in self._records:
            self._records[call_id] = self._journal.call(call_id)
        return self._records[call_id]

    def _wanted(self, row: ToolRow) -> Agent | None:
        """Return the agent that a finished call was made by, if it is here and the call may have to be made again on it."""
        agent = self._object(row.call_id)
        tool = agent.tool_registry.registry.get(row.name) if is_agent(agent) else None
        if tool is None or not _may_rerun(tool, policy_of(tool, row.name, _with_own(agent, self._policies))):
            return None
        name = step_name(self._journal.execution_id, self._record(row.call_id), row.key)
        return None if is_made_on(agent, name) else agent

    def _object(self, call_id: int) -> Any:
        """Return the agent or orchestrator that made a call, or that stands where it stood."""
        made_by, known = self._calls[call_id], _objects.get(_place(self._journal, call_id))
        if made_by.parent == 0:
            return known
        if made_by.member.startswith("@"):
            return known or lasting_agent(made_by.member[1:])
        parent = self._object(made_by.parent)
        adapter = adapter_of(parent)
        if adapter is not None:
            return adapter.executors().get(made_by.member)
        tool = parent.tool_registry.registry.get(made_by.member) if is_agent(parent) else None
        return agent_behind(tool)
