"""The address of a call in its execution, and what the call recorded there means for it.

An id that is given with a call, or with a dispatch, names one root call. An id on the plugin names a list of them: each object
walks the calls recorded under its agent_id, starting with the first. A call inside another belongs to one of its steps or
hooks: a visit of a node, a tool call, or any place where user code called an agent. Equal names do no harm: the step
distinguishes the calls.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

from .._calls.context import StepContext
from .._calls.local_execution import Cursor
from .._journal.port import Journal
from .._records import keys
from .._records.calls import CallAddress, CallRecord
from .._records.codec import encode
from .._records.exceptions import describe
from .._records.executions import ExecutionStatus
from .._records.options import Options
from .._records.questions import answers_in, asked_by, refuse_malformed
from ..errors import CallCancelledError
from . import admission
from .admission import Caller

S = ExecutionStatus


class CallResolver(Protocol):
    """Knows what is recorded at the address of a call."""

    @property
    def compares_base(self) -> bool:
        """Whether an agent that resumes its first call must have the messages that the call began with."""

    def address(self) -> CallAddress:
        """Return the address of a new call."""

    def resolve(self, prompt: Any) -> admission.Admission | None:
        """Return what the call means; None: let Strands refuse it."""

    def began(self, record: CallRecord) -> None:
        """Remember that the call begins or resumes here."""

    def ended(self, record: CallRecord) -> None:
        """Remember that the call has ended, or waits for a person."""

    def raised(self, record: CallRecord, *, ran_here: bool = True) -> None:
        """Remember that the call failed or was left, here or, if not ``ran_here``, on record."""


def is_same_input(journal: Journal, record: CallRecord, prompt: Any) -> bool:
    """Return True if ``prompt`` is the input of a recorded call, or None."""
    return prompt is None or journal.hash(prompt) == record.input_hash


class ListResolver:
    """Root calls under an id on the plugin: an object's n-th call is compared with the n-th recorded one of its agent_id."""

    def __init__(self, options: Options, journal: Journal, caller: Caller, cursor: Cursor) -> None:
        self._options, self._journal, self._caller, self._cursor = options, journal, caller, cursor
        cursor.follow(journal.run)

    @property
    def compares_base(self) -> bool:
        """False for an object that made the call itself: its messages include those of the call."""
        return self._cursor.call_id is None

    def address(self) -> CallAddress:
        """Return the address of a new call."""
        name, position = self._caller.name, self._journal.last_position() + 1
        return CallAddress(parent=0, place="", position=position, member=name, scope=name)

    def resolve(self, prompt: Any) -> admission.Admission | None:
        """Return what the call means; None: no call asked for these answers, and Strands raises."""
        answers = answers_in(prompt)
        if answers is not None:
            record = self._asked(answers)
            if record is None or (record.status is S.COMPLETED and self._is_still_asked(record)):
                return self._plainly(prompt) if self._caller.waits else None
            refuse_malformed(self._journal.execution_id, record, answers)
            return admission.admit_answers(self._journal, record, answers)
        return self._plainly(prompt)

    def _is_still_asked(self, record: CallRecord) -> bool:
        """Return True if Strands waits for the same answers again: a call with them was cancelled on this object."""
        return self._caller.waits and self._cursor.call_id == record.call_id

    def _plainly(self, prompt: Any) -> admission.Admission:
        journal, cursor = self._journal, self._cursor
        if self._options.on_completed == "restart" and self._is_over():
            journal.start_run()
            cursor.follow(journal.run)
        record = recorded_at(journal, self._caller, cursor)
        if record is not None and cursor.unended == record.call_id and not is_same_input(journal, record, prompt):
            record = self._further(record)
        return admission.admit(
            journal,
            record,
            prompt,
            is_last=record is None or record.status is not S.FAILED or self._is_last(record),
            on_failed=self._options.on_failed,
            caller=self._caller,
        )

    def _further(self, record: CallRecord) -> CallRecord | None:
        """Return what is recorded after a call that failed or was left: another input means that this call is over."""
        if record.status in (S.SUSPENDED, S.CANCELLED):
            return record  # another object or process has brought it that far
        if record.status is S.RUNNING:
            left = CallCancelledError(self._journal.execution_id, record.position)
            with self._journal.transaction("call.abandoned"):
                self._journal.end_left(record, describe(left))
        self._cursor.passed(record)
        return recorded_at(self._journal, self._caller, self._cursor)

    def _is_last(self, record: CallRecord | None) -> bool:
        """Return True if no call follows this one; for the object on which it failed, none under its own agent_id."""
        if record is None:
            return True
        if self._cursor.unended == record.call_id and self._cursor.ran_here:
            return self._journal.call_after(record.scope, record.position) is None
        return record.position == self._journal.last_position()

    def _is_over(self) -> bool:
        """Return True if this object has made no call yet and the recorded run is complete, as far as is known."""
        if self._cursor.call_id is not None or self._journal.call_after(self._caller.name, -1) is None:
            return False
        return all(call.status is S.COMPLETED for call in self._journal.calls())

    def began(self, record: CallRecord) -> None:
        """Remember that the call begins or resumes here."""
        self._cursor.began(record)

    def ended(self, record: CallRecord) -> None:
        """Remember that the call has ended, or waits for a person: the next one follows it."""
        self._cursor.passed(record)

    def raised(self, record: CallRecord, *, ran_here: bool = True) -> None:
        """Remember that the call failed or was left: the object's next input decides whether it is over."""
        self._cursor.stays_at(record, ran_here=ran_here)

    def _asked(self, answers: dict[str, Any]) -> CallRecord | None:
        """Return the call that the answers belong to: the last one of this object, or the one that asked."""
        if self._cursor.call_id is not None:
            return self._journal.call(self._cursor.call_id)
        for call in reversed(self._journal.calls()):
            if call.scope == self._caller.name and set(answers) & (
                asked_by(call) | set(self._journal.answers(call.call_id))
            ):
                return call
        return None


