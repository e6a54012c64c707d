"""A handle on one execution on Temporal, for any process: everything is read from history, so it needs no running worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from ..._enginekit.handle import AT_WORK, LogHandle
from ..._enginekit.log import Presence, RecordedExecution
from ..._records.change_sets import ChangeSet
from ..._records.executions import ExecutionStatus
from ...errors import BackendUnavailableError, ExecutionNotFoundError
from ._errors import translated
from ._history import ExecutionHistory, status_of, still
from ._pending_activity import pending_activity_of
from ._pollers import watched
from ._protocol import ACCEPT_DRIFT, COMMIT, STALE, Commit, Position
from ._workflow_worker import workflow_worker

if TYPE_CHECKING:
    from ._backend import TemporalBackend

S = ExecutionStatus
_ALONE_SECONDS = 3.0
_PATIENCE_SECONDS = 30.0


class TemporalHandle(LogHandle):
    """One execution on Temporal."""

    def __init__(self, backend: TemporalBackend, execution_id: str) -> None:
        super().__init__(backend, execution_id)
        self._backend = backend

    async def status(self) -> ExecutionStatus:
        """Return what the execution is doing."""
        with self._translated():
            return await status_of(await self._backend.describe(self.execution_id))

    async def _read(self, *, whole: bool = False) -> RecordedExecution:
        return await self._backend.history(self.execution_id, whole=whole)

    async def _versions(self) -> AsyncIterator[RecordedExecution]:
        async for known in self._backend.histories(self.execution_id):
            yield known

    async def _at_rest(self) -> None:
        with self._translated():
            async with watched(self.execution_id, self._why_it_waits):
                await still(await self._backend.client(), self._backend.workflow_id(self.execution_id))

    async def _why_it_waits(self) -> str | None:
        description = await self._backend.describe(self.execution_id)
        presence = await pending_activity_of(await self._backend.client(), description)
        if presence.owner is not None or await status_of(description) not in AT_WORK:
            return None
        return f"no worker takes it: {presence.note}" if presence.note else await self._backend.unattended()

    async def _presence(self, known: RecordedExecution) -> Presence:
        return await pending_activity_of(await self._backend.client(), cast(ExecutionHistory, known).description)

    async def _append(self, base: Position, changes: ChangeSet, what: str) -> bool:
        """Append changes to the execution; False if it has changed since it was read."""
        given: Commit = {"base": base, "rows": self._backend.payload_store.offload(changes, what)}
        handle = await self._backend.workflow(self.execution_id)
        try:
            with self._translated():
                await self._brought_in(handle.execute_update(COMMIT, given))
        except ExecutionNotFoundError:
            return False  # its workflow was terminated, or removed
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == STALE:
                return False
            raise
        return True

    async def _brought_in(self, updating: Awaitable[Any]) -> None:
        """Wait for an update; if no worker takes it, this process runs the workflow itself for a moment."""
        update = asyncio.ensure_future(updating)
        try:
            done, _ = await asyncio.wait({update}, timeout=_ALONE_SECONDS)
            if not done:
                async with workflow_worker(await self._backend.client(), self._backend.config.task_queue):
                    done, _ = await asyncio.wait({update}, timeout=_PATIENCE_SECONDS)
            if not done:
                raise BackendUnavailableError(
                    str(self._backend.config), f"execution {self.execution_id!r} takes no updates", "Start a worker."
                )
            update.result()
        finally:
            update.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # of a cancel, too
            update.cancel()

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._backend.config, self.execution_id)

    async def _resumed(self, known: RecordedExecution) -> bool:
        """Start a new run of a failed workflow; else signal that the next worker may accept drift."""
        history = cast(ExecutionHistory, known)
        if known.status is S.FAILED and not history.is_closed:  # its failure is recorded, and its workflow about to end
            await self._brought_in(self._at_rest())
            return False
        if known.status is S.FAILED:
            await self._backend.resume_run(history)
        else:
            handle = await self._backend.workflow(self.execution_id)
            await self._backend.asked(handle.signal(ACCEPT_DRIFT))
        return True
