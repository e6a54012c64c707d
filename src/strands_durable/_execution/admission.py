"""What the same id means in every state: the table of rule C1, as one function.

`resolver` decides which recorded call a call is compared with. The outcome is one of five: start, resume, resume with
answers, return or raise the recorded end, or an error that says why not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .._journal.port import Journal
from .._records.calls import CallKind, CallRecord
from .._records.exceptions import revive, summary
from .._records.executions import ExecutionStatus
from .._records.questions import asked_by, interrupts_of
from ..errors import RESUME_HINT, ExecutionBusyError, ExecutionCancelledError, ExecutionFailedError, InputMismatchError

S = ExecutionStatus
_SHOWN = 80


@dataclass(frozen=True)
class Start:
    """Nothing is recorded at this address: a new call begins."""


@dataclass(frozen=True)
class Resume:
    """The recorded call has no end: it resumes at the first step without a result."""

    record: CallRecord


@dataclass(frozen=True)
class ResumeWithAnswers:
    """The recorded call waits for a person, and the answers are given."""

    record: CallRecord
    answers: dict[str, Any]


@dataclass(frozen=True)
class ReturnRecorded:
    """The recorded call has ended, or has open interrupts: return them and run nothing."""

    record: CallRecord


@dataclass(frozen=True)
class RaiseRecorded:
    """The recorded call failed, and a later one is recorded: raise its error again."""

    record: CallRecord
    error: Exception


Admission = Start | Resume | ResumeWithAnswers | ReturnRecorded | RaiseRecorded


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The agent or orchestrator that makes a root call, and how it names the execution."""

    name: str
    """Its agent_id, or the id of an orchestrator."""
    kind: CallKind
    waits: bool = False
    """Whether it waits for answers, and knows the interrupts that these belong to."""
    is_single: bool = False
    """Whether the execution id names one call, not the list of calls that an object makes."""


def admit(
    journal: Journal,
    record: CallRecord | None,
    given: Any,
    *,
    is_last: bool,
    on_failed: Literal["resume", "raise"],
    caller: Caller | None = None,
) -> Admission:
    """Decide what a call with a prompt, or without one, means at the position of ``record``."""
    if journal.status() is S.CANCELLED or (record is not None and record.status is S.CANCELLED):
        raise ExecutionCancelledError(journal.execution_id)
    if record is None:
        return Start()
    refuse_other_input(journal, record, given, caller)
    if record.status is S.PENDING:
        why = "was dispatched, and no worker has started it yet. Start a worker, or wait for its handle's result."
        raise ExecutionBusyError(journal.execution_id, "", why)
    if record.status is S.SUSPENDED:
        journal.expire_questions(record)
        replies = journal.replies(record.call_id)
        return ResumeWithAnswers(record, replies) if replies else ReturnRecorded(record)
    if record.status is S.COMPLETED:
        return ReturnRecorded(record)
    if record.status is S.FAILED and (not is_last or on_failed == "raise"):
        if not is_last or record.result is not None:
            return failed(journal, record)
        error = journal.last_failure(record.call_id)
        if on_failed == "raise":
            raise ExecutionFailedError(journal.execution_id, summary(error)) from revive(error)
    return Resume(record)


def failed(journal: Journal, record: CallRecord) -> Admission:
    """Return or raise a failed call's end again: an orchestrator had returned it, otherwise it was raised."""
    if record.result is not None:
        return ReturnRecorded(record)
    return RaiseRecorded(record, revive(journal.last_failure(record.call_id)))


def refuse_other_input(journal: Journal, record: CallRecord | None, given: Any, caller: Caller | None = None) -> None:
    """Raise if the call at ``record`` was recorded with an input other than ``given``, or for another agent."""
    if record is None:
        return
    if caller is not None and _is_another(journal, record, caller):
        recorded, now = f"{record.kind} {record.scope!r}", f"a call of {caller.kind} {caller.name!r}"
        raise InputMismatchError(
            journal.execution_id, record.position, record.status.value, recorded, now, _hint(caller)
        )
    if given is not None and journal.hash(given) != record.input_hash:
        raise mismatch(journal, record, given, caller)


def _is_another(journal: Journal, record: CallRecord, caller: Caller) -> bool:
    """Return True if a call was recorded for another agent; a dispatched one has the name of its factory."""
    if record.kind != caller.kind:
        return True
    return record.scope != caller.name and not journal.is_dispatched()


def _hint(caller: Caller | None) -> str:
    """Return a hint that explains what an id names."""
    if caller is None:
        return ""
    if caller.is_single:
        return f"{RESUME_HINT} An execution_id passed with a call names that one call: use a new one for each request."
    return (
        f"{RESUME_HINT} Each agent of an execution needs its own agent_id: every object with agent_id {caller.name!r} is "
        f"compared with the same recorded calls, starting with the first."
    )


def admit_answers(journal: Journal, record: CallRecord, answers: dict[str, Any]) -> Admission:
    """Decide what answers to the call at ``record`` mean."""
    replies = journal.replies(record.call_id)
    if new_answers(journal, record, answers) or (replies and record.status is S.SUSPENDED):
        return ResumeWithAnswers(record, {**replies, **answers})
    return ReturnRecorded(record) if record.status in (S.SUSPENDED, S.COMPLETED) else Resume(record)


def new_answers(journal: Journal, record: CallRecord, answers: dict[str, Any]) -> dict[str, Any]:
    """Return the answers that were not given before; raise if the call did not ask, or got a different one."""
    known = journal.answers(record.call_id)
    if record.status is S.SUSPENDED:  # an id may recur with another visit of a node: an open question has no answer
        known = {interrupt_id: answer for interrupt_id, answer in known.items() if interrupt_id not in asked_by(record)}
        known |= journal.replies(record.call_id)
    changed = {interrupt_id for interrupt_id, answer in answers.items() if known.get(interrupt_id, answer) != answer}
    if changed or not set(answers) <= asked_by(record) | set(known):
        raise _wrong_answers(journal, record, answers, known)
    return {interrupt_id: answer for interrupt_id, answer in answers.items() if interrupt_id not in known}


def _wrong_answers(
    journal: Journal, record: CallRecord, answers: dict[str, Any], known: dict[str, Any]
) -> InputMismatchError:
    """Return the error for answers the call did not ask for, or that differ from those given before."""
    opened = [found for found in interrupts_of(record) if found.interrupt_id not in known]
    if record.status is not S.SUSPENDED or not opened:
        said, hint = ["no open question"], "There is nothing to answer."
    else:
        names = ", ".join(f"{found.name!r} (interrupt_id {found.interrupt_id})" for found in opened)
        said, hint = [f"open questions {names}"], "Answer an open question by its interrupt_id."
    said += [f"the answer {_short(known[found])} to interrupt_id {found}" for found in answers if found in known]
    given = ", ".join(f"{_short(answer)} to interrupt_id {found}" for found, answer in answers.items())
    return InputMismatchError(
        journal.execution_id, record.position, record.status.value, " and ".join(said), f"the answer {given}", hint
    )


def mismatch(journal: Journal, record: CallRecord, given: Any, caller: Caller | None = None) -> InputMismatchError:
    """Return the error for an input that differs from the recorded one."""
    recorded = "an input that was redacted since" if record.redacted else _short(record.input)
    return InputMismatchError(
        journal.execution_id, record.position, record.status.value, recorded, _short(given), _hint(caller)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
