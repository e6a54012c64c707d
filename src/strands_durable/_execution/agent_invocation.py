"""One call of an agent from start to end: restore it, run it, record its end. Decisions are in `invocation`."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from strands import Agent
from strands.agent import AgentResult

from .._calls.agent_call import Call
from .._calls.durable_call import CallContext
from .._calls.local_execution import AgentTracker
from .._calls.metrics import Metrics, RecordedMetrics
from .._journal import messages
from .._records.calls import CallProgress, CallRecord
from .._records.codec import decode, encodable
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.outcomes import AgentCallResult
from .._records.phases import Phase
from .._records.questions import answers_in
from .._strands import fingerprints, sessions
from .._strands.agents import (
    AgentResultEvent,
    agent_behind,
    has_session,
    is_interrupted,
    knows_interrupt,
    output_model,
    own_interrupt,
    passes_on_interrupts,
    wait_for_answers,
)
from .._strands.segments import Segments
from .admission import RaiseRecorded, Resume, ResumeWithAnswers, ReturnRecorded, Start
from .invocation import Events, Invocation, responses
from .resolver import CallResolver

logger = safe_logger(__name__)

running_agents: weakref.WeakKeyDictionary[Agent, Call] = weakref.WeakKeyDictionary()
"""The current durable call of each agent."""
segments: weakref.WeakKeyDictionary[Agent, Segments] = weakref.WeakKeyDictionary()
"""The segments of that call."""
_uncounted: weakref.WeakKeyDictionary[Agent, tuple[AgentTracker, int, Metrics]] = weakref.WeakKeyDictionary()
"""An agent's last unfinished call, and the metrics before it: Strands may still count while it closes the call."""
_SUSPENDED = "_strands_durable_suspended"