class SingleResolver:
    """The one root call under an id that was given with the call, or that was dispatched; there is never a second one."""

    compares_base = False
    """An object that serves many ids has the messages of others, and a new one has none."""

    def __init__(self, options: Options, journal: Journal, caller: Caller) -> None:
        self._options, self._journal, self._caller = options, journal, caller

    def address(self) -> CallAddress:
        """Return the address of a new call."""
        name = self._caller.name
        return CallAddress(parent=0, place="", position=0, member=name, scope=name)

    def resolve(self, prompt: Any) -> admission.Admission | None:
        """Return what the call means; None: no call asked for these answers, and Strands raises."""
        journal, record = self._journal, self._journal.call_at(0)
        answers = answers_in(prompt)
        if answers is not None and record is None and not self._caller.waits:
            return None
        if answers is not None and record is not None and not is_same_input(journal, record, prompt):
            refuse_malformed(journal.execution_id, record, answers)
            return admission.admit_answers(journal, record, answers)
        if self._options.on_completed == "restart" and record is not None and record.status is S.COMPLETED:
            journal.start_run()
            record = None
        is_last = journal.last_position() <= 0  # an object may have made a list of calls under the same id
        return admission.admit(
            journal, record, prompt, is_last=is_last, on_failed=self._options.on_failed, caller=self._caller
        )

    def began(self, record: CallRecord) -> None:
        """Do nothing: there is only one call."""

    def ended(self, record: CallRecord) -> None:
        """Do nothing: there is only one call."""

    def raised(self, record: CallRecord, *, ran_here: bool = True) -> None:
        """Do nothing: there is only one call."""


class DispatchedResolver(SingleResolver):
    """The one root call of a dispatched execution, for the worker that claimed it: the dispatch decided what to do."""

    compares_base = True

    def resolve(self, prompt: Any) -> admission.Admission | None:
        """Return what the call means: it begins, resumes after a crash or a failure, or resumes with answers."""
        record = self._journal.call_at(0)
        if record is not None and record.status is S.PENDING:
            return admission.Start()
        return admission.admit(self._journal, record, None, is_last=True, on_failed="resume")


