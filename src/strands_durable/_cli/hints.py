"""What to do next with an execution: a few words, and a command to copy."""

from __future__ import annotations

from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.keys import is_model_key
from .._records.printable import one_line
from .._records.views import ExecutionDetail, StepSummary
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
    then = _how_to_run(record, place)
    return f"{then}{_fork_before_an_error(detail, place)}" if record.status is S.FAILED else then


def _fork_before_an_error(detail: ExecutionDetail, place: BackendTarget) -> str:
    """Return how to run a failed tool again if the model failed right after it; an empty text if it did not."""
    for call in reversed(detail.calls):
        last = call.steps[-1] if call.status is S.FAILED and call.steps else None
        if last is None or last.kind != "model" or last.state != "failed":
            continue
        turn = f"{int(last.key.partition('/')[0]) - 1:06d}/" if is_model_key(last.key) else ""
        tools = [step for step in call.steps if step.kind == "tool" and turn and step.key.startswith(turn)]
        raised = [step for step in tools if step.state == "error" and step.ordinal is not None]
        if raised:
            first = min(raised, key=lambda step: step.ordinal or 0)
            return _fork_before(first, tools, detail.execution.execution_id, place)
    return ""


def _fork_before(step: StepSummary, beside: list[StepSummary], execution_id: str, place: BackendTarget) -> str:
    at = (step.ordinal or 0) - 1
    later = [one_line(each.label) for each in beside if each.state == "done" and (each.ordinal or 0) > at]
    too = f" and {', '.join(later)}, which ended after it," if later else ""
    command = place.command(f"fork {execution_id} --at {at}")
    return f"; or, if the error of {one_line(step.label)} is the cause, run it{too} again in a fork: {command}"


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
