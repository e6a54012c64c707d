"""One call from start to end, at the root or inside another: what agents and orchestrators have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from .._calls.children import has_run_tools
from .._calls.control import ExecutionReleasedError
from .._calls.durable_call import CallContext, DurableCall
from .._records.calls import CallRecord
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.questions import answers_in
from .._strands.fingerprints import Config
from ..errors import BackendUnavailableError, DriftError, DurableError, LeaseLostError, UnreadableError
from . import drift, reruns
from .admission import RaiseRecorded, Resume, ResumeWithAnswers, ReturnRecorded, Start
from .event_stream import failing, stream_call
from .keyboard_interrupt import Interrupted
from .recorded_returns import say_returned
from .recorded_steps import before, finished_steps
from .resolver import CallResolver

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]
AnyCall = TypeVar("AnyCall", bound=DurableCall)

LEFT = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, Interrupted)
"""What a call raises after its caller has left it."""


class Invocation(ABC, Generic[AnyCall]):
    """A call of an agent or orchestrator by an owner of its execution."""

    def __init__(self, subject: Any, context: CallContext, resolver: CallResolver, original: Any) -> None:
        self._subject, self._context, self._resolver, self._original = subject, context, resolver, original
        self._journal = context.journal

    def open(self, prompt: Any, given: dict[str, Any]) -> Events:
        """Decide what the call means, and return its events."""
        admission = self._resolver.resolve(prompt)
        is_unanswered = isinstance(admission, Start) and self._is_interrupted() and answers_in(prompt) is None
        if admission is None or is_unanswered:  # unasked answers, or it waits for others: Strands raises
            events: Events = self._original(prompt, **given)
            return events
        if isinstance(admission, (ReturnRecorded, RaiseRecorded)):
            return self._over(admission, given)
        call, prompt = self._opened(admission, prompt, given)
        call.is_new_child = self._resolver.is_child and self._has_done_nothing(admission)
        recorded = None if isinstance(admission, Start) else self._finished_steps(admission.record)
        start, close = partial(self._start, call, prompt, given, recorded), partial(self._close, call)
        return stream_call(call, start, partial(self._seen, call), partial(self._failed, call), close)

    def _has_done_nothing(self, admission: Start | Resume | ResumeWithAnswers) -> bool:
        """Return True if no tool has run inside a call that runs now: one that was stopped by drift meets it again."""
        if isinstance(admission, Resume):
            return not has_run_tools(self._journal, admission.record)
        return isinstance(admission, Start)

    def _over(self, admission: ReturnRecorded | RaiseRecorded, given: dict[str, Any]) -> Events:
        """Return or raise the recorded end of a call, and run nothing."""
        record = admission.record
        recorded = self._finished_steps(record)
        if isinstance(admission, ReturnRecorded):
            say_returned(self._journal, record, self._config)
        reruns.note_object(self._subject, self._journal, record)
        if isinstance(admission, RaiseRecorded):
            self.restored(record)
            self._resolver.raised(record, ran_here=False)
            if recorded is None:
                raise admission.error
            return before(recorded, failing(admission.error))
        result = self.returned(record, given)
        self._resolver.raised(record, ran_here=False)  # a reader that leaves before the result gets it the next time
        return self._preceded(recorded, self._given_back(record, result))

    async def _given_back(self, record: CallRecord, result: Any) -> Events:
        """Return the stream of a recorded call's result."""
        if record.status is not ExecutionStatus.FAILED:  # an orchestrator had returned it; the call may be repeated
            self._resolver.ended(record)
        yield {**self._result_event(result), "recorded": True}

    @abstractmethod
    def _result_event(self, result: Any) -> dict[str, Any]:
        """Return the last event of a stream, as Strands makes it."""

    def _finished_steps(self, record: CallRecord) -> Iterator[Any] | None:
        """Return the events that the stream of a recorded root call begins with, if they are wanted."""
        is_wanted = self._context.options.replay_events and self._context.outer is None
        return finished_steps(self._journal, self._subject, record) if is_wanted else None

    def _preceded(self, recorded: Iterator[Any] | None, events: Events) -> Events:
        return events if recorded is None else before(recorded, events)

    @abstractmethod
    def _is_interrupted(self) -> bool:
        """Return True if the subject waits for answers."""

    @abstractmethod
    def _config(self) -> Config:
        """Return the current configuration of the subject."""

    @abstractmethod
    def _opened(
        self, admission: Start | Resume | ResumeWithAnswers, prompt: Any, given: dict[str, Any]
    ) -> tuple[AnyCall, Any]:
        """Return the call to run, and the prompt to pass to Strands."""

    def _drifted(self, record: CallRecord, step: str, changes: list[str]) -> None:
        """Raise or warn that the resumed subject differs from the recorded one; a fork is there to be run with another."""
        drift.report(self._journal, self._context.options, record.call_id, step, changes)

    # Running

    def _start(
        self, call: AnyCall, prompt: Any, given: dict[str, Any], recorded: Iterator[Any] | None = None
    ) -> Events:
        given = self._enter(call, given)
        self._resolver.began(call.record)
        events: Events = self._original(prompt, **given)
        live = reruns.first(events, self._subject, call, given.get("invocation_state"))
        return self._preceded(recorded, live)

    @abstractmethod
    def _enter(self, call: AnyCall, given: dict[str, Any]) -> dict[str, Any]:
        """Register the call for Strands' hooks; return what to pass to Strands besides the prompt."""

    @abstractmethod
    def _close(self, call: AnyCall) -> None:
        """Unregister the call from Strands' hooks."""

    @abstractmethod
    def _seen(self, call: AnyCall, event: Any) -> None:
        """Record the end of the call, if this is its result."""

    def _failed(self, call: AnyCall, error: BaseException) -> None:
        """Record an error if it is a failure: a lost lease, a broken store or the end of the process is not."""
        if call.is_cancelled(error):
            self._forget()
            return
        if call.progress.phase in ("done", "waiting"):
            return
        if is_elsewhere(error):
            self._forget()
            return
        self._resolver.raised(call.record)
        try:
            if isinstance(error, LEFT):
                call.leave()
            elif isinstance(error, Exception):
                call.end_failed(error)
                return
        except DurableError as unrecorded:
            logger.warning("execution_id=<%s>, error=<%s> | failure not recorded", call.execution_id, unrecorded)
        self._forget()

    @abstractmethod
    def _forget(self) -> None:
        """Drop assumptions about what was written: the call did not end."""

    # Returning what is recorded

    @abstractmethod
    def returned(self, record: CallRecord, given: dict[str, Any]) -> Any:
        """Restore the subject to the end of a recorded call, and return what the call had returned."""

    @abstractmethod
    def restored(self, record: CallRecord) -> None:
        """Restore the subject to the end of a recorded call."""


def is_elsewhere(error: BaseException) -> bool:
    """Return True if a call neither failed nor was left: another owner, another agent or a later attempt resumes it."""
    if isinstance(error, Interrupted):
        return False
    return isinstance(
        error, (LeaseLostError, BackendUnavailableError, DriftError, UnreadableError, ExecutionReleasedError)
    )


def responses(answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return answers in the form that Strands accepts."""
    return [{"interruptResponse": {"interruptId": name, "response": answer}} for name, answer in answers.items()]
