"""Finished tool calls that are repeated on resume, because their effect was lost with the previous process.

Before a call runs anything, every such tool call of its execution that the agents here have not made themselves is repeated,
in the order in which they ended, on the agent that made it. Nothing is recorded: the recorded result counts, changes by the
repeated call to state, messages and invocation state are undone, and hooks do not fire. A `durable.step` inside it and an
agent that it calls return what is on record of them.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from typing import Any

from strands import Agent

from .._calls.agent_call import Call
from .._calls.durable_call import CallContext, DurableCall
from .._calls.tool_steps import ToolRequest
from .._journal.port import Journal
from .._records import keys
from .._records.calls import CallMaker, CallRecord
from .._records.codec import encodable
from .._records.logs import safe_logger
from .._records.outcomes import ModelAnswer, ToolOutcome
from .._records.policy import ToolPolicy
from .._records.steps import FinishedTool, StepRecord
from .._strands.agents import agent_behind, agents_beside, is_agent, policy_of
from .._strands.orchestrators import adapter_of
from .._strands.public_tools import lives_in_process, may_live_in_process
from .attached import lasting_agent, lasting_agents, options_of
from .repeated_call import FinishedCall, Repetition, forget_made, is_made_on, note_made, step_name

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]

_objects: weakref.WeakValueDictionary[tuple[str, str, int, int], Any] = weakref.WeakValueDictionary()
"""The object that makes a call here, by store, execution, run and call id."""


def forget() -> None:
    """Forget everything, as a new process would."""
    forget_made()
    _objects.clear()


def is_rerun(policy: ToolPolicy, tool: Any, given: Any) -> bool:
    """Return True if a finished call with this input must be repeated."""
    if policy.on_resume is None:
        return lives_in_process(tool, given)
    return policy.on_resume(given) if callable(policy.on_resume) else policy.on_resume == "rerun"


def note_rerun(call: Call, policy: ToolPolicy, tool: Any, request: ToolRequest) -> dict[str, Any] | None:
    """Return what to record of a call, made here, that another process must repeat."""
    if tool is None or not _may_rerun(tool, policy):
        return None
    try:
        if not is_rerun(policy, tool, request.input):
            return None
    except Exception as error:  # that must not lose the tool's result; a resume asks again
        logger.warning("tool=<%s>, error=<%r> | on_resume raised", request.name, error)
    note_made(call.agent, step_name(call.execution_id, call.record, request.key))
    return {"input": request.input} if encodable(request.input) else None


def note_object(subject: Any, journal: Journal, record: CallRecord) -> None:
    """Remember which object makes a call here, or gets its recorded end."""
    _objects[_place(journal, record.call_id)] = subject


def first(events: Events, subject: Any, call: DurableCall, invocation_state: Any) -> Events:
    """Return the events of a call that is about to run here, after the tool calls that must be repeated first."""
    note_object(subject, call.journal, call.record)
    if not any(_may_be_due(each, call.options.tool_policies, set()) for each in _involved(subject, call)):
        return events
    return _Reruns(call, invocation_state).before(events)


def _place(journal: Journal, call_id: int) -> tuple[str, str, int, int]:
    return journal.store_path, journal.execution_id, journal.run, call_id


def _involved(subject: Any, call: DurableCall) -> list[Any]:
    """Return the objects that may have made calls in this run: the subject, and what tools of finished steps called."""
    is_begun = call.record.attempt > 1 or call.record.position > 0
    return [subject, *lasting_agents()] if is_begun else [subject]


def _may_be_due(subject: Any, policies: dict[str, ToolPolicy], seen: set[int]) -> bool:
    """Return True if an agent, or one inside it, has a tool whose calls may be repeated."""
    if id(subject) in seen:
        return False
    seen.add(id(subject))
    if is_agent(subject):
        tools, given = list(subject.tool_registry.registry.items()), _with_own(subject, policies)
        if any(_may_rerun(tool, policy_of(tool, name, given)) for name, tool in tools):
            return True
        parts = [agent_behind(tool) for _, tool in tools] + agents_beside(subject)
    else:
        adapter = adapter_of(subject)
        parts = [] if adapter is None else list(adapter.executors().values())
    return any(part is not None and _may_be_due(part, policies, seen) for part in parts)


def _may_rerun(tool: Any, policy: ToolPolicy) -> bool:
    if agent_behind(tool) is not None:  # the agent's own tool calls are repeated
        return False
    return may_live_in_process(tool) if policy.on_resume is None else policy.on_resume != "reuse"


def _with_own(agent: Agent, policies: dict[str, ToolPolicy]) -> dict[str, ToolPolicy]:
    """Return the policies for the tools of an agent in a call with these policies."""
    own = options_of(agent)
    return policies if own is None else {**own.tool_policies, **policies}


class _Reruns:
    """The tool calls to repeat before one call."""

    def __init__(self, call: DurableCall, invocation_state: Any) -> None:
        self._call = call
        self._state = invocation_state if isinstance(invocation_state, dict) else {}
        self._journal, self._policies = call.journal, call.options.tool_policies
        self._calls: dict[int, CallMaker] = {}
        self._records: dict[int, CallRecord] = {}

    async def before(self, events: Events) -> Events:
        """Repeat what is due, then yield the events."""
        try:
            rows = self._journal.finished_tools()
            self._calls = self._journal.makers() if rows else {}
            for row in rows:  # one of them may load a tool that is still missing
                await self._made_again(row)
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def _made_again(self, row: FinishedTool) -> None:
        agent = self._wanted(row)
        if agent is None:
            return
        step = self._journal.step(row.step_id)
        given = self._input(row, step)
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

    def _input(self, row: FinishedTool, step: StepRecord) -> Any:
        """Return the input of a finished tool call; None if it is not on record any more.

        A call that is to be repeated has it in its outcome. Else it is in the answer that asked for the call.
        """
        if step.result is None:
            return None
        rerun = ToolOutcome.from_json(step.result).rerun
        if rerun is not None:
            return rerun["input"]
        ordinal, index = keys.place_of(row.key)
        answers = self._journal.latest(row.call_id, f"{ordinal:06d}/model~").values()
        for found in reversed([answer for answer in answers if answer.result]):
            content = ModelAnswer.from_json(found.result).message["content"]
            if found.status == "done" and index < len(content) and "toolUse" in content[index]:
                return content[index]["toolUse"]["input"]
        return None

    def _past(self, row: FinishedTool) -> FinishedCall:
        call = self._call
        context = CallContext(call.control, call.local, call.options)
        return FinishedCall(context, self._record(row.call_id))

    def _record(self, call_id: int) -> CallRecord:
        if call_id not in self._records:
            self._records[call_id] = self._journal.call(call_id)
        return self._records[call_id]

    def _wanted(self, row: FinishedTool) -> Agent | None:
        """Return the agent that made a finished call, if it is here and may have to repeat the call."""
        agent = self._object(row.call_id)
        tool = agent.tool_registry.registry.get(row.name) if is_agent(agent) else None
        if tool is None or not _may_rerun(tool, policy_of(tool, row.name, _with_own(agent, self._policies))):
            return None
        name = step_name(self._journal.execution_id, self._record(row.call_id), row.key)
        return None if is_made_on(agent, name) else agent

    def _object(self, call_id: int) -> Any:
        """Return the agent or orchestrator that made a call, or the one in its place now."""
        maker, known = self._calls[call_id], _objects.get(_place(self._journal, call_id))
        if maker.parent == 0:
            return known
        if maker.member.startswith("@"):
            return known or lasting_agent(maker.member[1:])
        parent = self._object(maker.parent)
        adapter = adapter_of(parent)
        if adapter is not None:
            return adapter.executors().get(maker.member)
        tool = parent.tool_registry.registry.get(maker.member) if is_agent(parent) else None
        return agent_behind(tool)
