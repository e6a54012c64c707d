"""Lists executions through Temporal's visibility, which may lag by a moment and describes the last run of each.

Only executions whose owner or note has to be looked up are described one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.service import RPCError

from ..._enginekit.listing import first_page
from ..._enginekit.log import Presence
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.listing import ALL, Listing
from ._errors import is_unknown
from ._history import status_of
from ._memo import CREATED_AT, ERRORS, SECONDS, TAGS, WAITED, tokens_of
from ._pending_activity import pending_activity_of
from ._protocol import WORKFLOW
from ._url import TemporalConfig

S = ExecutionStatus
_AT_A_TIME = 20
_ROUNDING_SECONDS = 0.001
_OPEN = (S.PENDING, S.RUNNING, S.SUSPENDED)
_TEMPORAL = {
    **dict.fromkeys(_OPEN, ("Running",)),
    S.COMPLETED: ("Completed",),
    S.FAILED: ("Failed", "TimedOut"),
    S.CANCELLED: ("Canceled", "Terminated"),
}


async def records(client: Client, config: TemporalConfig, asked: Listing) -> list[ExecutionRecord]:
    """Return executions, most recently changed first."""
    listed = _in_order(config, client.list_workflows(_query(config, asked)))
    return await first_page(asked, _looked_at(client, config, asked, listed))


def _query(config: TemporalConfig, asked: Listing) -> str:
    names = sorted({name for status in asked.statuses for name in _TEMPORAL[status]})
    parts = [
        f"WorkflowType = '{WORKFLOW}'",
        f"TaskQueue = {_quoted(config.task_queue)}",
        f"ExecutionStatus IN ({', '.join(map(_quoted, names))})",
    ]
    if config.prefix or asked.search:
        parts.append(f"WorkflowId STARTS_WITH {_quoted(config.prefix + (asked.search or ''))}")
    if asked.since is not None:
        parts.append(f"(ExecutionStatus = 'Running' OR CloseTime >= '{_moment(asked.since)}')")
    if asked.before is not None:
        latest = _moment(asked.before.updated_at + _ROUNDING_SECONDS)
        parts.append(f"(ExecutionStatus = 'Running' OR CloseTime <= '{latest}')")
    return " AND ".join(parts)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


Listed = tuple[WorkflowExecution, ExecutionRecord]
"""A workflow, and the record of its execution without what only a description of the workflow says."""


async def _in_order(config: TemporalConfig, listed: AsyncIterator[WorkflowExecution]) -> AsyncIterator[Listed]:
    """Yield the last changed first. Temporal lists open ones, then closed ones by the time at which they ended."""
    unfinished: list[Listed] = []
    has_closed = False
    async for each in listed:
        found = each, await _record_of(config, each, await status_of(each), Presence())
        if each.close_time is None:
            unfinished.append(found)
            continue
        if not has_closed:
            has_closed = True
            unfinished.sort(key=_changed_at)
        while unfinished and _changed_at(unfinished[-1]) >= _changed_at(found):
            yield unfinished.pop()
        yield found
    for found in sorted(unfinished, key=_changed_at, reverse=True):
        yield found


def _changed_at(listed: Listed) -> float:
    return listed[1].updated_at


async def _looked_at(
    client: Client, config: TemporalConfig, asked: Listing, listed: AsyncIterator[Listed]
) -> AsyncIterator[ExecutionRecord]:
    """Yield the executions that are asked for, describing several at a time."""
    seen: set[str] = set()
    batch: list[Listed] = []

    async def looked() -> list[ExecutionRecord]:
        found = await asyncio.gather(*(_record(client, config, *each) for each in batch))
        batch.clear()
        return [record for record in found if record is not None and asked.takes(record)]

    async for each in listed:
        if each[0].id in seen or not _may_take(asked, each[1]):
            continue
        seen.add(each[0].id)
        batch.append(each)
        if len(batch) >= min(_AT_A_TIME, asked.limit or _AT_A_TIME):
            for record in await looked():
                yield record
    for record in await looked():
        yield record


def _may_take(asked: Listing, record: ExecutionRecord) -> bool:
    """Return whether an execution may be asked for; what the list says of one that is at work may be out of date."""
    return asked.takes(record) or (
        record.status in (S.PENDING, S.RUNNING) and replace(asked, statuses=ALL).takes(record)
    )


async def _record(
    client: Client, config: TemporalConfig, listed: WorkflowExecution, record: ExecutionRecord
) -> ExecutionRecord | None:
    """Return the record of an execution; None if the listed run is no longer the last one of its execution."""
    if record.status in (S.COMPLETED, S.CANCELLED, S.SUSPENDED):
        return record
    try:
        description = await client.get_workflow_handle(listed.id).describe()
    except RPCError as error:
        if is_unknown(error):
            return None
        raise
    if record.status is S.FAILED:
        return None if description.run_id != listed.run_id else record
    return await _described(client, config, description)


async def _described(
    client: Client, config: TemporalConfig, description: WorkflowExecutionDescription
) -> ExecutionRecord:
    """Return the record of an execution that Temporal has described."""
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
        created_at=memo.get(CREATED_AT, began),
        updated_at=max(began, changed, ended),
        agent=memo.get("agent"),
        note=presence.note,
        is_cancelling=presence.is_cancelling,
        tags=memo.get(TAGS, {}),
        tokens=tokens_of(memo),
        duration_seconds=memo.get(SECONDS),
        waited_seconds=memo.get(WAITED, 0.0),
        tool_errors=memo.get(ERRORS, 0),
    )
