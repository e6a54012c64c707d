"""One execution in a SQLite file, as a handle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._calls.context import waiting_for_execution
from .._dispatch.handles import ExecutionHandle
from .._dispatch.requests import Requests
from .._enginekit.export_files import exported
from .._enginekit.forks import point_of, rows_at
from .._journal.outcome import result_of
from .._journal.unreadable import reading
from .._records.executions import ExecutionStatus
from .._records.origins import ForkChanges, ForkPoint, checked_step
from .._records.questions import interrupts_of
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from .._records.views import ExecutionDetail, StepSummary
from .._sqlite.change_feed import change_feed
from .._sqlite.following import follow
from .._sqlite.snapshot import snapshot
from .._sqlite.upkeep import holds
from ..errors import ExecutionCancelledError

if TYPE_CHECKING:
    from .sqlite import SqliteBackend

S = ExecutionStatus


class SqliteHandle(ExecutionHandle):
    """One execution in a SQLite file."""

    def __init__(self, backend: SqliteBackend, execution_id: str) -> None:
        self.execution_id = execution_id
        self._backend = backend

    def __repr__(self) -> str:
        return f"SqliteHandle({self.execution_id!r})"

    async def status(self) -> ExecutionStatus:
        """Return the status of the execution."""
        with reading(self.execution_id):
            return self._requests.journal(self.execution_id).status()

    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait until the execution ends or waits for a person, and return its result."""
        self._backend.carry(self.execution_id)
        store = self._backend.store
        deadline = None if timeout is None else time.monotonic() + timeout
        journal = self._requests.journal(self.execution_id)
        async with change_feed(store).changes(journal.lease.row_id) as change:
            while True:
                journal = self._requests.journal(self.execution_id)
                with reading(self.execution_id):
                    result = self._ended(journal)
                if result is not None:
                    return result
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(self._late(journal.status(), timeout))
                with waiting_for_execution():
                    await change.wait(left)

    def _late(self, status: ExecutionStatus, timeout: float | None) -> str:
        """Return the message for an execution that has not ended in time."""
        record = self._backend.catalog.execution(self.execution_id).execution
        text = f"Execution {self.execution_id!r} is still {status.value} after {timeout:g} s"
        if record.owner is not None:
            return f"{text}; it is running in {record.owner}"
        if record.note:
            return f"{text}; {record.note}"
        return f"{text}, and no process is running it. Start a worker with its agent: strands-durable worker FILE"

    def _ended(self, journal: Any) -> ExecutionResult | None:
        """Return the result of the execution; None while it is queued or running."""
        record, status = self._requests.last_call(journal), journal.status()
        if status is S.CANCELLED:
            raise ExecutionCancelledError(self.execution_id)
        if status in (S.PENDING, S.RUNNING) or record is None or record.status is not status:
            return None  # the call was read before the status: it may have ended or been resumed in between
        if status is S.FAILED:
            raise self._requests.failure(journal, record)
        return result_of(journal, record)

    async def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""
        journal = self._requests.journal(self.execution_id)
        record = self._requests.last_call(journal)
        if record is None or record.status is not S.SUSPENDED:
            return []
        answered = journal.replies(record.call_id)
        return [interrupt for interrupt in interrupts_of(record) if interrupt.id not in answered]

    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id."""
        self._requests.respond(self.execution_id, answers, by)
        self._backend.carry(self.execution_id)

    async def cancel(self) -> None:
        """Stop the execution for good."""
        self._requests.cancel(self.execution_id)

    async def resume(self, *, accept_drift: bool = False) -> None:
        """Retry a failed execution from the failed step."""
        self._requests.resume(self.execution_id, accept_drift=accept_drift)
        self._backend.carry(self.execution_id)

    async def fork(
        self,
        *,
        at: int | None = None,
        execution_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        messages: Sequence[Any] | None = None,
        prompt: Any = None,
        by: str | None = None,
    ) -> SqliteHandle:
        """Start a new execution from a finished step of this one."""
        changes = ForkChanges.of(state, messages, prompt, by)
        found = self._requests.fork(self.execution_id, checked_step(at), execution_id, changes)
        self._backend.carry(found)
        return SqliteHandle(self._backend, found)

    async def fork_point(self, at: int | None = None) -> ForkPoint:
        """Return the conversation and the state that a fork would begin with."""
        return point_of(rows_at(self._backend.store, self.execution_id, checked_step(at)), self.execution_id)

    async def hold(self) -> None:
        """Keep the execution from being removed."""
        holds.hold(self._backend.store, self.execution_id)

    async def release(self) -> None:
        """Take back `hold`."""
        holds.release(self._backend.store, self.execution_id)

    async def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""
        return list((await self.detail()).steps)

    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        return self._backend.catalog.execution(self.execution_id, run)

    async def recorded_bytes(self, digest: str) -> bytes:
        """Return bytes of more than a kilobyte."""
        return self._backend.catalog.recorded_bytes(self.execution_id, digest)

    async def export(self, *, contents: bool = True) -> dict[str, Any]:
        """Return everything that is recorded of the execution, or its shape."""
        rows = await asyncio.to_thread(snapshot, self._backend.store, self.execution_id, with_past=True)
        return exported(rows, self.execution_id, contents=contents)

    async def stream(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Follow the execution."""
        journal = self._requests.journal(self.execution_id)
        journal.refuse_removed()
        self._backend.carry(self.execution_id)
        async for event in follow(journal, after):
            yield event

    @property
    def _requests(self) -> Requests:
        return Requests(self._backend.store)
