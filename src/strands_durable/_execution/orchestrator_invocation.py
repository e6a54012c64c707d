"""One call of a Graph or Swarm from start to end: restore it, run it, record its end."""

from __future__ import annotations

import weakref
from typing import Any

from strands import Agent
from strands.multiagent.base import MultiAgentBase, MultiAgentResult, NodeResult, Status

from .._calls.durable_call import CallContext
from .._calls.head import Head
from .._calls.orchestrator_call import OrchestratorCall, has_outcome, has_returned_failure
from .._records.calls import CallRecord
from .._records.exceptions import revive
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.outcomes import OrchestratorCallResult, VisitOutcome
from .._records.steps import StepRecord
from .._strands import fingerprints
from .._strands.agents import Interrupt, is_agent
from .._strands.events import MultiAgentResultEvent
from .._strands.orchestrators import OrchestratorAdapter, Visit, adapter_of
from .admission import Resume, ResumeWithAnswers, Start
from .agent_invocation import AgentInvocation
from .invocation import Invocation, responses
from .recorded_steps import recorded_result
from .resolver import CallResolver

logger = safe_logger(__name__)

running_orchestrators: weakref.WeakKeyDictionary[Any, OrchestratorCall] = weakref.WeakKeyDictionary()
"""The current durable call of each orchestrator."""


