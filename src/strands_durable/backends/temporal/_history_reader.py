"""Reads the execution that a workflow's history records: which batches count, and in which order."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any, cast

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from ..._dispatch.queue import Queue
from ..._dispatch.requests import Requests
from ..._enginekit.epochs import EpochLog, Step
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.pieces import Parcels, piece_of
from ..._enginekit.replica import Replica
from ..._records.change_sets import ChangeSet
from ..._records.executions import ACCEPTED
from ..._records.logs import safe_logger
from ..._sqlite.lease import look
from ._protocol import (
    ACCEPT_DRIFT,
    ALIVE,
    CARRY,
    COMMIT,
    DRIVE,
    PIECE,
    PREVIOUS,
    PROGRESS,
    STEPS,
    WAKE,
    Position,
    Start,
    alive_of,
    batch_message_of,
    commit_of,
)

logger = safe_logger(__name__)

_TELLING = {DRIVE, WAKE, *STEPS.values()}


class HistoryReader:
    """Reads the history of one run, event by event."""

    def __init__(self, converter: DataConverter, payload_store: PayloadStore) -> None:
        self._converter, self._payload_store = converter, payload_store
        self.failure = ""
        """What the workflow failed with, if it did."""
        self.start: Start = {}
        self.survivor = 0
        """The last epoch whose worker was given up but is alive."""
        self.accepted_drift = ""
        """Identifies the last time that a client accepted another version of the agent."""
        self.continued_from = ""
        self._parcels = Parcels()
        self._carried: ChangeSet | None = None
        """What the run began with, if that is not in its first event."""
        self._log = EpochLog(self._parcels.has)
        self._scheduled: dict[int, str] = {}
        self._updates: dict[str, Any] = {}
        self._steps: dict[int, tuple[int, Step]] = {}

    async def add(self, event: HistoryEvent) -> bool:
        """Add an event; return True if it contains something new."""
        kind = event.event_type
        if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            return await self._completed(event)
        if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            return await self._scheduling(event)
        if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            canceled = event.activity_task_canceled_event_attributes
            if canceled.scheduled_event_id in self._steps and not canceled.started_event_id:
                self._log.not_started(*self._steps[canceled.scheduled_event_id])
            return False
        if kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            return await self._signaled(event)
        if kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            accepted = event.workflow_execution_update_accepted_event_attributes
            if accepted.accepted_request.input.name == COMMIT:
                update_id = accepted.accepted_request.meta.update_id
                self._updates[update_id] = await self._sent_value(accepted.accepted_request.input.args)
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
            return await self._committing(event)
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            started = event.workflow_execution_started_event_attributes
            self.start = cast(Start, await self._decoded(started.input))
            self.continued_from = started.continued_execution_run_id or self.start.get("previous_run_id", "")
            return True
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            self.failure = getattr(await self._converter.decode_failure(failure), "message", failure.message)
        return False

    async def _signaled(self, event: HistoryEvent) -> bool:
        """Add a signal; ignore a malformed one, as the workflow does."""
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name == ACCEPT_DRIFT:
            self.accepted_drift = str(event.event_time.ToNanoseconds())
        if signal.signal_name == ALIVE:
            alive = alive_of(await self._sent_value(signal.input))
            if alive is not None and "queue" not in alive:
                self.survivor = alive["epoch"]
            return False
        if signal.signal_name == PIECE:
            self._parcels.add(piece_of(await self._sent_value(signal.input)))
            return False
        return signal.signal_name == PROGRESS and self._take_batch(await self._sent_value(signal.input))

    async def _completed(self, event: HistoryEvent) -> bool:
        done = event.activity_task_completed_event_attributes
        name = self._scheduled.get(done.scheduled_event_id)
        if name == CARRY:
            self._carried = await self._decoded(done.result)
            return True
        return name is not None and self._take_batch(await self._decoded(done.result))

    async def _scheduling(self, event: HistoryEvent) -> bool:
        scheduled = event.activity_task_scheduled_event_attributes
        name = scheduled.activity_type.name
        if name in _TELLING or name == CARRY:
            self._scheduled[event.event_id] = name
        if name == DRIVE:
            driving = await self._decoded(scheduled.input)
            self._log.begin(driving["epoch"], driving["base"])
        elif name in _TELLING and name != WAKE:
            given = await self._decoded(scheduled.input)
            if not given.get("held"):  # else it started in an earlier epoch, whatever the outcome of this activity
                self._steps[event.event_id] = given["epoch"], given["step"]
            self._log.start(given["epoch"], given["turn"])
        return False

    async def _committing(self, event: HistoryEvent) -> bool:
        completed = event.workflow_execution_update_completed_event_attributes
        given = commit_of(self._updates.pop(completed.meta.update_id, None))
        if given is None or not completed.outcome.HasField("success"):
            return False
        self._log.commit(given["base"], await self._decoded(completed.outcome.success), given["rows"])
        return True

    def _take_batch(self, given: Any) -> bool:
        message = batch_message_of(given)
        if message is None:
            return False
        waiting = [(turn["id"], turn["step"]) for turn in message["turns"] if not turn.get("held")]
        return self._log.add(message["epoch"], message["number"], message["rows"], waiting)

    def accept_drift(self, replica: Replica) -> None:
        """Let any version take over the execution, if a client accepted that and no worker has acted on it yet."""
        if not self.accepted_drift:
            return
        if self.accepted_drift == Queue(replica).only().given.get(ACCEPTED, {}).get("token"):
            return
        journal = look(replica, self.start["execution_id"]).journal()
        with replica.transaction("drift.accept"):
            Requests(replica).accept_drift(journal, self.accepted_drift)

    def withdraw(self, replica: Replica) -> None:
        """Withdraw the intents of steps that the last worker was to start but did not: they are not in doubt."""
        self._log.withdraw(replica, self.start["execution_id"])

    async def _decoded(self, payloads: Payloads) -> Any:
        found = await self._converter.decode(payloads.payloads)
        return found[0] if found else None

    async def _sent_value(self, payloads: Payloads) -> Any:
        """Return the value that was sent; None if it is not a single value of ours. Codec errors are raised: it may be ours."""
        raw = await self._converter.decode(payloads.payloads, [RawValue] * len(payloads.payloads))
        try:
            (found,) = self._converter.payload_converter.from_payloads([each.payload for each in raw])
        except Exception as error:
            logger.debug("execution_id=<%s>, error=<%r> | ignored", self.start.get("execution_id"), error)
            return None
        return found

    # The execution

    def has_reported(self, epoch: int) -> bool:
        """Return True if a worker of this epoch has reported anything."""
        return self._log.has(epoch)

    def batches(self, upto: Position | None = None) -> list[tuple[int, int]]:
        """Return epoch and number of each batch that counts, in order."""
        return self._log.batches(upto)

    def _received(self, rows: ChangeSet) -> ChangeSet:
        return self._payload_store.load(self._parcels.joined(rows))

    def position(self) -> Position:
        """Return the position at which the next writer begins."""
        return self._log.position(self.start["epoch"])

    def batch(self, place: tuple[int, int]) -> ChangeSet:
        """Return one batch."""
        return self._received(self._log.changes(place))

    def rows(self) -> ChangeSet:
        """Return the execution as it was when the run began."""
        return self._received(self.start["rows"] if self._carried is None else self._carried)

    @property
    def is_rooted(self) -> bool:
        """Whether the history has all that the run began with; else it still has to be copied from the run before."""
        return PREVIOUS not in self.start["rows"] or self._carried is not None

    def changes(self) -> ChangeSet:
        """Return what was changed between the run before and this one."""
        return self._payload_store.load(self.start.get("changes", {}))

    def empty(self) -> Replica:
        """Return an empty replica."""
        return Replica(f"{self.start['execution_id']}:{uuid.uuid4().hex}", self._payload_store.max_text)

    def replica(self, upto: Position) -> Replica | None:
        """Return the execution as it was at a position; None if history does not reach it yet."""
        if not self._log.reaches(upto):
            return None
        replica = self.empty()
        replica.apply(self.rows(), *map(self.batch, self.batches(upto)))
        return replica


async def events_of(client: Client, workflow_id: str, run_id: str, *, waiting: bool = False) -> AsyncIterator[Any]:
    """Yield the events of a run; with ``waiting``, also new ones until it is closed."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id or None)
    async for event in handle.fetch_history_events(wait_new_event=waiting):
        yield event


async def read(client: Client, payload_store: PayloadStore, workflow_id: str, run_id: str) -> HistoryReader:
    """Return a reader that has read the history of a run."""
    log = HistoryReader(client.data_converter, payload_store)
    async for event in events_of(client, workflow_id, run_id):
        await log.add(event)
    return log
