"""Rebuilds an execution from the histories of its workflow's runs, and follows them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from ..._dispatch.queue import Queue
from ..._enginekit.log import Presence, RecordedExecution
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.replica import Replica
from ..._records.change_sets import ChangeSet
from ..._records.executions import ExecutionStatus
from ..._records.views import ExecutionDetail
from ...errors import BackendUnavailableError
from ._errors import is_astray, is_unknown
from ._history_reader import HistoryReader, events_of, read
from ._protocol import Position

S = ExecutionStatus
_T = WorkflowExecutionStatus
_CLOSED = {
    _T.COMPLETED: S.COMPLETED,
    _T.FAILED: S.FAILED,
    _T.TIMED_OUT: S.FAILED,
    _T.CANCELED: S.CANCELLED,
    _T.TERMINATED: S.CANCELLED,
}
_SHOWING = {
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
}
"""The events that show a change of an execution's status."""


async def status_of(description: WorkflowExecution) -> ExecutionStatus:
    """Return the status of an execution from Temporal's description of its workflow."""
    if description.status in _CLOSED:
        return _CLOSED[description.status]
    return S((await description.memo()).get("status", "PENDING"))


class ExecutionHistory(RecordedExecution):
    """An execution as the runs of its workflow record it, oldest run first."""

    def __init__(self, description: WorkflowExecutionDescription, logs: list[HistoryReader]) -> None:
        self.description = description
        self.run_id = description.run_id or ""
        self.ended_as = "" if description.status is None else description.status.name
        self._closed = _CLOSED.get(description.status) if description.status is not None else None
        self._logs = logs
        self._applied: list[tuple[int, int]] = []
        super().__init__(logs[0].start["execution_id"], _begun(self._logs), None)
        self.follow()

    def entries(self) -> list[ChangeSet]:
        """Return its change sets one by one: what the last run began with, and its batches."""
        return [_begun(self._logs).export(), *map(self._logs[-1].batch, self._applied)]

    def follow(self) -> None:
        """Apply what the last run has recorded since."""
        log = self._logs[-1]
        places, known = log.batches(), len(self._applied)
        if places[:known] != self._applied:  # batches of a worker that was given up were applied
            self.replica, known = _begun(self._logs), 0
        self.replica.apply(*map(log.batch, places[known:]))
        self._applied, self.position = places, log.position()

    @property
    def is_closed(self) -> bool:
        """Whether the workflow has ended."""
        return self._closed is not None

    @property
    def failure(self) -> str:
        """Why the workflow has ended, if the execution itself has not failed."""
        return self._logs[-1].failure or f"its workflow has ended as {self.ended_as}"

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self._logs[-1].start["agent"]

    @property
    def status(self) -> ExecutionStatus:
        """What the execution is doing."""
        return self._closed or self.journal().status()

    def detail(self, presence: Presence, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        if self._closed is not None:
            self.close(self._closed, "temporal:WorkflowFailure")
        if presence.is_left:
            self._logs[-1].withdraw(self.replica)
            Queue(self.replica).clear_suspicion()
        return super().detail(presence, run)


def _begun(logs: list[HistoryReader]) -> Replica:
    """Return the execution as it was when the last of these runs began."""
    first = logs[0]
    replica = first.empty()
    replica.apply(first.rows())
    for log, following in itertools.pairwise(logs):
        replica.apply(*map(log.batch, log.batches()), following.changes())
    return replica


async def rebuilt(
    client: Client, payload_store: PayloadStore, workflow_id: str, run_id: str, upto: Position
) -> Replica:
    """Return an execution as a run of its workflow left it."""
    logs = await _logs(client, payload_store, workflow_id, run_id, whole=False)

    def build() -> Replica:
        replica, last = _begun(logs), logs[-1]
        if last.position() != upto:
            raise BackendUnavailableError(workflow_id, f"the run {run_id} ends at {last.position()}, not at {upto}")
        replica.apply(*map(last.batch, last.batches()))
        return replica

    return await asyncio.to_thread(build)


async def execution_history(
    client: Client, payload_store: PayloadStore, workflow_id: str, *, whole: bool = False
) -> ExecutionHistory:
    """Read an execution; with ``whole``, including the results of continued runs, as far as Temporal still has them."""
    description = await client.get_workflow_handle(workflow_id).describe()
    logs = await _logs(client, payload_store, workflow_id, description.run_id or "", whole)
    return await asyncio.to_thread(ExecutionHistory, description, logs)


async def _logs(
    client: Client, payload_store: PayloadStore, workflow_id: str, run_id: str, whole: bool
) -> list[HistoryReader]:
    logs = [await read(client, payload_store, workflow_id, run_id)]
    while (whole or not logs[0].is_rooted) and logs[0].continued_from:
        try:
            logs.insert(0, await read(client, payload_store, workflow_id, logs[0].continued_from))
        except RPCError as error:
            if not is_unknown(error) or not logs[0].is_rooted:
                raise
            break  # Temporal has deleted it
    return logs


async def runs_of(client: Client, payload_store: PayloadStore, workflow_id: str, run_id: str) -> list[str]:
    """Return a run and the runs that it continues, as far as Temporal still has them."""
    runs: list[str] = []
    while run_id:
        log = HistoryReader(client.data_converter, payload_store)
        try:
            async for event in events_of(client, workflow_id, run_id):
                await log.add(event)
                break
        except RPCError as error:
            if not is_unknown(error):
                raise
        else:
            runs.append(run_id)
        run_id = log.continued_from
    return runs


async def execution_histories(
    client: Client, payload_store: PayloadStore, workflow_id: str
) -> AsyncIterator[ExecutionHistory]:
    """Yield an execution as it is now, and again after each batch or change of status, until its workflow is closed."""
    while True:
        description = await client.get_workflow_handle(workflow_id).describe()
        run_id = description.run_id or ""
        logs = await _logs(client, payload_store, workflow_id, run_id, whole=True)
        if description.status is not _T.RUNNING:
            yield ExecutionHistory(description, logs)
            return
        log = logs[-1] = HistoryReader(client.data_converter, payload_store)
        found: ExecutionHistory | None = None
        async for event in _coming(client, workflow_id, run_id):
            is_new = await log.add(event)
            if event.event_id < description.history_length:
                continue
            if found is None:
                found = ExecutionHistory(description, logs)
            elif is_new:
                found.follow()
            if is_new or event.event_type in _SHOWING or event.event_id == description.history_length:
                yield found


async def _coming(client: Client, workflow_id: str, run_id: str) -> AsyncIterator[Any]:
    """Yield the events of a run, and new ones until it is closed; stop early if it must be read again from the start."""
    try:
        async for event in events_of(client, workflow_id, run_id, waiting=True):
            yield event
    except RPCError as error:
        if not is_astray(error):
            raise


async def still(client: Client, workflow_id: str) -> None:
    """Return when an execution has ended, or waits for a person."""
    while True:
        description = await client.get_workflow_handle(workflow_id).describe()
        if await status_of(description) not in (S.PENDING, S.RUNNING):
            return
        await _shown(client, workflow_id, description)


async def _shown(client: Client, workflow_id: str, description: WorkflowExecutionDescription) -> None:
    """Return when history shows a change of an execution's status."""
    async for event in _coming(client, workflow_id, description.run_id or ""):
        if event.event_id > description.history_length and event.event_type in _SHOWING:
            return
