"""The workflows of executions: started and woken by clients and workers, and repaired where Dapr has lost a message.

Dapr drops the reminders of activities now and then, for example while its scheduler restarts: such a workflow waits for an
activity for ever. Workers run its execution nevertheless, and replace the workflow once the execution is at rest.
"""

from __future__ import annotations

import asyncio

from dapr.ext.workflow import WorkflowStatus

from ..._enginekit.key_value.engine import KeyValueEngine
from ..._enginekit.key_value.head import Head
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ...errors import BackendUnavailableError
from ._client import Sidecar, WorkflowInstance
from ._workflow import WAKE, WORKFLOW, payload_of

logger = safe_logger(__name__)

_START_SECONDS = 2.0
_ENDING_TRIES, _ENDING_SECONDS = 20, 0.05


def belongs(instance: WorkflowInstance, head: Head) -> bool:
    """Return whether a workflow is that of an execution, as it is now."""
    return instance.life == head.life and (not instance.has_ended or instance.resumes == head.resumes)


class Workflows:
    """The workflows behind a sidecar."""

    def __init__(self, sidecar: Sidecar, engine: KeyValueEngine) -> None:
        self._sidecar, self._engine = sidecar, engine

    async def notify(self, execution_id: str) -> None:
        """Start the workflow of an execution that needs a worker, or wake it; if that fails, workers try it again."""
        for _ in range(_ENDING_TRIES):
            head = await self._engine.log.head(execution_id)
            try:
                instance = await self._sidecar.workflow(execution_id)
            except BackendUnavailableError as error:
                logger.debug("execution_id=<%s>, error=<%s> | not notified", execution_id, error)
                return
            if head is None:
                return
            if instance is None or instance.has_ended:
                if not head.has_ended and not (
                    instance is None and head.is_child
                ):  # the user's workflow starts that one
                    await self._start(execution_id, head)
                return
            if head.before != ExecutionStatus.FAILED.value or instance.life != head.life:
                break
            await asyncio.sleep(_ENDING_SECONDS)  # it was resumed, and the workflow of the failed run is about to end
        await self._sidecar.raise_event(execution_id, WAKE)

    async def _start(self, execution_id: str, head: Head) -> None:
        if await self._engine.workers.beating():  # else Dapr would not answer
            has_steps = self._sidecar.config.has_steps
            payload = payload_of(execution_id, head.life, has_steps=has_steps, resumes=head.resumes)
            await self._sidecar.start_workflow(WORKFLOW, execution_id, payload, _START_SECONDS)

    async def of(self, execution_id: str, head: Head) -> WorkflowInstance | None:
        """Return the workflow of an execution; None if there is none, or if Dapr does not answer.

        One that has ended before the execution was resumed is not it: what a person did to it then was not meant for this run.
        """
        try:
            instance = await self._sidecar.workflow(execution_id)
        except BackendUnavailableError as error:
            logger.debug("execution_id=<%s>, error=<%s> | workflow unknown", execution_id, error)
            return None
        return instance if instance is not None and belongs(instance, head) else None

    async def is_paused(self, execution_id: str, head: Head) -> bool:
        """Return whether a person has paused a workflow."""
        instance = await self.of(execution_id, head)
        return instance is not None and instance.status is WorkflowStatus.SUSPENDED

    async def is_terminated(self, execution_id: str, head: Head) -> bool:
        """Return whether a person has terminated a workflow."""
        instance = await self.of(execution_id, head)
        return instance is not None and instance.is_terminated

    async def settle(self, execution_id: str, head: Head) -> None:
        """Replace a workflow that has not noticed for a while that its execution is at rest."""
        instance = await self.of(execution_id, head)
        if instance is None or instance.is_terminated or instance.status is WorkflowStatus.SUSPENDED:
            return
        if not instance.has_ended:
            if not head.has_ended and instance.shows == head.status:
                return
            logger.warning("execution_id=<%s> | its workflow has lost its activity and is replaced", execution_id)
            await self._sidecar.supersede(execution_id)
            await self._until_ended(execution_id, head)
        if not head.has_ended:  # also if the worker that superseded it was killed before it started another
            await self.notify(execution_id)

    async def _until_ended(self, execution_id: str, head: Head) -> None:
        """Return when a superseded workflow has ended, or after a moment: an event that is sent to it until then is lost."""
        for _ in range(_ENDING_TRIES):
            instance = await self.of(execution_id, head)
            if instance is None or instance.has_ended:
                return
            await asyncio.sleep(_ENDING_SECONDS)