class AgentInvocation(Invocation[Call]):
    """A call of an agent by an owner of its execution."""

    def __init__(self, agent: Agent, context: CallContext, resolver: CallResolver, original: Any) -> None:
        super().__init__(agent, context, resolver, original)
        self._agent, self._tracker = agent, context.local.tracker(agent)
        self._is_over = self._is_unchecked = False

    # Opening

    def _is_interrupted(self) -> bool:
        return is_interrupted(self._agent)

    def _config(self) -> fingerprints.Config:
        return fingerprints.config_of(self._agent)

    def _opened(
        self, admission: Start | Resume | ResumeWithAnswers, prompt: Any, given: dict[str, Any]
    ) -> tuple[Call, Any]:
        agent, journal = self._agent, self._journal
        if isinstance(admission, Start):
            return Call.begin(agent, self._context, self._resolver.address(), prompt), prompt
        record = admission.record
        self._take_turn(record)
        suspended = self._suspended(record)
        call = suspended or self._resumed(record, answers_in(prompt) is not None)
        call.take_up(admission.answers if isinstance(admission, ResumeWithAnswers) else None)
        if suspended is None:
            self._count_anew(call)
        logger.info(
            "execution_id=<%s>, call=<%s#%d>, phase=<%s>, attempt=<%d> | resuming",
            journal.execution_id, record.scope, record.position, call.progress.resume, call.record.attempt,
        )  # fmt: skip
        if is_interrupted(agent):
            answers = journal.answers(record.call_id, record.input)
            return call, responses({name: answers[name] for name in answers if knows_interrupt(agent, name)})
        return call, record.input if call.progress.resume == "ready" else None

    def _over(self, admission: ReturnRecorded | RaiseRecorded, given: dict[str, Any]) -> Events:
        self._take_turn(admission.record)
        return super()._over(admission, given)

    def _take_turn(self, record: CallRecord) -> None:
        """Restore in a swarm what this turn had changed."""
        adapter = None if self._context.outer is None else self._context.outer.adapter
        parts = {} if adapter is None else self._journal.head(record.call_id)[1]
        if adapter is not None and "turn" in parts:
            adapter.take_turn(decode(parts["turn"]))

    def _suspended(self, record: CallRecord) -> Call | None:
        """Return the call if it was suspended on this object, and the execution had no other owner since."""
        call: Call | None = vars(self._agent).pop(_SUSPENDED, None)
        if call is None or call.record.call_id != record.call_id or record.parent != 0:
            return None
        if not self._context.control.lease.follows(call.control.lease):
            return None
        call.take_control(self._context.control)
        return call

    def _resumed(self, record: CallRecord, is_answered: bool) -> Call:
        """Restore a recorded call's head, if the agent began with the same messages."""
        is_first = record.lineage == record.call_id and self._tracker.lineage is None and self._resolver.compares_base
        is_asked = is_answered or record.status is ExecutionStatus.SUSPENDED
        if is_first and not is_asked and not has_session(self._agent):
            base = messages.read(self._journal, record.lineage, record.base)
            change = fingerprints.base_change(base, self._agent.messages)
            if change is not None:
                self._drifted(record, f"call {record.position}", [change])
        call = Call.resume(self._agent, self._context, record)
        self._is_unchecked = True
        sessions.follow(self._agent)
        self._restore_helpers(record)
        return call

    def _count_anew(self, call: Call) -> None:
        """Count what the call has cost so far as a new process would; first subtract what this object counted of it."""
        tracker, call_id = self._tracker, call.record.call_id
        _settle(self._agent)
        tracker.uncount(call_id, self._agent.event_loop_metrics)
        if call_id not in tracker.counted:
            call.recorded_metrics = RecordedMetrics(self._journal, call_id, call.progress)

    def _begin_pass(self, call: Call) -> bool:
        """Check, after the hooks of a resumed call have run, that the agent is still the recorded one."""
        if self._is_unchecked:
            self._is_unchecked = False
            last = self._journal.last_config(call.record)
            expected = None if last is None else fingerprints.with_loaded(last[1], call.tools.loaded())
            changes = [] if expected is None else fingerprints.changes(expected, fingerprints.config_of(self._agent))
            if last is not None and changes:
                self._drifted(call.record, last[0], changes)
                if (
                    self._context.options.on_drift == "rerun" and call.is_resumed
                ):  # an answer that a person was asked about stays
                    call.models.give_up()
        return call.pass_begins()

    # Running

    def _enter(self, call: Call, given: dict[str, Any]) -> dict[str, Any]:
        agent = self._agent
        running_agents[agent] = call
        begin_pass = partial(self._begin_pass, call)
        segments[agent] = Segments(agent, self._context.options.segment_turns, given.get("limits"), begin_pass)
        _settle(agent)
        self._metrics = Metrics(agent.event_loop_metrics)
        self._tracker.counted.add(call.record.call_id)
        return {**given, "limits": segments[agent].limits}

    def _close(self, call: Call) -> None:
        running_agents.pop(self._agent, None)
        segments.pop(self._agent, None)
        call.history.forget_copies()
        if not self._is_over:
            _uncounted[self._agent] = (self._tracker, call.record.call_id, self._metrics)

    def _seen(self, call: Call, event: Any) -> None:
        if isinstance(event.get("result"), AgentResult):
            if event["result"].stop_reason == "cancelled":
                call.check()  # we may have cancelled it
            self._end(call, event["result"])

    def _end(self, call: Call, result: AgentResult) -> None:
        phase: Phase = "waiting" if result.stop_reason == "interrupt" else "done"
        call.end(phase, _recorded_result(self._agent, result))
        self._resolver.ended(call.record)
        self._is_over = phase == "done"
        if phase == "waiting" and call.outer is None:
            vars(self._agent)[_SUSPENDED] = call  # on the agent itself, so that the call does not outlive it

    def _forget(self) -> None:
        self._tracker.forget()

    def _result_event(self, result: Any) -> dict[str, Any]:
        return AgentResultEvent(result).as_dict()

    # Returning what is recorded

    def returned(self, record: CallRecord, given: dict[str, Any]) -> AgentResult:
        """Restore the agent to the end of a recorded call, and return what the call had returned."""
        self.restored(record)
        if given.get("invocation_state") is not None:
            shared = self._context.is_in_node
            self._tracker.head.restore_invocation_state(given["invocation_state"], shared=shared)
        result = AgentCallResult.from_json(record.result)
        message = self._agent.messages[result.last] if result.last is not None else result.message
        structured = result.structured_output
        model = given.get("structured_output_model") or output_model(self._agent)
        return AgentResult(
            stop_reason=result.stop_reason,
            message=message,
            metrics=self._agent.event_loop_metrics,
            state=result.state,
            interrupts=[own_interrupt(self._agent, found) for found in result.interrupts]
            if result.interrupts
            else None,
            structured_output=None if structured is None or model is None else model.model_validate(structured),
        )

    def restored(self, record: CallRecord) -> None:
        """Restore the agent to the end of a recorded call, and count what the call cost."""
        self.counted(record, self.put_back(record).progress)

    def recall(self, member: str) -> None:
        """Restore a newly built agent to the end of its last call in this execution; later calls restore it themselves."""
        calls = self._journal.calls_by(member)
        over = [call for call in calls if call.status is not ExecutionStatus.RUNNING]
        if self._tracker.last or not over:
            return
        base = messages.read(self._journal, calls[0].lineage, calls[0].base)
        if fingerprints.base_change(base, self._agent.messages) is None:
            for call in over:
                self.counted(call)
            self.put_back(over[-1])

    def put_back(self, record: CallRecord) -> Call:
        """Restore the agent to the end of a recorded call, or to its last progress."""
        call = Call.resume(self._agent, self._context, record)
        if record.status is ExecutionStatus.FAILED:
            call.restore_closing()
        self._restore_helpers(record)
        return call

    def counted(self, record: CallRecord, progress: CallProgress | None = None) -> None:
        """Add what a recorded call cost to the agent's metrics, once; ``progress`` is where it ended, if known."""
        tracker, metrics = self._tracker, self._agent.event_loop_metrics
        _settle(self._agent)
        if record.status is not ExecutionStatus.FAILED:  # it may have progressed elsewhere
            tracker.uncount(record.call_id, metrics)
        if record.call_id not in tracker.counted:
            tracker.counted.add(record.call_id)
            before = Metrics(metrics)
            RecordedMetrics(self._journal, record.call_id, progress or self._end_of(record)).restore(
                metrics, current=None
            )
            if record.status is not ExecutionStatus.COMPLETED:
                tracker.count(record.call_id, before.added(metrics))

    def _end_of(self, record: CallRecord) -> CallProgress:
        """Return where a recorded call ended; if it has not failed, its closing may be that of an earlier attempt."""
        is_failed = record.status is ExecutionStatus.FAILED
        return self._journal.closing(record.call_id) if is_failed else self._journal.head(record.call_id)[0]

    def _restore_helpers(self, record: CallRecord) -> None:
        """Restore the agents behind this one's tools to the end of their calls in recorded steps, which are not repeated."""
        for tool in list(self._agent.tool_registry.registry.values()):
            agent = agent_behind(tool)
            if agent is None:
                continue
            calls = self._journal.calls_of_member(record.lineage, tool.tool_name)
            helper = AgentInvocation(agent, self._context, self._resolver, None)
            for call in calls:
                if call.status is not ExecutionStatus.RUNNING:
                    helper.counted(call)
            # It may be behind tools of several agents, or make root calls, too: the last of all its calls counts.
            if calls and calls[-1].call_id > helper._tracker.last:
                helper.put_back(calls[-1])
                if passes_on_interrupts(self._agent, self._journal.answers(calls[-1].call_id)):
                    wait_for_answers(agent)  # the tool passes the answers on again


def _settle(agent: Agent) -> None:
    """Determine what an agent's last call added to its metrics, before anything else is counted."""
    if agent in _uncounted:
        tracker, call_id, before = _uncounted.pop(agent)
        tracker.count(call_id, before.added(agent.event_loop_metrics))


def _recorded_result(agent: Agent, result: AgentResult) -> AgentCallResult:
    places = [index for index, message in enumerate(agent.messages) if message is result.message]
    structured = result.structured_output
    return AgentCallResult(
        stop_reason=result.stop_reason,
        last=places[-1] if places else None,
        message=None if places else result.message,
        state={key: value for key, value in (result.state or {}).items() if encodable(value)},
        interrupts=[found.to_dict() for found in result.interrupts] if result.interrupts else None,
        structured_output=None if structured is None else structured.model_dump(mode="json"),
        usage=_usage(result),
    )


def _usage(result: AgentResult) -> dict[str, int]:
    """Return what a call cost, as Strands counts it; a result built by user code may have no count."""
    found = getattr(result.metrics, "accumulated_usage", None)
    return dict(found) if isinstance(found, dict) and encodable(found) else {}