class OrchestratorInvocation(Invocation[OrchestratorCall]):
    """A call of an orchestrator by an owner of its execution."""

    def __init__(
        self, adapter: OrchestratorAdapter, context: CallContext, resolver: CallResolver, original: Any
    ) -> None:
        super().__init__(adapter.me, context, resolver, original)
        self._adapter = adapter

    # Opening

    def _is_interrupted(self) -> bool:
        return self._adapter.is_interrupted()

    def _config(self) -> fingerprints.Config:
        return self._adapter.topology()

    def _opened(
        self, admission: Start | Resume | ResumeWithAnswers, prompt: Any, given: dict[str, Any]
    ) -> tuple[OrchestratorCall, Any]:
        adapter, journal = self._adapter, self._journal
        if isinstance(admission, Start):
            return OrchestratorCall.begin(adapter, self._context, self._resolver.address(), prompt), prompt
        record = admission.record
        self._refuse_drift(record)
        call = OrchestratorCall(self._adapter, self._context, record)
        rows, parts = call.load()
        call.take_up(admission.answers if isinstance(admission, ResumeWithAnswers) else None)
        if "invocation" in parts:
            Head.put_back(parts["invocation"], given["invocation_state"], shared=self._context.outer is not None)
        self._put_base(parts)
        if "carried" not in parts:
            return call, record.input
        is_asked = adapter.is_asked(parts["carried"])  # then only the nodes that asked run
        tries_again = record.status is ExecutionStatus.FAILED
        if tries_again:
            parts["carried"]["time"] = 0  # a run that timed out gets its full time again
        ahead = call.ahead(parts["carried"], tries_again=tries_again)
        visits = self._visits(rows, is_over=is_asked, tries_again=tries_again)
        adapter.restore(record.input, visits, parts["carried"], ahead, "executing", call.unfinished())
        logger.info(
            "execution_id=<%s>, call=<%s#%d>, nodes=<%s>, attempt=<%d> | resuming",
            journal.execution_id, record.scope, record.position, ", ".join(ahead), call.record.attempt,
        )  # fmt: skip
        if not adapter.is_interrupted():
            return call, record.input
        answers = journal.answers(record.call_id, record.input)
        return call, responses({name: answers[name] for name in answers if adapter.knows_interrupt(name)})

    def _put_base(self, parts: dict[str, Any]) -> None:
        """Restore what the orchestrator's own session had restored before the call, not what it saved since."""
        self._adapter.forget_session()
        if "base" in parts:
            self._adapter.me.deserialize_state(parts["base"])

    def _refuse_drift(self, record: CallRecord) -> None:
        changes = fingerprints.topology_changes(self._journal.config(record.config_id), self._adapter.topology())
        if changes:
            self._drifted(record, f"call {record.position}", changes)

    # Running

    def _enter(self, call: OrchestratorCall, given: dict[str, Any]) -> dict[str, Any]:
        running_orchestrators[self._adapter.me] = call
        return given

    def _close(self, call: OrchestratorCall) -> None:
        running_orchestrators.pop(self._adapter.me, None)

    def _seen(self, call: OrchestratorCall, event: Any) -> None:
        if isinstance(event.get("result"), MultiAgentResult):
            call.check()
            self._end(call, event["result"])

    def _end(self, call: OrchestratorCall, result: MultiAgentResult) -> None:
        interrupts = [found.to_dict() for found in result.interrupts] if result.interrupts else None
        usage = dict(result.accumulated_usage)
        recorded = OrchestratorCallResult(status=result.status.value, interrupts=interrupts, usage=usage)
        if result.status is Status.FAILED:
            call.end_failed(_cause(self._adapter, result), recorded)
            self._resolver.raised(call.record)
        else:
            call.end("waiting" if result.status is Status.INTERRUPTED else "done", recorded)
            self._resolver.ended(call.record)

    def _forget(self) -> None:
        """Do nothing: an orchestrator has no state outside its calls."""

    def _result_event(self, result: Any) -> dict[str, Any]:
        return MultiAgentResultEvent(result).as_dict()

    # Returning what is recorded

    def restored(self, record: CallRecord) -> None:
        """Restore the orchestrator to the end of a recorded call."""
        self.returned(record, {})

    def returned(self, record: CallRecord, given: dict[str, Any]) -> Any:
        """Restore the orchestrator to the end of a recorded call, and return what the call had returned."""
        call = OrchestratorCall(self._adapter, self._context, record)
        (rows, parts), invocation_state = call.load(), given.get("invocation_state")
        if invocation_state is not None and "invocation" in parts:
            Head.put_back(parts["invocation"], invocation_state, shared=record.parent != 0)
        recorded = OrchestratorCallResult.from_json(record.result)
        status = recorded.status or "failed"
        self._put_base(parts)
        if "carried" in parts:
            visits = self._visits(rows, is_over=True, tries_again=False)
            self._adapter.restore(record.input, visits, parts["carried"], None, status)
        return self._adapter.over(status, [Interrupt(**found) for found in recorded.interrupts or ()])

    def _visits(self, rows: list[StepRecord], *, is_over: bool, tries_again: bool) -> list[Visit]:
        """Return the finished visits in the order in which they ended, without those that are retried."""
        latest = {row.name: row for row in rows}

        def counts(row: StepRecord) -> bool:
            is_tried_again = row is latest[row.name] and (tries_again or not (is_over or has_returned_failure(row)))
            return row.status == "failed" and not is_tried_again and has_outcome(row)

        by_key = {row.key: row for row in rows}
        wanted = [
            row
            for row in by_key.values()
            if row.status == "done" or counts(row) or (row.status == "interrupted" and is_over and has_outcome(row))
        ]
        wanted.sort(key=lambda row: (row.ended_at or 0.0, row.step_id))
        last = {row.name: row for row in wanted}
        return [self._visit(row, is_last=row is last[row.name]) for row in wanted]

    def _visit(self, row: StepRecord, *, is_last: bool) -> Visit:
        found = VisitOutcome.from_json(row.result)
        result = NodeResult(
            result=self._result(row, found, is_last),
            execution_time=found.time,
            status=Status(found.status),
            accumulated_usage=found.usage,
            accumulated_metrics=found.metrics,
            execution_count=found.count,
        )
        if result.status is Status.INTERRUPTED:
            result.interrupts = list(getattr(result.result, "interrupts", None) or [])
        return Visit(row.name, result, is_ordered=row.error is None)

    def _result(self, row: StepRecord, found: VisitOutcome, is_last: bool) -> Any:
        """Return what a node's visit had returned or raised, and restore its agent to that point."""
        executor = self._adapter.executors().get(row.name)
        record = None if found.call is None else self._journal.call(found.call)
        adapter = adapter_of(executor) if isinstance(executor, MultiAgentBase) else None
        value: Any = None
        if record is not None and record.kind == "agent" and is_agent(executor):
            value = self._agent_result(executor, record, is_last)
        elif record is not None and adapter is not None and record.kind == adapter.kind:
            inner = OrchestratorInvocation(adapter, self._context, self._resolver, None)
            value = inner.returned(record, {}) if is_last else None
        elif record is not None:
            value = recorded_result(self._journal, record)
        elif row.error is None:
            value = NodeResult.from_dict({"result": found.result, "status": found.status}).result
        return value if row.error is None else revive(row.error)

    def _agent_result(self, agent: Agent, record: CallRecord, is_last: bool) -> Any:
        invocation = AgentInvocation(agent, self._context, self._resolver, None)
        if not is_last:
            invocation.counted(record)
        elif record.status in (ExecutionStatus.COMPLETED, ExecutionStatus.SUSPENDED):
            return invocation.returned(record, {})
        else:
            invocation.restored(record)
        return None


def _cause(adapter: OrchestratorAdapter, result: MultiAgentResult) -> Exception:
    """Return why an orchestrator that returned FAILED did so."""
    failed = [found.result for found in result.results.values() if isinstance(found.result, Exception)]
    return failed[-1] if failed else RuntimeError(f"{adapter.kind} {adapter.name!r} returned {result.status.value}")
