"""What the pages ask a backend for. The only file of this room that reads from one.

Every list has a limit, so that a page costs the same however many executions have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from .._dispatch.handles import ExecutionHandle
from .._dispatch.ports import DurableBackend
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.results import StreamEvent
from .._records.views import ExecutionDetail, OpenQuestion

PAGE_SIZE = 50
INBOX_SIZE = 200
"""How many questions the inbox shows."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which executions a page lists."""

    status: ExecutionStatus | None = None
    agent: str = ""
    tag: str = ""
    """``name=value``"""
    search: str = ""
    with_errors: bool = False
    """Only those with a tool call that ended in an error; without a status, those that completed."""
    before: str = ""
    """The cursor of the last execution of the page before."""

    @property
    def is_everything(self) -> bool:
        """True if nothing is filtered."""
        return self.status is None and not (self.agent or self.tag or self.search or self.with_errors)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One page of executions."""

    records: list[ExecutionRecord]
    has_more: bool


class Reading:
    """Reads from a backend without running anything in this process."""

    def __init__(self, backend: DurableBackend) -> None:
        self._backend = backend.working("off")

    async def executions(self, wanted: Wanted) -> Listed:
        """Return one page of executions, the one that changed last first."""
        name, _, value = wanted.tag.partition("=")
        found = await self._backend.list(
            status=ExecutionStatus.COMPLETED if wanted.with_errors and wanted.status is None else wanted.status,
            with_errors=wanted.with_errors,
            agent=wanted.agent or None,
            tags={name: value} if wanted.tag else None,
            search=wanted.search or None,
            before=wanted.before or None,
            limit=PAGE_SIZE + 1,
        )
        return Listed(records=found[:PAGE_SIZE], has_more=len(found) > PAGE_SIZE)

    async def handle(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution."""
        return await self._backend.get(execution_id)

    async def detail(self, execution_id: str, run: int | None = None) -> ExecutionDetail:
        """Return an execution with its calls and steps."""
        return await (await self.handle(execution_id)).detail(run)

    async def recorded_bytes(self, execution_id: str, digest: str) -> bytes:
        """Return bytes that are stored apart."""
        return await (await self.handle(execution_id)).recorded_bytes(digest)

    async def questions(self) -> list[OpenQuestion]:
        """Return the open questions of all executions, the last one asked first: one more than the inbox shows."""
        return await self._backend.questions(limit=INBOX_SIZE + 1)

    async def events(self, execution_id: str, after: int) -> AsyncGenerator[StreamEvent, None]:
        """Follow an execution."""
        async for event in (await self.handle(execution_id)).stream(after):
            yield event

    async def warning(self) -> str | None:
        """Return a warning if no worker runs what waits."""
        return await self._backend.unattended()

    async def close(self) -> None:
        """Release what reading has opened."""
        await self._backend.close()


async def until_set(ending: asyncio.Event, events: AsyncGenerator[StreamEvent, None]) -> AsyncIterator[StreamEvent]:
    """Yield events until there are no more, or until ``ending`` is set."""
    ended = asyncio.ensure_future(ending.wait())
    following: asyncio.Future[StreamEvent] | None = None
    try:
        while not ended.done():
            following = asyncio.ensure_future(anext(events))
            await asyncio.wait({ended, following}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                yield following.result()
    except StopAsyncIteration:
        pass
    finally:
        pending = [each for each in (ended, following) if each is not None and each.cancel()]
        await asyncio.gather(*pending, return_exceptions=True)


def questions_of(detail: ExecutionDetail) -> list[OpenQuestion]:
    """Return what an execution waits for a person to answer: its last root call repeats what calls inside it have asked."""
    roots = [call for call in detail.calls if call.depth == 0]
    record = detail.execution
    return [
        OpenQuestion(
            execution_id=record.execution_id,
            agent=record.agent,
            question=question,
            asked_at=call.ended_at or record.updated_at,
        )
        for call in roots[-1:]
        for question in call.questions
    ]
