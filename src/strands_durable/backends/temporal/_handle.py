"""One execution on Temporal, held from any process: everything is read from history, so that no worker need run for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from ..._calls.context import waiting_for_execution
from ..._dispatch.ports import ExecutionHandle
from ..._dispatch.requests import Requests
from ..._journal.following import steps_after
from ..._journal.outcome import interrupts_of, result_of
from ..._journal.sqlite.journal import Journal
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ..._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from ..._records.views import ExecutionDetail, StepSummary
from ...errors import BackendUnavailableError, ExecutionCancelledError, ExecutionFailedError
from ._errors import translated
from ._history import ExecutionHistory, status_of, still
from ._pending_activity import pending_activity_of
from ._pollers import watched
from ._protocol import ACCEPT_DRIFT, COMMIT, STALE, Commit
from ._workflow_worker import workflow_worker

if TYPE_CHECKING:
    from ._backend import TemporalBackend

logger = safe_logger(__name__)

S = ExecutionStatus
_TRIES = 20
_ALONE_SECONDS = 3.0
_PATIENCE_SECONDS = 30.0


class TemporalHandle(ExecutionHandle):
    """One execution on Temporal."""

    def __init__(self, backend: TemporalBackend, execution_id: str) -> None:
        self.execution_id = execution_id
        self._backend = backend

    def __repr__(self) -> str:
        return f"TemporalHandle({self.execution_id!r})"

    async def status(self) -> ExecutionStatus:
        """Return what the execution is doing."""
        with self._translated():
            return await status_of(await self._backend.describe(self.execution_id))

    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait for the end, or until the execution waits for a person, and return it."""
        status = await self.status()
        if status in (S.PENDING, S.RUNNING):
            await self._until_still(timeout)
        story = await self._story()
        journal = story.journal()
        record, status = journal.call_at(0), story.status
        if status is S.CANCELLED:
            raise ExecutionCancelledError(self.execution_id)
        assert record is not None
        if status is S.FAILED:
            raise self._failure(story, journal)
        return result_of(journal, record)

    async def _until_still(self, timeout: float | None) -> None:
        waiting = still(await self._backend.client(), self._backend.workflow_id(self.execution_id))
        try:
            with waiting_for_execution(), self._translated():
                async with watched(self.execution_id, self._why_it_waits):
                    await asyncio.wait_for(waiting, timeout)
        except TimeoutError:
            status, why = (await self.status()).value, await self._why_it_waits()
            text = f"Execution {self.execution_id!r} is still {status} after {timeout:g} s; "
            raise TimeoutError(text + ("it continues" if why is None else why)) from None

    async def _why_it_waits(self) -> str | None:
        """Return why nothing happens to an execution; None if a worker has it, or may have it soon."""
        description = await self._backend.describe(self.execution_id)
        presence = await pending_activity_of(await self._backend.client(), description)
        if presence.owner is not None or await status_of(description) not in (S.PENDING, S.RUNNING):
            return None
        return f"no worker takes it: {presence.note}" if presence.note else await self._backend.unattended()

    def _failure(self, story: ExecutionHistory, journal: Journal) -> ExecutionFailedError:
        record = journal.call_at(0)
        if record is not None and record.status is S.FAILED:
            return Requests(story.replica).failure(journal, record)
        return ExecutionFailedError(self.execution_id, story.failure, "Its handle's resume() retries it.")

    async def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""
        story = await self._story()
        journal = story.journal()
        record = journal.call_at(0)
        if record is None or story.status is not S.SUSPENDED or record.status is not S.SUSPENDED:
            return []
        answered = journal.replies(record.call_id)
        return [found for found in interrupts_of(record) if found.id not in answered]

    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id."""
        for _ in range(_TRIES):
            story = await self._story()
            if story.status is S.CANCELLED:
                raise ExecutionCancelledError(self.execution_id)
            Requests(story.replica).respond(self.execution_id, answers, by)
            rows = story.replica.changes()
            sent = self._backend.payload_store.offload(rows, "The answers")
            if not rows or await self._committed({"base": story.position, "rows": sent}):
                return
        raise BackendUnavailableError(str(self._backend.config), "the execution kept changing while it was answered")

    async def _committed(self, given: Commit) -> bool:
        """Add something to the execution; False if it is no longer as it was when it was read."""
        handle = await self._backend.workflow(self.execution_id)
        try:
            with self._translated():
                await self._brought_in(handle.execute_update(COMMIT, given))
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == STALE:
                return False
            raise
        return True

    async def _brought_in(self, updating: Awaitable[Any]) -> None:
        """Wait for an update; where no worker is there to take it, this process does what a worker does for the workflow."""
        update = asyncio.ensure_future(updating)
        try:
            done, _ = await asyncio.wait({update}, timeout=_ALONE_SECONDS)
            if not done:
                async with workflow_worker(await self._backend.client(), self._backend.config.task_queue):
                    await asyncio.wait_for(update, _PATIENCE_SECONDS)
            update.result()
        except TimeoutError:
            raise BackendUnavailableError(
                str(self._backend.config), f"execution {self.execution_id!r} takes no updates", "Start a worker."
            ) from None
        finally:
            update.cancel()

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._backend.config, self.execution_id)

    async def cancel(self) -> None:
        """Stop the execution for good."""
        handle = await self._backend.workflow(self.execution_id)
        status = await self.status()
        if status in (S.PENDING, S.SUSPENDED):
            await self._backend.asked(handle.terminate("cancelled"))
        elif status is S.RUNNING:
            await self._backend.asked(handle.cancel())

    async def resume(self, *, accept_drift: bool = False) -> None:
        """Try a failed execution again, from the failed step: a new run of its workflow."""
        story = await self._story()
        if story.status is S.CANCELLED:
            raise ExecutionCancelledError(self.execution_id)
        if story.status is S.FAILED:
            Requests(story.replica).resume(self.execution_id, accept_drift=accept_drift)
            await self._backend.go_on(story)
        elif accept_drift and story.status is not S.COMPLETED:
            await self._accept_drift()

    async def _accept_drift(self) -> None:
        """Leave word in the history for the next worker that takes the execution over; one that is at work needs none."""
        if (
            await pending_activity_of(await self._backend.client(), await self._backend.describe(self.execution_id))
        ).owner:
            return
        handle = await self._backend.workflow(self.execution_id)
        await self._backend.asked(handle.signal(ACCEPT_DRIFT))

    async def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""
        return list((await self.detail()).steps)

    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        story = await self._story(whole=True)
        return story.detail(await pending_activity_of(await self._backend.client(), story.description), run)

    async def stream(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Follow the execution, by its committed steps; Temporal carries no pieces of those under way."""
        async for story in self._backend.stories(self.execution_id):
            for event in steps_after(story.journal(), after):
                after = event["number"]
                yield event
            if story.status not in (S.PENDING, S.RUNNING) and await self.status() is story.status:
                return  # else the workflow has yet to hear of it

    async def _story(self, *, whole: bool = False) -> ExecutionHistory:
        return await self._backend.story(self.execution_id, whole=whole)
