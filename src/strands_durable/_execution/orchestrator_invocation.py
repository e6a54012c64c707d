"""One call of a Graph or Swarm from its first line to its last: decide, put it where it stood, run, record the end."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from strands import Agent
from strands.agent import AgentResult
from strands.multiagent.base import MultiAgentBase, MultiAgentResult, NodeResult, Status
from strands.telemetry import EventLoopMetrics

from .._calls.control import ExecutionControl
from .._calls.head import Head
from .._calls.local_execution import Session, Site
from .._calls.orchestrator_call import OrchestratorCall, has_returned_failure
from .._journal import messages
from .._records.calls import CallRecord
from .._records.exceptions import revive
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.options import Options
from .._records.questions import answers_in
from .._records.steps import StepRecord
from .._strands import fingerprints
from .._strands.agents import Interrupt, is_agent
from .._strands.orchestrators import Contact, Visit, contact_of
from ..errors import DurableError
from . import reruns
from .admission import Answer, Raise, Return, Start
from .agent_invocation import LEFT, Invocation, is_elsewhere, report_drift
from .event_stream import conduct, only
from .recorded_returns import say_returned
from .resolver import Desk

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]

conducted: weakref.WeakKeyDictionary[Any, OrchestratorCall] = weakref.WeakKeyDictionary()
"""The durable call that each orchestrator is in."""


class Orchestration:
    """A call of an orchestrator by an owner of its execution."""

    def __init__(
        self, contact: Contact, original: Any, options: Options, control: ExecutionControl, session: Session, desk: Desk
    ) -> None:
        self._contact, self._original, self._desk = contact, original, desk
        self._options, self._control, self._journal, self._session = options, control, control.journal, session

    def open(self, prompt: Any, given: dict[str, Any]) -> Events:
        """Decide what the call means, and return its events."""
        admission = self._desk.decide(prompt)
        is_new = isinstance(admission, Start)
        is_unanswered = is_new and self._contact.is_interrupted() and answers_in(prompt) is None
        if admission is None or is_unanswered:  # nobody asked, or it waits for the answers of another execution
            events: Events = self._original(prompt, **given)
            return events
        if isinstance(admission, Return):
            say_returned(self._journal, admission.record, self._contact.topology)
            reruns.note_object(self._contact.me, self._journal, admission.record)
            result = self.returned(admission.record, given.get("invocation_state"))
            self._returned(admission.record)
            return only({"result": result, "recorded": True})
        if isinstance(admission, Raise):
            reruns.note_object(self._contact.me, self._journal, admission.record)
            self.returned(admission.record)
            self._desk.raised(admission.record, ran_here=False)
            raise admission.error
        call, task = self._opened(admission, prompt, given)
        return self._run(call, task, given)

    def _returned(self, record: CallRecord) -> None:
        """Take note that a recorded call was returned; one that failed may be asked for again."""
        if record.status is ExecutionStatus.FAILED:
            self._desk.raised(record, ran_here=False)
        else:
            self._desk.ended(record)

    # Opening

    def _opened(self, admission: Any, prompt: Any, given: dict[str, Any]) -> tuple[OrchestratorCall, Any]:
        """Return the call to run, and what Strands is to be given as its task."""
        contact, journal, outer = self._contact, self._journal, self._desk.outer
        if isinstance(admission, Start):
            begin = OrchestratorCall.begin
            return begin(contact, self._control, self._session, self._options, outer, self._desk.seat(), prompt), prompt
        record = admission.record
        self._refuse_drift(record)
        call = self._call(record)
        rows, parts = call.load()
        call.take_up(admission.answers if isinstance(admission, Answer) else None)
        if "invocation" in parts:
            Head.put_back(parts["invocation"], given["invocation_state"], shared=outer is not None)
        self._put_base(parts)
        if "carried" not in parts:
            return call, record.input
        is_asked = contact.is_asked(parts["carried"])  # then nothing but what asked runs
        tries_again = record.status is ExecutionStatus.FAILED
        if tries_again:
            parts["carried"]["time"] = 0  # a run that was out of time has time again
        ahead = call.ahead(parts["carried"], tries_again=tries_again)
        visits = self._visits(rows, is_over=is_asked, tries_again=tries_again)
        contact.restore(record.input, visits, parts["carried"], ahead, "executing", call.unfinished())
        logger.info(
            "execution_id=<%s>, call=<%s#%d>, nodes=<%s>, attempt=<%d> | going on",
            journal.execution_id, record.scope, record.position, ", ".join(ahead), call.record.attempt,
        )  # fmt: skip
        if not contact.is_interrupted():
            return call, record.input
        return call, [
            {"interruptResponse": {"interruptId": interrupt_id, "response": answer}}
            for interrupt_id, answer in journal.answers(record.call_id, record.input).items()
            if contact.knows_interrupt(interrupt_id)
        ]

    def _put_base(self, parts: dict[str, Any]) -> None:
        """Put in place what the orchestrator's own session had put in place before the call, not what it saved since."""
        self._contact.forget_session()
        if "base" in parts:
            self._contact.me.deserialize_state(parts["base"])

    def _call(self, record: CallRecord) -> OrchestratorCall:
        return OrchestratorCall(self._contact, self._control, self._session, self._options, self._desk.outer, record)

    def _refuse_drift(self, record: CallRecord) -> None:
        changes = fingerprints.topology_changes(self._journal.config(record.config_id), self._contact.topology())
        if changes:
            report_drift(self._options.on_drift, self._journal, f"call {record.position}", changes)

    # Running

    def _run(self, call: OrchestratorCall, task: Any, given: dict[str, Any]) -> Events:
        start = partial(self._start, call, task, given)
        return conduct(call, start, partial(self._seen, call), partial(self._failed, call), self._close)

    def _start(self, call: OrchestratorCall, task: Any, given: dict[str, Any]) -> Events:
        conducted[self._contact.me] = call
        self._desk.began(call.record)
        events: Events = self._original(task, **given)
        return reruns.first(events, self._contact.me, call, given.get("invocation_state"))

    def _close(self) -> None:
        conducted.pop(self._contact.me, None)

    def _seen(self, call: OrchestratorCall, event: Any) -> None:
        if isinstance(event.get("result"), MultiAgentResult):
            call.check()
            self._end(call, event["result"])

    def _end(self, call: OrchestratorCall, result: MultiAgentResult) -> None:
        interrupts = [found.to_dict() for found in result.interrupts] if result.interrupts else None
        usage = dict(result.accumulated_usage)
        recorded = {"status": result.status.value, "interrupts": interrupts, "usage": usage}
        if result.status is Status.FAILED:
            call.end_failed(_cause(self._contact, result), recorded)
            self._desk.raised(call.record)
        else:
            call.end("waiting" if result.status is Status.INTERRUPTED else "done", recorded)
            self._desk.ended(call.record)

    def _failed(self, call: OrchestratorCall, error: BaseException) -> None:
        """Record a failure if it is one: a lost lease, a broken store or the end of the process is not."""
        if call.is_cancelled(error) or call.progress.phase in ("done", "waiting", "failed"):
            return
        if is_elsewhere(error):
            return
        self._desk.raised(call.record)
        if not isinstance(error, Exception) or isinstance(error, LEFT):
            return
        try:
            call.end_failed(error)
        except DurableError as unrecorded:
            logger.warning("execution_id=<%s>, error=<%s> | failure not recorded", call.execution_id, unrecorded)

    # Returning what is recorded

    def returned(self, record: CallRecord, invocation_state: dict[str, Any] | None = None) -> Any:
        """Put the orchestrator where a recorded call left it, and return what the call had returned."""
        call = self._call(record)
        rows, parts = call.load()
        if invocation_state is not None and "invocation" in parts:
            Head.put_back(parts["invocation"], invocation_state, shared=record.parent != 0)
        recorded = record.result or {"status": "failed", "interrupts": None}
        self._put_base(parts)
        if "carried" in parts:
            visits = self._visits(rows, is_over=True, tries_again=False)
            self._contact.restore(record.input, visits, parts["carried"], None, recorded["status"])
        return self._contact.over(recorded["status"], [Interrupt(**found) for found in recorded["interrupts"] or ()])

    def _visits(self, rows: list[StepRecord], *, is_over: bool, tries_again: bool) -> list[Visit]:
        """Return the finished visits in the order in which they ended; what is tried again is not among them."""
        latest = {row.name: row for row in rows}

        def counts(row: StepRecord) -> bool:
            is_tried_again = row is latest[row.name] and (tries_again or not (is_over or has_returned_failure(row)))
            return row.status == "failed" and not is_tried_again and "status" in row.result

        by_key = {row.key: row for row in rows}
        wanted = [
            row
            for row in by_key.values()
            if row.status == "done"
            or counts(row)
            or (row.status == "interrupted" and is_over and "status" in row.result)
        ]
        wanted.sort(key=lambda row: (row.ended_at or 0.0, row.step_id))
        last = {row.name: row for row in wanted}
        return [self._visit(row, is_last=row is last[row.name]) for row in wanted]

    def _visit(self, row: StepRecord, *, is_last: bool) -> Visit:
        found = row.result
        result = NodeResult(
            result=self._result(row, is_last),
            execution_time=found["time"],
            status=Status(found["status"]),
            accumulated_usage=found["usage"],
            accumulated_metrics=found["metrics"],
            execution_count=found["count"],
        )
        if result.status is Status.INTERRUPTED:
            result.interrupts = list(getattr(result.result, "interrupts", None) or [])
        return Visit(row.name, result, is_ordered=row.error is None)

    def _result(self, row: StepRecord, is_last: bool) -> Any:
        """Return what a node's visit had returned or raised, and have its agent remember it."""
        executor = self._contact.executors().get(row.name)
        record = None if row.result["call"] is None else self._journal.call(row.result["call"])
        contact = contact_of(executor) if isinstance(executor, MultiAgentBase) else None
        value: Any = None
        if record is not None and record.kind == "agent" and is_agent(executor):
            value = self._agent_result(executor, record, is_last)
        elif record is not None and contact is not None and record.kind == contact.kind:
            inner = Orchestration(contact, None, self._options, self._control, self._session, self._desk)
            value = inner.returned(record) if is_last else None
        elif record is not None:
            value = self._gone_result(record)
        elif row.error is None:
            value = NodeResult.from_dict({"result": row.result["result"], "status": row.result["status"]}).result
        return value if row.error is None else revive(row.error)

    def _gone_result(self, record: CallRecord) -> Any:
        """Return what a finished call had returned of which the node is no longer there, or is something else."""
        found = record.result
        if found is None:
            return None
        if record.kind != "agent":
            return MultiAgentResult(status=Status(found["status"]), accumulated_usage=found["usage"])
        message = found["message"]
        if found["last"] is not None:
            ranges = self._journal.head(record.call_id)[0].ranges
            message = messages.read(self._journal, record.lineage, ranges)[found["last"]]
        return AgentResult(found["stop_reason"], message, EventLoopMetrics(), found["state"])

    def _agent_result(self, agent: Agent, record: CallRecord, is_last: bool) -> Any:
        site = Site(agent, self._control, self._session, self._options, self._desk.outer)
        invocation = Invocation(site, _Nowhere(), None)
        if not is_last:
            invocation.counted(record)
        elif record.status in (ExecutionStatus.COMPLETED, ExecutionStatus.SUSPENDED):
            return invocation.returned(record, {})
        else:
            invocation.restored(record)
        return None


class _Nowhere:
    """The desk of a call that is only looked at."""

    outer, compares_base = None, False

    def seat(self) -> Any:
        """Nothing begins here."""
        raise AssertionError

    def decide(self, prompt: Any) -> Any:
        """Nothing is decided here."""
        raise AssertionError

    def began(self, record: CallRecord) -> None:
        """Nothing comes after it."""

    def ended(self, record: CallRecord) -> None:
        """Nothing comes after it."""

    def raised(self, record: CallRecord, *, ran_here: bool = True) -> None:
        """Nothing comes after it."""


def _cause(contact: Contact, result: MultiAgentResult) -> Exception:
    """Return why an orchestrator that returned FAILED did so."""
    failed = [found.result for found in result.results.values() if isinstance(found.result, Exception)]
    return failed[-1] if failed else RuntimeError(f"{contact.kind} {contact.name!r} returned {result.status.value}")
