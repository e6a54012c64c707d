"""A handle on an execution whose engine keeps a log: everything is read from the log, so it needs no running worker.

`LogBackend` supplies what differs between engines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._calls.context import waiting_for_execution
from .._dispatch.forks import fork_id
from .._dispatch.handles import ExecutionHandle
from .._dispatch.requests import Requests
from .._journal.outcome import result_of
from .._records.change_sets import ChangeSet
from .._records.deadline import limited
from .._records.executions import ExecutionStatus
from .._records.keys import checked_id
from .._records.origins import ForkChanges, ForkPoint, checked_step
from .._records.printable import url_for_people
from .._records.questions import interrupts_of
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from .._records.views import ExecutionDetail, StepSummary
from .._sqlite.following import steps_after
from ..errors import (
    BackendUnavailableError,
    BytesNotFoundError,
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionNotFoundError,
)
from .export_files import exported
from .forks import forked, point_of, rows_at, stood_at
from .log import Position, Presence, RecordedExecution, StaleError
from .replica import Replica

if TYPE_CHECKING:
    from .backend import LogBackend

S = ExecutionStatus
AT_WORK = (S.PENDING, S.RUNNING)
_TRIES = 20


class LogHandle(ExecutionHandle):
    """One execution of an engine that keeps a log."""

    def __init__(self, backend: LogBackend, execution_id: str) -> None:
        self._log_backend, self.execution_id = backend, execution_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.execution_id!r})"

    # What an engine may override

    async def _read(self, *, whole: bool = False) -> RecordedExecution:
        """Return the execution as it is recorded; with ``whole``, including what was compacted, if it still exists."""
        return await self._log_backend.read(self.execution_id)

    async def _versions(self) -> AsyncIterator[RecordedExecution]:
        """Yield the execution as it is recorded, and again whenever something was appended."""
        backend, known = self._log_backend, await self._read(whole=True)
        while True:
            yield known
            await backend.changed(self.execution_id, known.position)
            known.advance([entry async for entry in backend.log.read(self.execution_id, known.position)])

    async def _append(self, base: Position, changes: ChangeSet, what: str) -> bool:
        """Append changes and notify workers; False if the execution has changed since ``base``."""
        try:
            await self._log_backend.log.append(self.execution_id, base, changes)
        except StaleError:
            return False
        await self._log_backend.wake(self.execution_id)
        return True

    async def _resumed(self, known: RecordedExecution) -> bool:
        """Append the changes that let a worker resume the execution; False if it has changed since it was read."""
        return await self._appended(known, "What is resumed")

    async def _at_rest(self) -> None:
        """Return when the execution has ended, or waits for a person."""
        async for known in self._versions():
            if known.status not in AT_WORK:
                return

    async def _why_it_waits(self) -> str | None:
        """Return why the execution makes no progress; None if a worker runs it, or may do so soon."""
        presence = await self._presence(await self._read())
        return f"no worker takes it: {presence.note}" if presence.note and presence.owner is None else None

    async def _presence(self, known: RecordedExecution) -> Presence:
        return await self._log_backend.presence(self.execution_id)

    # What a handle does

    async def status(self) -> ExecutionStatus:
        """Return what the execution is doing."""
        return (await self._read()).status

    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait for the end, or until the execution waits for a person, and return it."""
        if await self.status() in AT_WORK:
            await self._until_at_rest(timeout)
        known = await self._read()
        journal = known.journal()
        record, status = journal.call_at(0), known.status
        if status is S.CANCELLED:
            raise ExecutionCancelledError(self.execution_id)
        assert record is not None
        if status is S.FAILED:
            raise self._failure(known)
        return result_of(journal, record)

    async def _until_at_rest(self, timeout: float | None) -> None:
        try:
            with waiting_for_execution():
                await limited(self._at_rest(), timeout)
        except TimeoutError:
            status, why = (await self.status()).value, await self._why_it_waits()
            text = f"Execution {self.execution_id!r} is still {status} after {timeout:g} s; "
            raise TimeoutError(text + ("it continues" if why is None else why)) from None

    def _failure(self, known: RecordedExecution) -> ExecutionFailedError:
        journal = known.journal()
        record = journal.call_at(0)
        if record is not None and record.status is S.FAILED:
            return Requests(known.replica).failure(journal, record)
        return ExecutionFailedError(self.execution_id, known.failure, "Its handle's resume() retries it.")

    async def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""
        known = await self._read()
        journal = known.journal()
        record = journal.call_at(0)
        if record is None or known.status is not S.SUSPENDED or record.status is not S.SUSPENDED:
            return []
        answered = journal.replies(record.call_id)
        return [found for found in interrupts_of(record) if found.id not in answered]

    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id."""
        for _ in range(_TRIES):
            known = await self._read()
            if known.status is S.CANCELLED:
                raise ExecutionCancelledError(self.execution_id)
            Requests(known.replica).respond(self.execution_id, answers, by)
            if await self._appended(known, "The answers"):
                return
        raise self._too_fast("answered")

    async def cancel(self) -> None:
        """Stop the execution for good."""
        for _ in range(_TRIES):
            if await self.status() not in (*AT_WORK, S.SUSPENDED):
                return
            if await self._log_backend.ask_to_stop(self.execution_id):
                return
            known = await self._read()
            Requests(known.replica).cancel(self.execution_id)
            if await self._appended(known, "The cancellation"):
                return
        raise self._too_fast("cancelled")

    async def resume(self, *, accept_drift: bool = False) -> None:
        """Try a failed execution again, from the failed step."""
        for _ in range(_TRIES):
            known = await self._read()
            if known.status is S.CANCELLED:
                raise ExecutionCancelledError(self.execution_id)
            is_due = accept_drift and known.status is not S.COMPLETED
            if known.status is not S.FAILED and not is_due:
                return
            if known.status is not S.FAILED and (await self._presence(known)).owner is not None:
                return  # it is running, with the version that it accepted; the worker of a failed one is about to leave it
            Requests(known.replica).resume(self.execution_id, accept_drift=accept_drift)
            if await self._resumed(known):
                return
        raise self._too_fast("resumed")

    async def fork(
        self,
        *,
        at: int | None = None,
        execution_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        messages: Sequence[Any] | None = None,
        prompt: Any = None,
        by: str | None = None,
    ) -> ExecutionHandle:
        """Start a new execution from a finished step of this one, as far as the log still has that step apart."""
        new_id = fork_id(self.execution_id) if execution_id is None else checked_id(execution_id)
        origin = await self._stood_at(at)
        rows = forked(origin, self.execution_id, at, new_id, ForkChanges.of(state, messages, prompt, by))
        return await self._log_backend.begin_fork(self.execution_id, new_id, rows)

    async def fork_point(self, at: int | None = None) -> ForkPoint:
        """Return the conversation and the state that a fork would begin with."""
        return point_of(rows_at(await self._stood_at(at), self.execution_id, at), self.execution_id)

    async def _stood_at(self, at: int | None) -> Replica:
        """Return the execution as it was when a step had ended."""
        checked_step(at)
        entries = await self._log_backend.entries(self.execution_id)
        if not entries:
            raise ExecutionNotFoundError(self.execution_id, url_for_people(self._log_backend.url))
        return stood_at(self.execution_id, entries, at)

    async def _appended(self, known: RecordedExecution, what: str) -> bool:
        changes = known.replica.changes()
        return not changes or await self._append(known.position, changes, what)

    def _too_fast(self, what: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            url_for_people(self._log_backend.url), f"the execution kept changing while it was {what}"
        )

    async def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""
        return list((await self.detail()).steps)

    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        known = await self._read(whole=True)
        return known.detail(await self._presence(known), run)

    async def recorded_bytes(self, digest: str) -> bytes:
        """Return bytes of more than a kilobyte."""
        found = (await self._read(whole=True)).replica.recorded_bytes(digest)
        if found is None:
            raise BytesNotFoundError(self.execution_id, digest)
        return found

    async def export(self, *, contents: bool = True) -> dict[str, Any]:
        """Return everything that is recorded of the execution, or its shape."""
        known = await self._read(whole=True)
        return exported(known.replica.export(), self.execution_id, contents=contents)

    async def stream(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Follow the execution by its committed steps; a log has no chunks of running ones."""
        async for known in self._versions():
            for event in steps_after(known.journal(), after):
                after = event["number"]
                yield event
            if known.status not in AT_WORK and await self.status() is known.status:
                return  # else the engine does not know of it yet
