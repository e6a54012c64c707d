"""A backend whose engine keeps a log: the part of dispatching and listing that all such engines share."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from .._dispatch.handles import ExecutionHandle
from .._dispatch.ports import DurableBackend
from .._dispatch.requests import Requests
from .._dispatch.trace_context import current_trace
from .._records.change_sets import ChangeSet, rows_of
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import url_for_people
from .._records.spec import AgentSpec
from ..errors import ExecutionCancelledError, ExecutionExistsError, UnsupportedFeatureError
from .forks import refuse_at_rest
from .handle import LogHandle
from .imports import replica_of
from .log import ExecutionLog, Position, Presence, RecordedExecution, StaleError, read
from .replica import Replica


class LogBackend(DurableBackend):
    """Runs executions on an engine that keeps a log."""

    log: ExecutionLog
    poll_seconds = 0.5
    """How often a followed log is read, where the engine has no notification of changes."""
    starts_at_rest = False
    """Whether an execution can be created that has nothing to run: one that has ended, or waits for a person."""

    # What an engine adds

    @abstractmethod
    async def wake(self, execution_id: str) -> None:
        """Notify workers of an execution that was dispatched, answered or resumed; the log already records which."""

    @abstractmethod
    async def presence(self, execution_id: str) -> Presence:
        """Return what the engine knows about an execution besides its log."""

    @abstractmethod
    async def ask_to_stop(self, execution_id: str) -> bool:
        """Ask the owner of an execution to cancel it; False if it has no owner, so that the caller may append to the log."""

    # What an engine may override

    async def changed(self, execution_id: str, position: Position) -> None:
        """Return when something was appended after a position."""
        while not [entry async for entry in self.log.read(execution_id, position)]:  # noqa: ASYNC110, a poll
            await asyncio.sleep(self.poll_seconds)

    async def read(self, execution_id: str) -> RecordedExecution:
        """Return an execution as it is recorded, or raise `ExecutionNotFoundError`."""
        return await read(self.log, execution_id, url_for_people(self.url))

    async def _begin(self, execution_id: str, agent: str, changes: ChangeSet) -> bool:
        """Create the log of an execution and notify workers; False if this id already has a log."""
        try:
            await self.log.append(execution_id, None, changes)
        except StaleError:
            return False
        await self.wake(execution_id)
        return True

    async def entries(self, execution_id: str) -> list[ChangeSet]:
        """Return the change sets of an execution one by one, for a fork at one of its steps."""
        if hasattr(self, "log"):
            return [entry.changes async for entry in self.log.read(execution_id)]
        return (await self.read(execution_id)).entries()

    def _handle(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution that exists."""
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
        tags: Mapping[str, str] | None = None,
    ) -> ExecutionHandle:
        """Record an execution, or attach to the one that has its id."""
        replica = Replica.new("new")
        found = Requests(replica).dispatch(spec, prompt, execution_id, invocation_state, limits, tags, current_trace())
        if not await self._begin(found, spec.name, replica.changes()):
            known = await self.read(found)
            if known.status is ExecutionStatus.CANCELLED:
                raise ExecutionCancelledError(found)
            Requests(known.replica).refuse_other(found, spec, prompt, invocation_state, limits)
        return self._handle(found)

    async def import_execution(self, export: Mapping[str, Any], *, execution_id: str | None = None) -> ExecutionHandle:
        """Record an execution that was exported as the beginning of a log, and notify workers."""
        replica = replica_of(export, execution_id=execution_id)
        record = replica.record()
        self._refuse_import(record)
        if not await self._begin(record.execution_id, str(record.agent), replica.export()):
            raise ExecutionExistsError(record.execution_id, url_for_people(self.url))
        return self._handle(record.execution_id)

    def _refuse_import(self, record: ExecutionRecord) -> None:
        reason = ""
        if record.kind == "inline":
            reason = "it was run inline, by a script"
        elif not self.starts_at_rest and record.status not in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING):
            reason = f"it is {record.status.value}, and this engine begins only what has something to run"
        if reason:
            what = f"Importing execution {record.execution_id!r} into {url_for_people(self.url)}"
            raise UnsupportedFeatureError(what, reason, "Import it into a SQLite file.")

    async def begin_fork(self, origin_id: str, execution_id: str, rows: ChangeSet) -> ExecutionHandle:
        """Create the log of a fork from all of its rows, and notify workers."""
        if not self.starts_at_rest:
            refuse_at_rest(origin_id, rows)
        if not await self._begin(execution_id, rows_of(rows, "dispatches")[0]["agent"], rows):
            raise ExecutionExistsError(execution_id, url_for_people(self.url))
        return self._handle(execution_id)

    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        await self.read(execution_id)
        return self._handle(execution_id)
