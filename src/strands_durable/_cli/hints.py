"""What to do next about an execution, in a few words and with a command to copy."""

from __future__ import annotations

from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.views import ExecutionDetail
from .options import BackendTarget

S = ExecutionStatus


def next_step(detail: ExecutionDetail, place: BackendTarget) -> str | None:
    """Return what has to happen for an execution to go on; None if it is over."""
    record = detail.execution
    if record.unreadable is not None:
        removed = place.command(f"rm {record.execution_id}")
        return f"restore the store from a backup, or {removed} removes this execution; others are not affected"
    if record.status in (S.COMPLETED, S.CANCELLED):
        return None
    if record.status is S.SUSPENDED and any(call.questions for call in detail.calls):
        answered = f"{place.command(f'respond {record.execution_id}')} answers it"
        return answered if is_dispatched(record) else f"{answered}; then run its script again"
    if record.owner is not None:
        return f"{place.command(f'watch {record.execution_id}')} follows it"
    return _taken_up(record, place)


def _taken_up(record: ExecutionRecord, place: BackendTarget) -> str:
    """Return how an execution that nobody works on is taken up."""
    if not is_dispatched(record):
        tried = "it is tried again from the failed step" if record.status is S.FAILED else "it goes on"
        return f"run its script again, and {tried}"
    if record.status is S.FAILED:
        return f"{place.command(f'resume {record.execution_id}')} has it tried again from the failed step"
    return f"a worker takes it up: {place.command('worker FILE')}"


def is_dispatched(record: ExecutionRecord) -> bool:
    """Say whether workers carry it; otherwise it belongs to a script."""
    return record.kind != "inline"
