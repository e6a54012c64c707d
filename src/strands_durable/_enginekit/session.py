"""A worker's tenure of one execution on an `ExecutionLog`: claim it, append each batch, let its steps run, and release it.

The order is what makes it durable. A batch holds the results of steps that have ended and the intents of those that wait. A
step runs only after the batch with its intent is appended. If another writer was faster, this one has lost the execution:
nothing that it does from then on is recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .._calls.control import ExecutionReleasedError
from .._dispatch.queue import Queue
from .._dispatch.requests import Requests
from .._dispatch.runner import ExecutionRunner
from .._journal.owner import Owner
from .._records.crash_points import reach
from .._records.deadline import limited
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .agent_loop import AgentLoop
from .compaction import prune
from .driver import Batch, Driver
from .log import ExecutionLog, RecordedExecution, StaleError
from .progress import RunEnd

logger = safe_logger(__name__)

S = ExecutionStatus
_LONG_SECONDS = 1e9


class Session:
    """Runs one execution until it ends, waits or is released.

    Args:
        log: Where its change sets are.
        known: The execution, as the log records it.
        loop: Runs the agents of this worker.
        runner: Builds and calls them.
        owner: The owner to record.
        compact_after: Compact the log at the end of a session that has appended more batches than this; 0: never.
        options: Further options of its `Driver`.
    """

    def __init__(
        self,
        log: ExecutionLog,
        known: RecordedExecution,
        loop: AgentLoop,
        runner: ExecutionRunner,
        *,
        owner: Owner | None = None,
        compact_after: int = 0,
        **options: Any,
    ) -> None:
        self._log, self._known, self._loop, self._compact_after = log, known, loop, compact_after
        self._events, self._news = asyncio.get_running_loop(), asyncio.Event()
        self.execution_id, self._is_cancelled = known.execution_id, False
        self.driver = Driver(
            known.replica, runner, owner=owner, reports_claim=True, on_notify=self._notified, **options
        )

    async def refusal(self) -> str | None:
        """Return why this process may not run the execution; None if it may."""
        return await self.driver.refusal()

    def release(self) -> None:
        """Release the execution to another worker after the steps that run now."""
        self.driver.halt(ExecutionReleasedError(), gently=True)

    def cancel(self) -> None:
        """Cancel the execution: no more steps start, and running ones receive their cancel signal."""
        self._is_cancelled = True
        self.driver.halt()

    async def run(self) -> RunEnd:
        """Run the execution until it ends, waits or is released; return its state.

        Raises:
            StaleError: Another writer has the execution now; no more steps start here.
        """
        driver = self.driver
        self._loop.run(driver)
        try:
            while not (driver.is_over and driver.is_quiescent):
                if driver.is_quiescent and (driver.has_unreported or driver.has_results):
                    await self._append(driver.batch())
                await self._news.wait()
                self._news.clear()
            if self._is_cancelled and driver.ended().status in (S.PENDING, S.RUNNING, S.SUSPENDED):
                Requests(self._known.replica).cancel(
                    self._known.execution_id
                )  # it had stopped before it saw the cancel
            await self._append(driver.batch())
        except BaseException:
            driver.halt(ExecutionReleasedError())
            raise
        if self._compact_after and driver.batches > self._compact_after:
            await self._compact()
        return driver.ended()

    async def _append(self, batch: Batch) -> None:
        """Append a batch, then let the steps run whose intents it contains."""
        if batch.rows:
            reach("append:before")
            known = self._known
            known.position = await self._log.append(known.execution_id, known.position, batch.rows)
            reach("append:after")
        for ticket_id, ticket in batch.tickets.items():
            if ticket.until:
                self._events.call_later(max(0.0, ticket.until - time.time()), self.driver.open, ticket_id)
            else:
                self.driver.open(ticket_id)

    async def _compact(self) -> None:
        """Reduce the log to what the next worker needs."""
        prune(self._known.replica)
        try:
            await self._log.compact(self._known.execution_id, self._known.position, self._known.replica.export())
        except StaleError:
            logger.debug("execution_id=<%s> | not compacted, it has changed in the meantime", self._known.execution_id)

    def _notified(self) -> None:
        with suppress(RuntimeError):  # the loop of this session is closed
            self._events.call_soon_threadsafe(self._news.set)


class SessionPool:
    """The executions that one worker runs.

    Args:
        log: Stores their change sets.
        name: The name of this worker, if its process has several.
        compact_after: As for `Session`.
        stays: As for `Driver`.
    """

    def __init__(self, log: ExecutionLog, name: str = "", *, compact_after: int = 0, stays: bool = True) -> None:
        self._log, self._compact_after, self._stays = log, compact_after, stays
        self.owner = Owner.me().within(name) if name else Owner.me()
        self._loop, self._runner = AgentLoop(), ExecutionRunner(_LONG_SECONDS)
        self._sessions: set[Session] = set()
        """A session that another writer has replaced may still be here, beside its successor."""
        self._idle = asyncio.Event()
        self._is_stopping = False

    @property
    def waiting(self) -> int:
        """How many executions only wait for others, which may need this same worker."""
        return sum(session.driver.is_waiting for session in self._sessions)

    async def run(self, known: RecordedExecution, on_start: Callable[[], None] = lambda: None) -> RunEnd | str:
        """Run an execution until it ends, waits or is released; return its state, or why this process may not run it.

        ``on_start`` is called once it is certain that it may. An execution that may have killed its worker runs here like any
        other.
        """
        session = Session(
            self._log,
            known,
            self._loop,
            self._runner,
            owner=self.owner,
            compact_after=self._compact_after,
            alone=Queue(known.replica, self.owner).only().is_suspected,
            stays=self._stays,
        )
        why = "the worker is being stopped" if self._is_stopping else await session.refusal()
        if why is not None:
            return why
        on_start()
        self._sessions.add(session)
        if self._is_stopping:
            session.release()
        try:
            return await session.run()
        finally:
            self._sessions.discard(session)
            self._idle.set()

    def cancel(self, execution_id: str) -> None:
        """Cancel an execution, if it runs here."""
        for session in [each for each in self._sessions if each.execution_id == execution_id]:
            session.cancel()

    def release(self, execution_id: str) -> None:
        """Release an execution to another worker after its current steps, if it runs here."""
        for session in [each for each in self._sessions if each.execution_id == execution_id]:
            session.release()

    async def drained(self, seconds: float) -> bool:
        """Claim no more, and release every execution after its current steps; return True if all ended in time."""
        self._is_stopping = True
        for session in self._sessions:
            session.release()
        try:
            await limited(self._until_idle(), seconds)
        except TimeoutError:
            left = ", ".join(sorted({session.execution_id for session in self._sessions}))
            logger.warning(
                "executions=<%s>, seconds=<%g> | not released in time, their steps are left in doubt", left, seconds
            )
            return False
        return not self._loop.threads.is_busy

    async def _until_idle(self) -> None:
        while self._sessions:
            self._idle.clear()
            await self._idle.wait()

    def close(self) -> None:
        """Stop what still runs here; the next owner finds its steps in doubt."""
        for session in self._sessions:
            session.driver.halt(ExecutionReleasedError())
        self._loop.stop()
