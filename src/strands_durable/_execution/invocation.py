"""One call from its first line to its last, at the root or inside another: what agents and orchestrators have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Generic, TypeVar

from .._calls.durable_call import CallContext, DurableCall
from .._journal.lease import ExecutionReleasedError
from .._records.calls import CallRecord
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.questions import answers_in
from .._strands.fingerprints import Config
from ..errors import BackendUnavailableError, DriftError, DurableError, LeaseLostError, UnreadableError
from . import reruns
from .admission import RaiseRecorded, Resume, ResumeWithAnswers, ReturnRecorded, Start
from .event_stream import only, stream_call
from .keyboard_interrupt import Interrupted
from .recorded_returns import say_returned
from .resolver import CallResolver

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]
AnyCall = TypeVar("AnyCall", bound=DurableCall)

LEFT = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, Interrupted)
"""What a call raises whose caller has left it."""


class Invocation(ABC, Generic[AnyCall]):
    """A call of an agent or orchestrator by an owner of its execution."""

    def __init__(self, subject: Any, context: CallContext, resolver: CallResolver, original: Any) -> None:
        self._subject, self._context, self._resolver, self._original = subject, context, resolver, original
        self._journal = context.journal

    def open(self, prompt: Any, given: dict[str, Any]) -> Events:
        """Decide what the call means, and return its events."""
        admission = self._resolver.resolve(prompt)
        is_unanswered = isinstance(admission, Start) and self._is_interrupted() and answers_in(prompt) is None
        if admission is None or is_unanswered:  # nobody asked, or it waits for answers from elsewhere: Strands says so
            events: Events = self._original(prompt, **given)
            return events
        if isinstance(admission, (ReturnRecorded, RaiseRecorded)):
            return self._over(admission, given)
        call, prompt = self._opened(admission, prompt, given)
        start, close = partial(self._start, call, prompt, given), partial(self._close, call)
        return stream_call(call, start, partial(self._seen, call), partial(self._failed, call), close)

    def _over(self, admission: ReturnRecorded | RaiseRecorded, given: dict[str, Any]) -> Events:
        """Give the recorded end of a call, and run nothing."""
        record = admission.record
        if isinstance(admission, ReturnRecorded):
            say_returned(self._journal, record, self._config)
        reruns.note_object(self._subject, self._journal, record)
        if isinstance(admission, RaiseRecorded):
            self.restored(record)
            self._resolver.raised(record, ran_here=False)
            raise admission.error
        result = self.returned(record, given)
        if record.status is ExecutionStatus.FAILED:  # an orchestrator had returned it, and may be asked for it again
            self._resolver.raised(record, ran_here=False)
        else:  # not before there is something to return: asked for again, it is this call again
            self._resolver.ended(record)
        return only({"result": result, "recorded": True})

    @abstractmethod
    def _is_interrupted(self) -> bool:
        """Say whether the subject waits for answers."""

    @abstractmethod
    def _config(self) -> Config:
        """Return what the subject is made of now."""

    @abstractmethod
    def _opened(
        self, admission: Start | Resume | ResumeWithAnswers, prompt: Any, given: dict[str, Any]
    ) -> tuple[AnyCall, Any]:
        """Return the call to run, and what Strands is to be given as its prompt."""

    def _drifted(self, step: str, changes: list[str]) -> None:
        """Stop where what resumes is not what was recorded, or warn of it."""
        if self._context.options.on_drift == "raise":
            raise DriftError(self._journal.execution_id, step, changes)
        logger.warning(
            "execution_id=<%s>, step=<%s>, changes=<%s> | agent changed, going on",
            self._journal.execution_id, step, "; ".join(changes),
        )  # fmt: skip

    # Running

    def _start(self, call: AnyCall, prompt: Any, given: dict[str, Any]) -> Events:
        given = self._enter(call, given)
        self._resolver.began(call.record)
        events: Events = self._original(prompt, **given)
        return reruns.first(events, self._subject, call, given.get("invocation_state"))

    @abstractmethod
    def _enter(self, call: AnyCall, given: dict[str, Any]) -> dict[str, Any]:
        """Have Strands' hooks find the call; return what Strands is to be given besides the prompt."""

    @abstractmethod
    def _close(self, call: AnyCall) -> None:
        """Have Strands' hooks find the call no more."""

    @abstractmethod
    def _seen(self, call: AnyCall, event: Any) -> None:
        """Record the end of the call, if this is its result."""

    def _failed(self, call: AnyCall, error: BaseException) -> None:
        """Record a failure if it is one: a lost lease, a broken store or the end of the process is not."""
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
        """Assume nothing of what was written: the call did not end."""

    # Returning what is recorded

    @abstractmethod
    def returned(self, record: CallRecord, given: dict[str, Any]) -> Any:
        """Put the subject where a recorded call left it, and return what the call had returned."""

    @abstractmethod
    def restored(self, record: CallRecord) -> None:
        """Put the subject where a recorded call left it."""


def is_elsewhere(error: BaseException) -> bool:
    """Say whether a call neither failed nor was left by its caller: it is for another owner, another agent or another time."""
    if isinstance(error, Interrupted):
        return False
    return isinstance(
        error, (LeaseLostError, BackendUnavailableError, DriftError, UnreadableError, ExecutionReleasedError)
    )


def responses(answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return answers in the form that Strands takes."""
    return [{"interruptResponse": {"interruptId": name, "response": answer}} for name, answer in answers.items()]
