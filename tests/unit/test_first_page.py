"""Pages of a list on an engine, such as Temporal, that orders what ended at the same time in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from strands_durable._enginekit.listing import first_page
from strands_durable._records.executions import ExecutionRecord, ExecutionStatus
from strands_durable._records.listing import Cursor, Listing


def record(execution_id: str, updated_at: float) -> ExecutionRecord:
    return ExecutionRecord(
        execution_id=execution_id, kind="dispatched", status=ExecutionStatus.COMPLETED, run=0, calls=1, steps=1, owner=None,
        created_at=1.0, updated_at=updated_at, agent="planner",
    )  # fmt: skip


def test_executions_that_ended_at_the_same_time_are_each_on_one_page() -> None:
    listed = [record("late", 9.0), record("c", 5.0), record("a", 5.0), record("b", 5.0), record("early", 2.0)]

    async def page(before: Cursor | None) -> list[ExecutionRecord]:
        asked = Listing(limit=2, before=before)

        async def again() -> AsyncIterator[ExecutionRecord]:
            for each in filter(asked.takes, listed):
                yield each

        return await first_page(asked, again())

    async def pages() -> list[list[str]]:
        found, before = list[list[str]](), None
        while records := await page(before):
            found.append([each.execution_id for each in records])
            before = Cursor(records[-1].updated_at, records[-1].execution_id)
        return found

    assert asyncio.run(pages()) == [["late", "a"], ["b", "c"], ["early"]]
