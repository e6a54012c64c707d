"""Lists executions of an engine that has no index for that: no more are read than the list needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from .._records.executions import ExecutionRecord
from .._records.listing import Listing

T = TypeVar("T")
Records = list[ExecutionRecord]
_AT_ONCE = 8


async def read_latest(
    found: Iterable[tuple[float, T]], read: Callable[[T], Awaitable[ExecutionRecord | None]], asked: Listing
) -> Records:
    """Return the executions that are asked for.

    Args:
        found: The executions that may be among them, each with a time after which it has not changed.
        read: Reads one; None if it does not belong here.
        asked: Which are asked for, and how many.
    """
    latest = sorted(found, key=lambda pair: pair[0], reverse=True)
    records: Records = []
    for begin in range(0, len(latest), _AT_ONCE):
        group, chosen = latest[begin : begin + _AT_ONCE], asked.chosen(records)
        if asked.limit and len(chosen) == asked.limit and chosen[-1].updated_at > group[0][0]:
            return chosen  # everything else has changed earlier
        read_now = await asyncio.gather(*(read(each) for _, each in group))
        records += [record for record in read_now if record is not None]
    return asked.chosen(records)


async def first_page(asked: Listing, records: AsyncIterator[ExecutionRecord]) -> list[ExecutionRecord]:
    """Return as many of the records as are asked for; of those that changed at the same time, the ones with the lowest ids.

    An engine may order the latter in another way: all of them are read, or the next page would begin after one that has not
    been on any.
    """
    found: list[ExecutionRecord] = []
    async for record in records:
        if asked.limit is not None and len(found) >= asked.limit and record.updated_at < found[-1].updated_at:
            break
        found.append(record)
    return asked.chosen(found)
