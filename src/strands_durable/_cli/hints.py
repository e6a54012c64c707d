"""What to do next with an execution: a few words, and a command to copy."""

from __future__ import annotations

from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.views import ExecutionDetail
from .options import BackendTarget

S = ExecutionStatus


def next_step(detail: ExecutionDetail, place: BackendTarget) -> str | None:
    """Return what makes an execution continue; None if it has ended."""
    record = detail.execution
    if record.unreadable is not None:
        removed = place.command(f"rm {record.execution_id}")
        return f"restore the store from a backup, or remove only this execution with {removed}"
    if record.status in (S.COMPLETED, S.CANCELLED) or record.contents_removed_at is not None:
        return None
    if record.status is S.SUSPENDED and any(call.questions for call in detail.calls):
        answered = place.command(f"respond {record.execution_id}")
        return f"answer its questions with {answered}" + (
            "" if is_dispatched(record) else " (then run its script again)"
        )
    if record.owner is not None:
        return f"follow it with {place.command(f'watch {record.execution_id}')}"
    return _how_to_run(record, place)


def _how_to_run(record: ExecutionRecord, place: BackendTarget) -> str:
    """Return how to run an execution that no process is running."""
    if not is_dispatched(record):
        return (
            f"run its script again to {'retry it from the failed step' if record.status is S.FAILED else 'resume it'}"
        )
    if record.status is S.FAILED:
        return f"retry it from the failed step with {place.command(f'resume {record.execution_id}')}"
    if place.invoker is not None:
        return f"{place.invoker}; follow it with {place.command(f'watch {record.execution_id}')}"
    return f"a worker runs it; if none is running, start one with {place.command('worker FILE')}"


def is_dispatched(record: ExecutionRecord) -> bool:
    """Return whether workers run it; otherwise its own script does."""
    return record.kind != "inline"
