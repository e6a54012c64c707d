"""The end of a recorded call as an `ExecutionResult`, read from the journal alone. Knows no Strands."""

from __future__ import annotations

from typing import Any

from .._records.calls import CallRecord
from .._records.exceptions import summary
from .._records.outcomes import AgentCallResult, OrchestratorCallResult, VisitOutcome
from .._records.questions import interrupts_of
from .._records.results import ExecutionResult, NodeOutcome
from .._records.steps import StepRecord
from . import messages
from .port import Journal


def result_of(journal: Journal, record: CallRecord) -> ExecutionResult:
    """Return what a call came to, or what it waits for."""
    if record.kind != "agent":
        over = OrchestratorCallResult.from_json(record.result)
        return ExecutionResult(
            execution_id=journal.execution_id,
            status=record.status,
            stop_reason=over.status,
            usage=over.usage,
            interrupts=interrupts_of(record),
            nodes=_nodes(journal, record),
        )
    result = AgentCallResult.from_json(record.result)
    return ExecutionResult(
        execution_id=journal.execution_id,
        status=record.status,
        stop_reason=result.stop_reason,
        message=_message(journal, record, result),
        state=journal.state(record.call_id),
        request_state=result.state,
        usage=result.usage,
        structured_output=result.structured_output,
        interrupts=interrupts_of(record),
    )


def _message(journal: Journal, record: CallRecord, result: AgentCallResult) -> Any:
    if result.last is None:
        return result.message
    progress, _ = journal.head(record.call_id)
    ahead = result.last
    for first, last in progress.ranges:
        if ahead <= last - first:
            return messages.read(journal, record.lineage, [[first + ahead, first + ahead]])[0]
        ahead -= last - first + 1
    return None


def _nodes(journal: Journal, record: CallRecord) -> dict[str, NodeOutcome]:
    visits = journal.nodes(record.call_id)
    last = {visit.name: visit for visit in visits}
    ended = sorted(visits, key=lambda visit: (visit.ended_at is None, visit.ended_at or visit.started_at))
    order = dict.fromkeys(visit.name for visit in ended)
    return {node_id: _node(journal, record, last[node_id]) for node_id in order}


def _node(journal: Journal, record: CallRecord, visit: StepRecord) -> NodeOutcome:
    recorded = VisitOutcome.from_json(visit.result)
    status = recorded.status or {"done": "completed", "started": "executing"}.get(visit.status, visit.status)
    usage = recorded.usage or {}
    if visit.error is not None:
        return NodeOutcome(status=status, text=summary(visit.error), usage=usage)
    inner = journal.call_in(record.call_id, visit.key)
    if inner is not None and inner.result is not None:
        result = result_of(journal, inner)
        return NodeOutcome(status=status, result=result, text=str(result), usage=usage)
    message = recorded.result.get("message") if isinstance(recorded.result, dict) else None
    text = (
        ""
        if message is None
        else str(ExecutionResult(execution_id="", status=record.status, stop_reason="", message=message))
    )
    return NodeOutcome(status=status, text=text, usage=usage)
