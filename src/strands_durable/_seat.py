"""Where a call stands in its execution, and what its recorded predecessor there means for it.

A root call stands at the next position of its process. A call inside another stands in one of its steps or hooks: a visit of a
node, a tool call, or wherever code of the user called an agent. Equal names do no harm; what tells calls apart is the step.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

from . import _admission, _keys
from ._codec import encode
from ._context import Frame
from ._journal import Journal
from ._latch import Latch
from ._options import Options
from ._questions import refuse_malformed
from ._records import CallRecord, ExecutionStatus, Seat, answers_in
from ._session import Session

S = ExecutionStatus


class Desk(Protocol):
    """Knows what is recorded where a call stands."""

    @property
    def outer(self) -> Latch | None:
        """The call around it."""

    def seat(self) -> Seat:
        """Return where a new call stands."""

    def decide(self, prompt: Any) -> _admission.Admission | None:
        """Say what the call means; None: it is for Strands to refuse."""

    def ended(self, record: CallRecord) -> None:
        """Take note that the call has ended or failed."""


class RootDesk:
    """Root calls: the n-th of a process is compared with the n-th recorded one."""

    outer = None

    def __init__(self, options: Options, journal: Journal, session: Session, name: str, *, waits: bool) -> None:
        self._options, self._journal, self._session, self._name = options, journal, session, name
        self._waits = waits
        """True if what is called waits for answers, and knows what it is given."""

    def seat(self) -> Seat:
        """Return where a new call stands."""
        return Seat(parent=0, place="", position=self._session.position, member=self._name, scope=self._name)

    def decide(self, prompt: Any) -> _admission.Admission | None:
        """Say what the call means; None: nobody asked for these answers, and Strands says so."""
        answers = answers_in(prompt)
        if answers is not None:
            record = self._asked(answers)
            if record is None or (record.status is S.COMPLETED and self._is_still_asked(record)):
                return self._plainly(prompt) if self._waits else None
            self._session.position = record.position
            refuse_malformed(self._journal.execution_id, record, answers)
            return _admission.admit_answers(self._journal, record, answers)
        return self._plainly(prompt)

    def _is_still_asked(self, record: CallRecord) -> bool:
        """Say whether Strands waits for the same answers again: a call with them was cancelled in this process."""
        return self._waits and self._session.call_id == record.call_id

    def _plainly(self, prompt: Any) -> _admission.Admission:
        position = self._session.position
        if position == 0 and self._options.on_completed == "restart" and self._is_over():
            self._journal.start_run()
        record = self._journal.call_at(position)
        is_last = self._journal.call_at(position + 1) is None
        return _admission.admit(self._journal, record, prompt, is_last=is_last, on_failed=self._options.on_failed)

    def ended(self, record: CallRecord) -> None:
        """Take note that the call has ended or failed: the next one stands behind it."""
        self._session.position = record.position + 1

    def _is_over(self) -> bool:
        calls = self._journal.calls()
        return bool(calls) and all(call.status is S.COMPLETED for call in calls)

    def _asked(self, answers: dict[str, Any]) -> CallRecord | None:
        """Return the call that the answers belong to: the last one of this process, or the one that asked."""
        calls = self._journal.calls()
        if self._session.call_id is not None:
            return next((call for call in calls if call.call_id == self._session.call_id), None)
        for call in reversed(calls):
            if set(answers) & (_admission.asked_by(call) | set(self._journal.answers(call.call_id))):
                return call
        return None


class DispatchedDesk(RootDesk):
    """The one root call of a dispatched execution, for the worker that has claimed it: what is wanted was decided then."""

    def decide(self, prompt: Any) -> _admission.Admission | None:
        """Say what the call means: it begins, goes on after a death or a failure, or takes up answers."""
        record = self._journal.call_at(0)
        if record is not None and record.status is S.PENDING:
            return _admission.Start()
        return _admission.admit(self._journal, record, None, is_last=True, on_failed="resume")


@dataclass
class NestedDesk:
    """A call inside another: what is recorded at its place decides."""

    journal: Journal
    outer: Latch
    standing: Seat
    beside: str | None
    """How the places of all calls in the same step or hook begin; None for the agent of a node or tool, which is alone."""

    def seat(self) -> Seat:
        """Return where a new call stands."""
        return self.standing

    def decide(self, prompt: Any) -> _admission.Admission:
        """Say what the call means. What calls it was recorded, too: its input is not compared."""
        answers = answers_in(prompt)
        record = self._asked(answers) if answers is not None else None
        if record is None:
            seat = self.standing
            record = self.journal.call_in(seat.parent, seat.place, seat.position)
        if record is None:
            return _admission.Start()
        if answers is not None:
            if self.beside is None:  # a swarm hands on all answers that it was given, to its own hooks' questions, too
                asked = _admission.asked_by(record) | set(self.journal.answers(record.call_id))
                answers = {interrupt_id: answer for interrupt_id, answer in answers.items() if interrupt_id in asked}
            refuse_malformed(self.journal.execution_id, record, answers)
            return _admission.admit_answers(self.journal, record, answers)
        if record.status in (S.SUSPENDED, S.COMPLETED):
            return _admission.Return(record)
        if record.status is S.FAILED and self._is_followed(record):
            return _admission.failed(self.journal, record)
        return _admission.GoOn(record)

    def ended(self, record: CallRecord) -> None:
        """Nothing comes after it at its place."""

    def _calls_beside(self) -> list[CallRecord]:
        return [] if self.beside is None else self.journal.calls_in(self.standing.parent, self.beside)

    def _is_followed(self, record: CallRecord) -> bool:
        """Say whether a later call was made in the same step or hook: whoever made them had coped with this one."""
        return any(call.call_id > record.call_id for call in self._calls_beside())

    def _asked(self, answers: dict[str, Any]) -> CallRecord | None:
        """Return the call beside this place that asked."""
        for call in reversed(self._calls_beside()):
            if set(answers) & (_admission.asked_by(call) | set(self.journal.answers(call.call_id))):
                return call
        return None


def nested_desk(standing: Frame, name: str, subject: Any, prompt: Any) -> NestedDesk:
    """Return the desk of a call that is made where ``standing`` is."""
    outer, journal = standing.call, standing.call.journal
    scope = _keys.path(outer.record.scope, outer.record.position, standing.key)
    if standing.hosted is subject:
        seat = Seat(parent=outer.record.call_id, place=standing.key, position=0, member=standing.name, scope=scope)
        return NestedDesk(journal, outer, seat, None)
    tail = f"{standing.phase}@{name}:{_digest(prompt)}"
    place = f"{standing.key}/{tail}"
    position = standing.occurrences[place]
    standing.occurrences[place] += 1
    seat = Seat(parent=outer.record.call_id, place=place, position=position, member=f"@{name}", scope=f"{scope}/{tail}")
    return NestedDesk(journal, outer, seat, f"{standing.key}/{standing.phase}@")


def _digest(prompt: Any) -> str:
    return hashlib.blake2b(encode(prompt, "The prompt").encode(), digest_size=6).hexdigest()
