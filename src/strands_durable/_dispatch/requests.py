"""Requests of clients: dispatch, answer, resume, cancel; each is one transaction. Does not import Strands."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from .._execution import admission
from .._journal.owner import user_name
from .._journal.unreadable import reading
from .._records.calls import CallRecord
from .._records.change_sets import rows_of
from .._records.codec import decode, encode
from .._records.exceptions import revive, summary
from .._records.executions import ACCEPTED, TRACE, ExecutionStatus
from .._records.input_hash import input_hash
from .._records.keys import checked_id
from .._records.origins import ForkChanges
from .._records.questions import interrupts_of, refuse_malformed
from .._records.spec import AgentSpec
from .._records.tags import checked_tags
from .._sqlite import notices, respondents
from .._sqlite.database import Store
from .._sqlite.dispatches import Dispatches
from .._sqlite.journal import Journal
from .._sqlite.lease import look
from .._sqlite.snapshot import LAST, snapshot
from .._sqlite.snapshot.restore import restore
from ..errors import (
    DurableError,
    ExecutionBusyError,
    ExecutionCancelledError,
    ExecutionFailedError,
    InputMismatchError,
    UnsupportedFeatureError,
)
from . import forks

S = ExecutionStatus
_HINT = "To retry it from the failed step, call resume() on its handle or run 'strands-durable resume'."


class Requests:
    """What backends and handles may request of a store."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        self._store, self._now = store, now
        self._dispatches = Dispatches(store)

    def dispatch(
        self,
        spec: AgentSpec,
        prompt: Any,
        execution_id: str | None,
        invocation_state: Mapping[str, Any] | None,
        limits: Mapping[str, int] | None,
        tags: Mapping[str, str] | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> str:
        """Record a request, or find the execution that has this id, which keeps its tags; return the id.

        ``trace`` is that of the caller.
        """
        if limits is not None and spec.kind != "agent":
            raise UnsupportedFeatureError(f"limits for the {spec.kind} {spec.name!r}", "only an Agent has limits")
        execution_id = uuid.uuid4().hex if execution_id is None else checked_id(execution_id)
        checked = checked_tags(tags)
        spec_text = encode(spec.to_json(), f"The spec of agent {spec.name!r}")
        given = _given(invocation_state, limits)
        traced = {**given, TRACE: dict(trace)} if trace else given
        given_text, prompt_text = encode(traced, "The invocation_state"), encode(prompt, "The prompt")
        with self._store.transaction("dispatch"):
            if self._dispatches.find(execution_id) is None:
                recorded = {"agent": spec.name, "fingerprint": spec.fingerprint, "spec": spec_text, "given": given_text}
                self._create(execution_id, spec, recorded, prompt, prompt_text, checked)
                return execution_id
        self._refuse_other(execution_id, spec, prompt, given)
        return execution_id

    def refuse_other(
        self,
        execution_id: str,
        spec: AgentSpec,
        prompt: Any,
        invocation_state: Mapping[str, Any] | None,
        limits: Mapping[str, int] | None,
    ) -> None:
        """Raise unless a dispatch may attach to the existing execution."""
        self._refuse_other(execution_id, spec, prompt, _given(invocation_state, limits))

    def _create(
        self,
        execution_id: str,
        spec: AgentSpec,
        recorded: dict[str, Any],
        prompt: Any,
        prompt_text: str,
        tags: dict[str, str],
    ) -> None:
        self._dispatches.create(
            execution_id,
            self._now(),
            dispatch=recorded,
            call={
                "kind": spec.kind,
                "member": spec.name,
                "scope": spec.name,
                "input": prompt_text,
                "input_hash": input_hash(self._store.hash_key, prompt),
            },
            tags=tags,
        )

    def _refuse_other(self, execution_id: str, spec: AgentSpec, prompt: Any, given: dict[str, Any]) -> None:
        with reading(execution_id):
            self._compare(execution_id, spec, prompt, given)

    def _compare(self, execution_id: str, spec: AgentSpec, prompt: Any, given: dict[str, Any]) -> None:
        """Raise unless this dispatch may attach to the existing execution: the columns of C1 for dispatches."""
        journal = self.journal(execution_id)
        record = journal.call_at(0)
        if journal.status() is S.CANCELLED:
            raise ExecutionCancelledError(execution_id)
        if record is None:
            return
        admission.refuse_other_input(journal, record, prompt)
        request = self._dispatches.request(journal.lease.row_id)
        if request is not None:
            before = {"agent": request[0], "arguments": decode(request[1])["arguments"], **decode(request[2])}
            now = {"agent": spec.name, "arguments": spec.arguments, **decode(encode(given))}
            other = [name for name in now if before.get(name) != now[name]]
            if other:
                titles = [f"agent {each['agent']!r}" for each in (before, now)]  # values may be confidential
                raise InputMismatchError(
                    execution_id, 0, record.status.value, titles[0], f"{titles[1]} with another {', '.join(other)}"
                )
        elif journal.status() in (S.PENDING, S.RUNNING) and not self._is_owned(journal):
            why = "was started inline, and its process has exited. Run that script again to resume it."
            raise ExecutionBusyError(execution_id, "", why)
        if record.status is S.FAILED and journal.status() is S.FAILED:
            raise self.failure(journal, record)

    def _is_owned(self, journal: Journal) -> bool:
        beat = self._dispatches.beat_of(journal.lease.row_id)
        return beat.owner is not None and self._store.liveness.is_alive(beat)

    # For handles

    def journal(self, execution_id: str) -> Journal:
        """Return the journal of an execution, for reading."""
        return look(self._store, checked_id(execution_id)).journal()

    def note(self, execution_id: str) -> str | None:
        """Return why a worker did not run an execution, with what changed in its agent; None if there is no note."""
        return self._dispatches.note_of(execution_id)

    def last_call(self, journal: Journal) -> CallRecord | None:
        """Return the last root call, which is the one that handles show."""
        with reading(journal.execution_id):
            calls = journal.calls()
        return calls[-1] if calls else None

    def failure(self, journal: Journal, record: CallRecord) -> ExecutionFailedError:
        """Return the error of a failed execution, with the recorded exception as its cause."""
        recorded = journal.last_failure(record.call_id)
        error = ExecutionFailedError(journal.execution_id, summary(recorded), _HINT)
        error.__cause__ = revive(recorded)
        return error

    def respond(self, execution_id: str, answers: Mapping[str, Any], by: str | None = None) -> None:
        """Record answers and who gave them, and queue the execution for a worker."""
        if not answers:
            return
        given = dict(answers)
        encode(given, "The answers")
        with self._store.transaction("reply"):
            journal = self.journal(execution_id)
            record = self.last_call(journal)
            if journal.status() is S.CANCELLED:
                raise ExecutionCancelledError(execution_id)
            if record is None:
                raise _unasked(execution_id, "no call", given)
            refuse_malformed(execution_id, record, given)
            _refuse_null(execution_id, given)
            new = admission.new_answers(journal, record, given)
            if not new:
                return
            if record.status is not S.SUSPENDED:
                raise _unasked(execution_id, record.status.value, given)
            now = self._now()
            for name, answer in new.items():
                self._dispatches.add_reply(record.call_id, name, encode(answer, "The answer"), now)
            names = [(asked.interrupt_id, asked.name) for asked in interrupts_of(record) if asked.interrupt_id in new]
            respondents.note(self._store, record.call_id, names, by or user_name())
            self._free(journal)

    def resume(self, execution_id: str, *, accept_drift: bool = False) -> None:
        """Queue a failed execution for a worker; do nothing if there is nothing to resume.

        With ``accept_drift``, the next worker that has its agent may resume it, whatever the agent's version.
        """
        with self._store.transaction("resume"):
            journal = self.journal(execution_id)
            status = journal.status()
            if status is S.CANCELLED:
                raise ExecutionCancelledError(execution_id)
            journal.refuse_removed()
            if accept_drift:
                self.accept_drift(journal)
            if status is S.FAILED:
                self._free(journal)

    def accept_drift(self, journal: Journal, token: str = "") -> None:
        """Let any version of its agent resume an execution that has neither completed nor an owner."""
        row_id = journal.lease.row_id
        request = self._dispatches.request(row_id)
        if request is None:
            raise UnsupportedFeatureError(
                f"Accepting drift of execution {journal.execution_id!r}",
                "it was started inline, so its script decides about drift",
                'Run the script with Durability(..., on_drift="warn").',
            )
        if journal.status() is S.COMPLETED or self._is_owned(journal):
            return
        spec, given = decode(request[1]), decode(request[2])
        given[ACCEPTED] = {"by": user_name(), "at": self._now(), "fingerprint": None, "token": token}
        self._dispatches.replace_spec(row_id, "", encode({**spec, "fingerprint": ""}), encode(given))
        self._dispatches.forget_delays(row_id)

    def cancel(self, execution_id: str) -> None:
        """Cancel an execution without an owner; request the cancel from its owner otherwise.

        An owner that cannot be observed from here may be alive and gets the request. If it is dead, the next owner cancels.
        """
        with self._store.transaction("cancel"):
            journal = self.journal(execution_id)
            if journal.status() not in (S.PENDING, S.RUNNING, S.SUSPENDED):
                return
            row_id = journal.lease.row_id
            self._dispatches.ask_to_cancel(row_id, self._now())
            if not self._is_owned(journal):
                self._dispatches.evict(row_id)
                journal.cancel()

    def fork(self, execution_id: str, at: int | None, fork_id: str | None, changes: ForkChanges) -> str:
        """Record a new execution that begins where another stood when a step had ended; return its id.

        The origin is read and the fork is written in one transaction, so that nothing of it can change in between.
        """
        new_id = forks.fork_id(checked_id(execution_id)) if fork_id is None else checked_id(fork_id)
        with self._store.transaction("fork") as connection:
            journal = self.journal(execution_id)
            origin = snapshot(self._store, execution_id, LAST if at is None else at, with_bytes=False, with_past=True)
            with reading(execution_id):
                forked = forks.fork(origin, journal, new_id, changes)
            restore(self._store, forked, execution_id=new_id, is_foreign=False)
            if rows_of(forked, "executions")[0]["status"] == S.SUSPENDED.value:
                notices.record(connection, self._dispatches.find(new_id) or 0, S.SUSPENDED)
        return new_id

    def _free(self, journal: Journal) -> None:
        """Queue an execution for a worker again; leave an inline one for its script."""
        row_id = journal.lease.row_id
        if self._dispatches.is_dispatched(row_id):
            journal.set_status(S.PENDING)
            self._dispatches.requeue(row_id, journal.run)


def _refuse_null(execution_id: str, answers: Mapping[str, Any]) -> None:
    """Raise if an answer is None: Strands treats that as no answer and would ask again."""
    for interrupt_id, answer in answers.items():
        if answer is None:
            raise UnsupportedFeatureError(
                f"null as an answer (execution {execution_id!r}, interrupt_id {interrupt_id})",
                "Strands treats it as no answer and asks again",
                'Answer false, "" or a text.',
            )


def _unasked(execution_id: str, status: str, answers: Mapping[str, Any]) -> DurableError:
    given = f"answers to interrupt_id {', '.join(answers)}"
    return InputMismatchError(execution_id, 0, status, "no open question", given, "There is nothing to answer.")


def _given(invocation_state: Mapping[str, Any] | None, limits: Mapping[str, int] | None) -> dict[str, Any]:
    return {"invocation_state": dict(invocation_state or {}), "limits": None if limits is None else dict(limits)}
