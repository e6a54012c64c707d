"""One call of an agent from its first line to its last: restore it, run it, record its end. What is decided: `invocation`."""

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
    Interrupt,
    agent_behind,
    has_session,
    is_interrupted,
    knows_interrupt,
    output_model,
    passes_on_interrupts,
    wait_for_answers,
)
from .._strands.segments import Segments
from .admission import RaiseRecorded, Resume, ResumeWithAnswers, ReturnRecorded, Start
from .invocation import Events, Invocation, responses
from .resolver import CallResolver

logger = safe_logger(__name__)

running_agents: weakref.WeakKeyDictionary[Agent, Call] = weakref.WeakKeyDictionary()
"""The durable call that each agent is in."""
segments: weakref.WeakKeyDictionary[Agent, Segments] = weakref.WeakKeyDictionary()
"""And its segments."""
_uncounted: weakref.WeakKeyDictionary[Agent, tuple[AgentTracker, int, Metrics]] = weakref.WeakKeyDictionary()
"""The last call of an agent that has not ended, and its metrics before it: Strands may still count when it closes the call."""
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
            "execution_id=<%s>, call=<%s#%d>, phase=<%s>, attempt=<%d> | going on",
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
        """Have a swarm carry what this turn of it had changed."""
        adapter = None if self._context.outer is None else self._context.outer.adapter
        parts = {} if adapter is None else self._journal.head(record.call_id)[1]
        if adapter is not None and "turn" in parts:
            adapter.take_turn(decode(parts["turn"]))

    def _suspended(self, record: CallRecord) -> Call | None:
        """Return the call if it was suspended on this very object, and nobody has owned the execution since."""
        call: Call | None = vars(self._agent).pop(_SUSPENDED, None)
        if call is None or call.record.call_id != record.call_id or record.parent != 0:
            return None
        before, now = call.journal.lease, self._journal.lease
        if (before.store.hash_key, before.row_id, before.fence + 1) != (now.store.hash_key, now.row_id, now.fence):
            return None
        call.control = self._context.control
        return call

    def _resumed(self, record: CallRecord, is_answered: bool) -> Call:
        """Put a recorded call's head in place, if the agent began with the same messages."""
        is_first = record.lineage == record.call_id and self._tracker.lineage is None and self._resolver.compares_base
        is_asked = is_answered or record.status is ExecutionStatus.SUSPENDED
        if is_first and not is_asked and not has_session(self._agent):
            base = messages.read(self._journal, record.lineage, record.base)
            change = fingerprints.base_change(base, self._agent.messages)
            if change is not None:
                self._drifted(f"call {record.position}", [change])
        call = Call.resume(self._agent, self._context, record)
        self._is_unchecked = True
        sessions.follow(self._agent)
        self._restore_helpers(record)
        return call

    def _count_anew(self, call: Call) -> None:
        """Count what the call has cost so far as a new process would; what this object has counted of it is taken back."""
        tracker, call_id = self._tracker, call.record.call_id
        _settle(self._agent)
        tracker.uncount(call_id, self._agent.event_loop_metrics)
        if call_id not in tracker.counted:
            call.recorded_metrics = RecordedMetrics(self._journal, call_id, call.progress)

    def _begin_pass(self, call: Call) -> bool:
        """The hooks of a call that goes on have run: is it still the agent that was recorded?"""
        if self._is_unchecked:
            self._is_unchecked = False
            last = self._journal.last_config(call.record)
            expected = None if last is None else fingerprints.with_loaded(last[1], call.tools.loaded())
            changes = [] if expected is None else fingerprints.changes(expected, fingerprints.config_of(self._agent))
            if last is not None and changes:
                self._drifted(last[0], changes)
                if (
                    self._context.options.on_drift == "rerun" and call.is_taken_up
                ):  # an answer that was asked about stays
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
                call.check()  # it may have been us
            self._end(call, event["result"])

    def _end(self, call: Call, result: AgentResult) -> None:
        phase: Phase = "waiting" if result.stop_reason == "interrupt" else "done"
        call.end(phase, _recorded_result(self._agent, result))
        self._resolver.ended(call.record)
        self._is_over = phase == "done"
        if phase == "waiting":
            vars(self._agent)[_SUSPENDED] = call  # on the agent itself, so that it does not outlive it

    def _forget(self) -> None:
        self._tracker.forget()

    # Returning what is recorded

    def returned(self, record: CallRecord, given: dict[str, Any]) -> AgentResult:
        """Put the agent where a recorded call left it, and return what the call had returned."""
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
            interrupts=[Interrupt(**found) for found in result.interrupts] if result.interrupts else None,
            structured_output=None if structured is None or model is None else model.model_validate(structured),
        )

    def restored(self, record: CallRecord) -> None:
        """Put the agent where a recorded call left it, and count what the call cost."""
        self.counted(record, self.put_back(record).progress)

    def recall(self, member: str) -> None:
        """Put an agent as it was built where its last call in this execution left it; later ones put it back themselves."""
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
        """Put the agent where a recorded call left it, or has come to."""
        call = Call.resume(self._agent, self._context, record)
        if record.status is ExecutionStatus.FAILED:
            call.restore_closing()
        self._restore_helpers(record)
        return call

    def counted(self, record: CallRecord, progress: CallProgress | None = None) -> None:
        """Add what a recorded call cost to the agent's metrics, once; ``progress`` is where it ended, if that is known."""
        tracker, metrics = self._tracker, self._agent.event_loop_metrics
        _settle(self._agent)
        if record.status is not ExecutionStatus.FAILED:  # it may have come further elsewhere
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
        """Return where a recorded call ended; an earlier try of one that has not failed may have, and left its closing."""
        is_failed = record.status is ExecutionStatus.FAILED
        return self._journal.closing(record.call_id) if is_failed else self._journal.head(record.call_id)[0]

    def _restore_helpers(self, record: CallRecord) -> None:
        """Put the agents behind this one's tools where their calls in recorded steps left them: those are not made again."""
        for tool in list(self._agent.tool_registry.registry.values()):
            agent = agent_behind(tool)
            if agent is None:
                continue
            calls = self._journal.calls_of_member(record.lineage, tool.tool_name)
            helper = AgentInvocation(agent, self._context, self._resolver, None)
            for call in calls:
                if call.status is not ExecutionStatus.RUNNING:
                    helper.counted(call)
            # It may stand behind tools of several agents, or make root calls, too: it remembers its last call of all.
            if calls and calls[-1].call_id > helper._tracker.last:
                helper.put_back(calls[-1])
                if passes_on_interrupts(self._agent, self._journal.answers(calls[-1].call_id)):
                    wait_for_answers(agent)  # the answers come again, through the tool


def _settle(agent: Agent) -> None:
    """Find out what the last call of an agent has added to its metrics, before anything else is counted."""
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
    """Return what a call cost, as Strands counts it; a result that somebody made himself may have no count."""
    found = getattr(result.metrics, "accumulated_usage", None)
    return dict(found) if isinstance(found, dict) and encodable(found) else {}
