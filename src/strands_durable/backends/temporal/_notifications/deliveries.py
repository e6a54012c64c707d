"""Calls the hooks of a worker: the activity of the workflow that has a notification delivered."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, cast

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from ...._dispatch.notifications.hooks import AT_ONCE, deliver
from ...._enginekit.log import Presence
from ...._enginekit.notices import Notice, notification_of
from ...._records.crash_points import reach
from ...._records.logs import safe_logger
from ...._records.notifications import Event
from ....errors import ExecutionNotFoundError
from .._errors import translated
from .._heartbeat import beating
from .._history import ExecutionHistory, execution_history
from .._memo import CREATED_AT
from .._protocol import NOTIFY, Delivered, Delivering

if TYPE_CHECKING:
    from .._backend import TemporalBackend

logger = safe_logger(__name__)

_ERROR_LENGTH = 300


class Deliveries:
    """Calls the hooks of this process for a backend."""

    def __init__(self, backend: TemporalBackend, hooks_key: Hashable, events: frozenset[Event]) -> None:
        self._backend, self._hooks_key = backend, hooks_key
        self.events = sorted(events)

    def worker(self, client: Client, task_queue: str, options: dict[str, Any]) -> Worker:
        """Return a worker on the task queue of workers that have hooks."""
        return Worker(
            client,
            task_queue=f"{task_queue}/{NOTIFY}",
            activities=[self.deliver],
            max_concurrent_activities=AT_ONCE,
            **options,
        )

    @activity.defn(name=NOTIFY)
    async def deliver(self, given: dict[str, Any]) -> Delivered:
        """Call the hooks that have not taken a notification yet."""
        async with beating():
            return await self._delivered(cast(Delivering, given))

    async def _delivered(self, given: Delivering) -> Delivered:
        backend = self._backend
        try:
            with translated(backend.config, given["execution_id"]):
                known = await execution_history(await backend.client(), backend.payload_store, given["workflow_id"])
        except ExecutionNotFoundError:  # removed in the meantime
            return {"taken": given["taken"], "failures": {}}
        if await _is_another(known, given):
            return {"taken": given["taken"], "failures": {}}
        if known.run_id == given["run_id"] and not known.is_closed and given["event"] == "failed":
            return {"taken": given["taken"], "failures": {"execution": "its workflow is about to end"}}
        notice = Notice(notice_id=given["notice_id"], event=cast(Event, given["event"]), at=given["at"])
        notification = notification_of(known.detail(Presence()), notice)
        reach("notify:before")
        taken, failures = await deliver(self._hooks_key, notification, given["taken"], tries=given["tries"])
        reach("notify:after")
        if notice.event not in self.events:
            failures = {"worker": f"it has no hook for {notice.event}"}
        failures = {name: error[:_ERROR_LENGTH] for name, error in failures.items()}
        for name, error in failures.items():
            facts = (notice.notice_id, notice.event, given["tries"], f"{name}: {error}")
            logger.warning("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | not delivered, retrying", *facts)
        return {"taken": taken, "failures": failures}


async def _is_another(known: ExecutionHistory, given: Delivering) -> bool:
    """Return whether the execution was removed, and its id has been used again since."""
    memo = await known.description.memo()
    return bool(memo.get(CREATED_AT, 0.0) != given["created_at"])
