"""The address of a call in its execution, and what the call recorded there means for it.

An id that is given with a call, or with a dispatch, names one root call. An id on the plugin names a list of them: each object
walks the calls recorded under its agent_id, starting with the first. A call inside another belongs to one of its steps or
hooks: a visit of a node, a tool call, or any place where user code called an agent. Equal names do no harm: the step
distinguishes the calls.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from .._calls.children import Children
from .._calls.context import StepContext
from .._calls.durable_call import DurableCall
from .._calls.local_execution import Cursor
from .._journal.port import Journal
from .._records import keys
from .._records.calls import CallAddress, CallRecord
from .._records.codec import encode
from .._records.exceptions import describe
from .._records.executions import ExecutionStatus
from .._records.options import Options
from .._records.questions import answers_in, asked_by, refuse_malformed
from .._strands.agents import answer_passed_on
from .._strands.fingerprints import Config
from ..errors import CallCancelledError
from . import admission
from .admission import Caller

S = ExecutionStatus


class CallResolver(Protocol):
    """Knows what is recorded at the address of a call."""

    @property
    def compares_base(self) -> bool:
        """Whether an agent that resumes its first call must have the messages that the call began with."""

    @property
    def is_child(self) -> bool:
        """Whether code inside a step or hook makes the call."""

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

    is_child = False

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

    is_child = False
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
    made_in: StepContext
    """The step or hook that makes the call."""
    children: Children | None
    """All calls in the same step or hook; None for the agent of a node or tool, which is alone."""
    compares_base: bool = True

    @property
    def is_child(self) -> bool:
        """Whether code inside a step or hook makes the call."""
        return self.children is not None

    def address(self) -> CallAddress:
        """Return the address of a new call."""
        return self.own_address

    def resolve(self, prompt: Any) -> admission.Admission:
        """Return what the call means. Its caller is recorded, too, so its input is not compared."""
        answers = answers_in(prompt)
        record = (self._asked(answers) if answers is not None else None) or self._recorded()
        if record is None:
            return admission.Start()
        if answers is not None:
            if self.children is None:  # a swarm passes on all its answers, including those to its own hooks' questions
                asked = asked_by(record) | set(self.journal.answers(record.call_id))
                answers = {interrupt_id: answer for interrupt_id, answer in answers.items() if interrupt_id in asked}
            refuse_malformed(self.journal.execution_id, record, answers)
            return admission.admit_answers(self.journal, record, answers)
        if record.status is S.SUSPENDED and self.children is not None:
            answers = self._answered(record)
            if answers:
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

    def is_recorded(self) -> bool:
        """Return True if the call is on record."""
        return self._recorded() is not None

    def _recorded(self) -> CallRecord | None:
        address = self.own_address
        return self.journal.call_in(address.parent, address.place, address.position)

    def _calls_beside(self) -> list[CallRecord]:
        return [] if self.children is None else self.children.all()

    def _is_followed(self, record: CallRecord) -> bool:
        """Return True if the same step or hook made a later call: its code had then handled the failure of this one.

        If the step itself has failed since and is tried again, so is the call.
        """
        return not self.made_in.recorded.tries_again and any(
            call.call_id > record.call_id for call in self._calls_beside()
        )

    def _asked(self, answers: dict[str, Any]) -> CallRecord | None:
        """Return the call in the same step or hook that asked."""
        for call in reversed(self._calls_beside()):
            if set(answers) & (asked_by(call) | set(self.journal.answers(call.call_id))):
                assert self.children is not None
                self.children.is_made(call)
                return call
        return None

    def _answered(self, record: CallRecord) -> dict[str, Any]:
        """Return the answers to a call's questions that its caller has: a tool had made them its own.

        The object that asked is gone with its process, so the tool calls a new one with the original input.
        """
        agent = self.made_in.call.agent
        if agent is None:
            return {}
        found = {interrupt_id: answer_passed_on(agent, interrupt_id) for interrupt_id in asked_by(record)}
        return {interrupt_id: answer for interrupt_id, answer in found.items() if answer is not None}


class Called(Protocol):
    """An agent or orchestrator that is called inside a call."""

    me: Any
    name: str

    def config(self) -> Config:
        """Return its current configuration."""

    def may_have_made(self, call: DurableCall, record: CallRecord) -> bool:
        """Return True if ``record`` may be a call of this object, or of its like in another process, inside ``call``."""


def nested_resolver(step_context: StepContext, subject: Called, prompt: Any) -> NestedResolver:
    """Return the resolver of a call that is made where ``step_context`` is."""
    outer, journal, name = step_context.call, step_context.call.journal, subject.name
    call_id, record = outer.record.call_id, outer.record
    if step_context.delegate is subject.me:
        key = step_context.key
        scope = keys.path(record.scope, record.position, key)
        address = CallAddress(parent=call_id, place=key, position=0, member=step_context.name, scope=scope)
        return NestedResolver(journal, address, step_context, None)
    place, children = step_context.place_of(f"{name}:{_digest(prompt)}"), step_context.children
    address = CallAddress(
        parent=call_id,
        place=place,
        position=children.position(place, subject.config, partial(subject.may_have_made, outer)),
        member=f"@{name}",
        scope=keys.path(record.scope, record.position, place),
    )
    return NestedResolver(journal, address, step_context, children)


def _digest(prompt: Any) -> str:
    return hashlib.blake2b(encode(prompt, "The prompt").encode(), digest_size=6).hexdigest()
