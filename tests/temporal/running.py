"""A Temporal backend with a worker in a thread, for one test."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing.temporal import TemporalServer
from tests import threads


def url_of(server: TemporalServer, **options: Any) -> str:
    """Return a URL with a task queue and ids of its own."""
    name = uuid.uuid4().hex[:8]
    given = {"task_queue": name, "prefix": f"{name}-", **options}
    return f"{server.url}?" + "&".join(f"{key}={value}" for key, value in given.items())


@contextmanager
def working(url: str, *, concurrency: int = 10, **given: Any) -> Iterator[None]:
    """Run a worker in a thread with a loop of its own."""
    backend = TemporalBackend(url, **given)
    with threads.worker(lambda stop: backend.work(stop=stop, drain_seconds=5, concurrency=concurrency)):
        yield


async def history(backend: TemporalBackend, execution_id: str) -> list[HistoryEvent]:
    """Return the events of all runs of an execution's workflow, the oldest first."""
    client, workflow_id = await backend.client(), backend.workflow_id(execution_id)
    run_id = (await client.get_workflow_handle(workflow_id).describe()).run_id or ""
    found: list[HistoryEvent] = []
    while run_id:
        events = [each async for each in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events()]
        found = events + found
        run_id = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return found


def activities(events: list[HistoryEvent]) -> list[str]:
    """Return the names of the activities that were scheduled, in order."""
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


def kinds(events: list[HistoryEvent]) -> Counter[str]:
    """Return how many events of each kind there are."""
    return Counter(EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events)
