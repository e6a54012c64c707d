"""Executions as Temporal's visibility lists them. It may be a moment behind; what it says of one is its last run.

Only what says itself why it waits, or who is at work on it, is asked for one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.service import RPCError

from ..._enginekit.log import Presence
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ._errors import is_unknown
from ._history import status_of
from ._pending_activity import pending_activity_of
from ._protocol import WORKFLOW
from ._url import TemporalConfig

S = ExecutionStatus
_AT_A_TIME = 20
_OPEN = (S.PENDING, S.RUNNING, S.SUSPENDED)
_TEMPORAL = {
    **dict.fromkeys(_OPEN, ("Running",)),
    S.COMPLETED: ("Completed",),
    S.FAILED: ("Failed", "TimedOut"),
    S.CANCELLED: ("Canceled", "Terminated"),
}


async def records(
    client: Client,
    config: TemporalConfig,
    *,
    wanted: Collection[ExecutionStatus] | None,
    agent: str | None,
    since: float | None,
    limit: int | None,
) -> list[ExecutionRecord]:
    """Return executions, the one that changed last first; with ``limit``, those that are open before those that are not."""
    found: list[ExecutionRecord] = []
    async for record in _looked_at(client, config, client.list_workflows(_query(config, wanted, since))):
        if (
            (wanted is None or record.status in wanted)
            and (agent is None or record.agent == agent)
            and (since is None or record.updated_at >= since)
        ):
            found.append(record)
        if limit is not None and len(found) >= limit:
            break
    return sorted(found, key=lambda record: record.updated_at, reverse=True)


def _query(config: TemporalConfig, wanted: Collection[ExecutionStatus] | None, since: float | None) -> str:
    statuses = _TEMPORAL if wanted is None else set(wanted)
    names = sorted({name for status in statuses for name in _TEMPORAL[status]})
    parts = [
        f"WorkflowType = '{WORKFLOW}'",
        f"TaskQueue = {_quoted(config.task_queue)}",
        f"ExecutionStatus IN ({', '.join(map(_quoted, names))})",
    ]
    if config.prefix:
        parts.append(f"WorkflowId STARTS_WITH {_quoted(config.prefix)}")
    if since is not None:
        moment = datetime.fromtimestamp(since, UTC).isoformat()
        parts.append(f"(ExecutionStatus = 'Running' OR CloseTime >= '{moment}')")
    return " AND ".join(parts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


async def _looked_at(
    client: Client, config: TemporalConfig, listed: AsyncIterator[WorkflowExecution]
) -> AsyncIterator[ExecutionRecord]:
    """Yield a record for each execution, looking at some at a time."""
    seen: set[str] = set()
    batch: list[WorkflowExecution] = []

    async def looked() -> list[ExecutionRecord]:
        found = await asyncio.gather(*(_record(client, config, each) for each in batch))
        batch.clear()
        return [record for record in found if record is not None]

    async for each in listed:
        if each.id in seen:
            continue
        seen.add(each.id)
        batch.append(each)
        if len(batch) >= _AT_A_TIME:
            for record in await looked():
                yield record
    for record in await looked():
        yield record


async def _record(client: Client, config: TemporalConfig, listed: WorkflowExecution) -> ExecutionRecord | None:
    """Return a record; None if the run that was listed is no longer the last one of its execution."""
    status = await status_of(listed)
    if status in (S.COMPLETED, S.CANCELLED, S.SUSPENDED):
        return await _record_of(config, listed, status, Presence())
    try:
        description = await client.get_workflow_handle(listed.id).describe()
    except RPCError as error:
        if is_unknown(error):
            return None
        raise
    if status is S.FAILED:
        return None if description.run_id != listed.run_id else await _record_of(config, listed, status, Presence())
    return await _described(client, config, description)


async def _described(
    client: Client, config: TemporalConfig, description: WorkflowExecutionDescription
) -> ExecutionRecord:
    """Return the record of an execution that Temporal was asked about."""
    presence = await pending_activity_of(client, description)
    return await _record_of(config, description, await status_of(description), presence)


async def _record_of(
    config: TemporalConfig, found: WorkflowExecution, status: ExecutionStatus, presence: Presence
) -> ExecutionRecord:
    """Return what `ls` shows of an execution."""
    memo = await found.memo()
    began, changed = found.start_time.timestamp(), memo.get("updated_at", 0.0)
    ended = 0.0 if found.close_time is None else found.close_time.timestamp()
    return ExecutionRecord(
        execution_id=memo.get("execution_id", found.id.removeprefix(config.prefix)),
        kind="dispatched",
        status=status,
        run=0,
        calls=1,
        steps=memo.get("steps", 0),
        owner=presence.owner,
        created_at=memo.get("created_at", began),
        updated_at=max(began, changed, ended),
        agent=memo.get("agent"),
        note=presence.note,
        is_cancelling=presence.is_cancelling,
    )
