"""A task queue with workers in processes of their own, and what must be equal whether they are killed or not."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from strands_durable import ExecutionHandle, connect
from strands_durable._enginekit.log import RecordedExecution
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.backends.temporal._protocol import ALIVE, PROGRESS
from strands_durable.testing.temporal import TemporalServer
from tests.crash.site import PATIENCE_SECONDS, EngineSite

__all__ = ["HEARTBEAT_SECONDS", "PATIENCE_SECONDS", "Site"]

HEARTBEAT_SECONDS = 2


class Site(EngineSite):
    """A task queue of its own."""

    backend: TemporalBackend

    def __init__(self, server: TemporalServer, folder: Path, **options: Any) -> None:
        name = uuid.uuid4().hex[:8]
        given = {"task_queue": name, "prefix": f"{name}-", "heartbeat_seconds": HEARTBEAT_SECONDS, **options}
        super().__init__(f"{server.url}?" + "&".join(f"{key}={value}" for key, value in given.items()), folder)
        backend = connect(self.url)
        assert isinstance(backend, TemporalBackend)
        self.backend = backend

    def recorded(self, handle: ExecutionHandle) -> RecordedExecution:
        """Return what is in the history of an execution."""
        return self.run(self.backend.history(handle.execution_id))

    def given_out(self, handle: ExecutionHandle) -> list[str]:
        """Return the names of the activities that an execution has had so far, begun or not."""
        return [*self._activities(handle)[0].values()]

    def completed(self, handle: ExecutionHandle) -> list[str]:
        """Return the names of the activities of an execution that have completed."""
        names, ended = self._activities(handle)
        return [names[event_id] for event_id in ended]

    def pardon(self, handle: ExecutionHandle, epoch: int) -> None:
        """Say that a worker that is lost lives."""

        async def say() -> None:
            await (await self.backend.workflow(handle.execution_id)).signal(ALIVE, {"epoch": epoch})

        self.run(say())

    def signal_late(self, handle: ExecutionHandle, epoch: int) -> None:
        """Signal the first batch of a later worker again, as an earlier one that was given up before its signal would."""

        async def send() -> None:
            workflow = await self.backend.workflow(handle.execution_id)
            async for event in workflow.fetch_history_events():
                signaled = event.workflow_execution_signaled_event_attributes
                if signaled.signal_name == PROGRESS:
                    converter = (await self.backend.client()).data_converter
                    (batch,) = await converter.decode(signaled.input.payloads)
                    await workflow.signal(PROGRESS, {**batch, "epoch": epoch})

        self.run(send())

    def _activities(self, handle: ExecutionHandle) -> tuple[dict[int, str], list[int]]:
        async def read() -> tuple[dict[int, str], list[int]]:
            names: dict[int, str] = {}
            ended: list[int] = []
            found = await self.backend.workflow(handle.execution_id)
            async for event in found.fetch_history_events():
                if event.HasField("activity_task_scheduled_event_attributes"):
                    names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
                elif event.HasField("activity_task_completed_event_attributes"):
                    ended.append(event.activity_task_completed_event_attributes.scheduled_event_id)
            return names, ended

        return self.run(read())
