"""The state of an execution when a worker releases it, read from its replica. Does not depend on Strands or any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._journal.outcome import result_of
from .._records.calls import CallRecord
from .._records.exceptions import summary
from .._records.executions import ExecutionStatus
from .._records.questions import interrupts_of
from .._sqlite.dispatches import Dispatches
from .._sqlite.journal import Journal
from .._sqlite.lease import look
from .replica import Replica

S = ExecutionStatus


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """The state of an execution at the end of a run in one process."""

    status: ExecutionStatus
    """PENDING and RUNNING: it was left, and is to be resumed, by another worker or later."""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    interrupts: tuple[str, ...] = ()
    steps: int = 0
    not_before: float = 0.0
    """Not to be resumed before then, in seconds since the epoch."""
    note: str | None = None


def end_of(replica: Replica) -> RunEnd:
    """Return the state of the execution in a replica."""
    execution_id, steps, not_before, note = Dispatches(replica).standing()
    journal = look(replica, execution_id).journal()
    status, record = journal.status(), journal.call_at(0)
    more = {} if record is None else _facts(journal, record, status)
    return RunEnd(status=status, steps=steps, not_before=not_before, note=note, **more)


def _facts(journal: Journal, record: CallRecord, status: ExecutionStatus) -> dict[str, Any]:
    if status is S.FAILED:
        failure = journal.last_failure(record.call_id)
        return {"error": {"type": failure["type"], "text": summary(failure)}}
    if status is S.COMPLETED:
        return {"result": result_of(journal, record).to_json()}
    if status is S.SUSPENDED:
        return {"interrupts": tuple(found.id for found in interrupts_of(record))}
    return {}
