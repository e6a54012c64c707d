"""A backend whose engine keeps a log: dispatching and listing, as far as they are the same for all of them."""

from __future__ import annotations

import asyncio
import builtins
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .._dispatch.ports import DurableBackend, ExecutionHandle
from .._dispatch.requests import Requests
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import url_for_people
from .._records.spec import AgentSpec
from ..errors import ExecutionCancelledError
from .change_sets import ChangeSet
from .handle import LogHandle
from .log import ExecutionLog, Position, Presence, RecordedExecution, StaleError, read
from .replica import Replica


class LogBackend(DurableBackend):
    """Where executions run whose engine keeps a log."""

    log: ExecutionLog
    poll_seconds = 0.5
    """How often a log is looked at that somebody follows, where the engine does not say that it has changed."""

    # What an engine adds

    @abstractmethod
    async def wake(self, execution_id: str) -> None:
        """Have a worker look at an execution: it was dispatched, answered or resumed. What was appended says so already."""

    @abstractmethod
    async def presence(self, execution_id: str) -> Presence:
        """Return what the engine knows of an execution besides its log."""

    @abstractmethod
    async def ask_to_stop(self, execution_id: str) -> bool:
        """Ask the owner of an execution to cancel it; False if it has none, and the log may be appended to."""

    # What it may do in another way

    async def changed(self, execution_id: str, position: Position) -> None:
        """Return when something was appended after a position."""
        while not [entry async for entry in self.log.read(execution_id, position)]:  # noqa: ASYNC110, nobody else knows
            await asyncio.sleep(self.poll_seconds)

    async def read(self, execution_id: str) -> RecordedExecution:
        """Return an execution as it is recorded, or raise `ExecutionNotFoundError`."""
        return await read(self.log, execution_id, url_for_people(self.url))

    async def _begin(self, execution_id: str, agent: str, changes: ChangeSet) -> bool:
        """Begin the log of an execution, and have workers notice it; False if there is one under this id."""
        try:
            await self.log.append(execution_id, None, changes)
        except StaleError:
            return False
        await self.wake(execution_id)
        return True

    def _handle(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution that is there."""
        return LogHandle(self, execution_id)

    # What a backend does

    async def dispatch(
        self,
        spec: AgentSpec,
        prompt: Any,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> ExecutionHandle:
        """Record an execution, or attach to the one that has its id."""
        replica = Replica.new("new")
        found = Requests(replica).dispatch(spec, prompt, execution_id, invocation_state, limits)
        if not await self._begin(found, spec.name, replica.changes()):
            known = await self.read(found)
            if known.status is ExecutionStatus.CANCELLED:
                raise ExecutionCancelledError(found)
            Requests(known.replica).refuse_other(found, spec, prompt, invocation_state, limits)
        return self._handle(found)

    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        await self.read(execution_id)
        return self._handle(execution_id)


def statuses(wanted: ExecutionStatus | Collection[ExecutionStatus] | None) -> frozenset[ExecutionStatus]:
    """Return the statuses that a list is asked for."""
    if wanted is None:
        return frozenset(ExecutionStatus)
    return frozenset({wanted} if isinstance(wanted, ExecutionStatus) else wanted)


def selected(
    records: Iterable[ExecutionRecord],
    *,
    status: ExecutionStatus | Collection[ExecutionStatus] | None = None,
    agent: str | None = None,
    since: float | None = None,
    limit: int | None = None,
) -> builtins.list[ExecutionRecord]:
    """Return those of the records that a list is asked for, the one that changed last first."""
    wanted = statuses(status)
    found = [
        record
        for record in records
        if record.status in wanted
        and (agent is None or record.agent == agent)
        and (since is None or record.updated_at >= since)
    ]
    return sorted(found, key=lambda record: record.updated_at, reverse=True)[:limit]