def recorded_at(journal: Journal, caller: Caller, cursor: Cursor | None) -> CallRecord | None:
    """Return the recorded call that the next one is compared with; without a cursor there is only one."""
    return journal.call_at(0) if cursor is None else journal.call_after(caller.name, cursor.after)


@dataclass
class NestedResolver:
    """A call inside another: what is recorded at its address decides."""

    journal: Journal
    own_address: CallAddress
    beside: str | None
    """Prefix of the places of all calls in the same step or hook; None for the agent of a node or tool, which is alone."""
    compares_base = True

    def address(self) -> CallAddress:
        """Return the address of a new call."""
        return self.own_address

    def resolve(self, prompt: Any) -> admission.Admission:
        """Return what the call means. Its caller is recorded, too, so its input is not compared."""
        answers = answers_in(prompt)
        record = self._asked(answers) if answers is not None else None
        if record is None:
            address = self.own_address
            record = self.journal.call_in(address.parent, address.place, address.position)
        if record is None:
            return admission.Start()
        if answers is not None:
            if self.beside is None:  # a swarm passes on all its answers, including those to its own hooks' questions
                asked = asked_by(record) | set(self.journal.answers(record.call_id))
                answers = {interrupt_id: answer for interrupt_id, answer in answers.items() if interrupt_id in asked}
            refuse_malformed(self.journal.execution_id, record, answers)
            return admission.admit_answers(self.journal, record, answers)
        if record.status in (S.SUSPENDED, S.COMPLETED):
            return admission.ReturnRecorded(record)
        if record.status is S.FAILED and self._is_followed(record):
            return admission.failed(self.journal, record)
        return admission.Resume(record)

    def began(self, record: CallRecord) -> None:
        """Do nothing: no call follows at its place."""

    def ended(self, record: CallRecord) -> None:
        """Do nothing: no call follows at its place."""

    def raised(self, record: CallRecord, *, ran_here: bool = True) -> None:
        """Do nothing: no call follows at its place."""

    def _calls_beside(self) -> list[CallRecord]:
        return [] if self.beside is None else self.journal.calls_in(self.own_address.parent, self.beside)

    def _is_followed(self, record: CallRecord) -> bool:
        """Return True if the same step or hook made a later call: its code had then handled the failure of this one."""
        return any(call.call_id > record.call_id for call in self._calls_beside())

    def _asked(self, answers: dict[str, Any]) -> CallRecord | None:
        """Return the call in the same step or hook that asked."""
        for call in reversed(self._calls_beside()):
            if set(answers) & (asked_by(call) | set(self.journal.answers(call.call_id))):
                return call
        return None


def nested_resolver(step_context: StepContext, name: str, subject: Any, prompt: Any) -> NestedResolver:
    """Return the resolver of a call that is made where ``step_context`` is."""
    outer, journal = step_context.call, step_context.call.journal
    scope = keys.path(outer.record.scope, outer.record.position, step_context.key)
    if step_context.delegate is subject:
        address = CallAddress(
            parent=outer.record.call_id, place=step_context.key, position=0, member=step_context.name, scope=scope
        )
        return NestedResolver(journal, address, None)
    tail = f"{step_context.phase}@{name}:{_digest(prompt)}"
    place = f"{step_context.key}/{tail}"
    position = step_context.occurrences[place]
    step_context.occurrences[place] += 1
    address = CallAddress(
        parent=outer.record.call_id, place=place, position=position, member=f"@{name}", scope=f"{scope}/{tail}"
    )
    return NestedResolver(journal, address, f"{step_context.key}/{step_context.phase}@")


def _digest(prompt: Any) -> str:
    return hashlib.blake2b(encode(prompt, "The prompt").encode(), digest_size=6).hexdigest()
