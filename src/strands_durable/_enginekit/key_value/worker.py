"""A worker of an engine on a key-value store: runs an execution until it is at rest, or follows the worker that does.

An engine may ask for the same execution any number of times, here and elsewhere: one worker claims it, by the swap of the
head, and the others follow. A worker whose claim was lost follows, too. Sessions run on the loop of the
worker and agents on a loop of their own: an execution needs no thread, and code that blocks delays no heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

from ..._dispatch.quarantine import QuarantineProcess, untried
from ..._dispatch.queue import Queue
from ..._dispatch.requests import Requests
from ..._journal.owner import Owner
from ..._records.deadline import limited
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ...errors import CipherError, DurableError, ExecutionNotFoundError, UnreadableError
from ..compaction import prune
from ..handle import AT_WORK
from ..log import RecordedExecution, StaleError, read
from ..session import SessionPool
from .engine import KeyValueEngine
from .head import REMOVED, Head
from .heartbeat import Heartbeat
from .log import ask_key
from .open_executions import OpenExecution
from .shared_map import SharedMap

logger = safe_logger(__name__)

S = ExecutionStatus
_FOLLOW_SECONDS, _SLOT_SECONDS = 0.5, 10.0
_MISSING_SECONDS, _ERROR_SECONDS, _MAX_REFUSED_SECONDS = 10.0, 2.0, 60.0
_ADOPT_SECONDS, _REST_SECONDS, _REOPENED_SECONDS = 15.0, 10.0, 60.0
_NOTE_SECONDS = 180


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What has become of an execution that a worker was to run."""

    status: str
    """PENDING or RUNNING: it is to be tried again, here or elsewhere."""
    seconds: float = 0.0
    """In how many seconds."""
    note: str | None = None
    refusals: int = 0
    """How many workers in a row have refused it."""


class KeyValueWorker:
    """Runs executions of the agents that are registered in this process.

    Args:
        engine: Where they are stored.
        heartbeat: The heartbeat of this worker.
        concurrency: How many it runs at a time.
        quarantine: Runs those that may have killed their worker; without it, this worker does, one at a time.
    """

    def __init__(
        self,
        engine: KeyValueEngine,
        heartbeat: Heartbeat,
        concurrency: int,
        quarantine: QuarantineProcess | None = None,
    ) -> None:
        self.engine, self.heartbeat = engine, heartbeat
        self._log, self._concurrency, self._quarantine = engine.log, concurrency, quarantine
        self.pool = SessionPool(engine.log, heartbeat.name, stays=False)
        self.live: dict[str, asyncio.Task[Outcome | None]] = {}
        """What runs here."""
        self.claimed: dict[str, Head] = {}
        """The heads that were found when what runs here was claimed."""
        self._suspects = SharedMap(engine.store, "suspects", shards=1)
        self._suspected: set[str] = set()
        """What runs here although it may have killed its worker."""
        self._tried: set[str] = set()
        self._adopted: set[asyncio.Task[Outcome]] = set()
        self._freed, self._closed, self._is_stopping = asyncio.Event(), asyncio.Event(), False

    # What an engine may override

    async def deferred(self, execution_id: str, head: Head) -> Outcome | None:
        """Return why an execution may not run now although it needs a worker; None if it may."""
        return None

    def started(self, execution_id: str) -> None:
        """Note that an execution runs here."""

    def ended(self, execution_id: str) -> None:
        """Note that an execution no longer runs here."""

    async def notify(self, execution_id: str, head: Head) -> None:
        """Have the engine look at an execution that no worker has claimed yet, or that has ended."""

    async def settle(self, execution_id: str, head: Head) -> None:
        """Make sure that the engine knows of an execution that has come to rest."""

    # Running one

    async def until_at_rest(self, execution_id: str, life: str, refusals: int = 0) -> Outcome:
        """Return when an execution is at rest, or is to be tried again later."""
        while True:
            try:
                outcome = await self._check(execution_id, life, refusals)
            except DurableError as error:
                logger.warning("execution_id=<%s>, error=<%s> | to be tried again", execution_id, error)
                outcome = Outcome(status=S.PENDING.value, seconds=_ERROR_SECONDS, note=str(error))
            if self._is_stopping:
                await self._closed.wait()  # it is offered to another worker once this one is disconnected
                raise asyncio.CancelledError
            if outcome is not None:
                return outcome

    async def _check(self, execution_id: str, life: str, refusals: int) -> Outcome | None:
        """Run an execution, follow its owner, or return its state; None to check again."""
        if execution_id in self.live:
            await asyncio.wait([self.live[execution_id]])
            return None
        head = await self._head(execution_id)
        if head is None or head.life != life:
            return Outcome(status=REMOVED)
        if head.is_at_rest:
            return Outcome(status=head.status)
        if await self._is_owned(execution_id, head):
            await asyncio.sleep(_FOLLOW_SECONDS)
            return None
        if head.not_before > time.time():
            return Outcome(status=head.status, seconds=head.not_before - time.time())
        outcome = await self._cancelled(execution_id, head) or await self.deferred(execution_id, head)
        if outcome is not None or not await self._has_room() or execution_id in self.live:
            return outcome
        task = self._begin(execution_id, refusals)
        await asyncio.wait([task])
        return task.result()

    async def _is_owned(self, execution_id: str, head: Head) -> bool:
        """Return whether a worker has the execution; what an error has ended here is left, although this worker lives."""
        if execution_id in self.live:
            return True
        is_left = head.owner is not None and Owner.parse(head.owner) == self.pool.owner
        return not is_left and await self.engine.workers.is_alive(head.owner)

    def _begin(self, execution_id: str, refusals: int = 0) -> asyncio.Task[Outcome | None]:
        task = self.live[execution_id] = asyncio.create_task(self._tenure(execution_id, refusals))
        task.add_done_callback(lambda _: self._left(execution_id))
        return task

    def _left(self, execution_id: str) -> None:
        del self.live[execution_id]
        self._freed.set()

    async def _head(self, execution_id: str) -> Head | None:
        """Return the head; one that is missing may not be visible yet."""
        deadline = time.monotonic() + _MISSING_SECONDS
        while (head := await self._log.stored_head(execution_id)) is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_FOLLOW_SECONDS)
        return head

    async def read(self, execution_id: str) -> RecordedExecution:
        """Return an execution as it is recorded."""
        return await read(self._log, execution_id, self.engine.store.where)

    async def _cancelled(self, execution_id: str, head: Head) -> Outcome | None:
        """Cancel an execution whose last owner was asked to."""
        if not (await self.engine.store.get(ask_key(execution_id, head)))[0]:
            return None
        return await self.cancel(execution_id)

    async def cancel(self, execution_id: str) -> Outcome | None:
        """Cancel an execution that has no owner; return its state, None if it has changed."""
        known = await self.read(execution_id)
        Requests(known.replica).cancel(execution_id)
        with suppress(StaleError):
            await self._log.append(execution_id, known.position, known.replica.changes())
            await self.engine.store.delete([ask_key(execution_id, known.position)])
            return Outcome(status=S.CANCELLED.value)
        return None

    async def _has_room(self) -> bool:
        """Wait for a free slot; False if there is none for a while."""
        deadline = time.monotonic() + _SLOT_SECONDS
        while not self._is_free:
            await self._a_moment()
            if time.monotonic() > deadline or self._is_stopping:
                return False
        return True

    @property
    def _is_free(self) -> bool:
        return len(self.live) < self._concurrency + self.pool.waiting

    async def _a_moment(self) -> None:
        """Return when an execution has left, or after a while."""
        self._freed.clear()
        with suppress(TimeoutError):
            await limited(self._freed.wait(), _FOLLOW_SECONDS)

    # A tenure

    async def _tenure(self, execution_id: str, refusals: int) -> Outcome | None:
        """Run an execution until it ends, waits, is released or is lost; None to check what has become of it."""
        try:
            known = await self.read(execution_id)
            return None if known.position.is_at_rest else await self._run(known, refusals)
        except StaleError:
            logger.info("execution_id=<%s> | another worker has claimed it", execution_id)
            return None
        except (ExecutionNotFoundError, UnreadableError, CipherError) as error:
            return await self._refused(execution_id, str(error), refusals, plainly=isinstance(error, CipherError))
        finally:
            self.claimed.pop(execution_id, None)
            self.ended(execution_id)

    async def _run(self, known: RecordedExecution, refusals: int) -> Outcome | None:
        execution_id = known.execution_id
        is_suspected = Queue(known.replica, self.pool.owner).only().is_suspected
        if is_suspected and self._quarantine is not None:
            self._quarantine.begin()
            if self._quarantine.trouble is None:
                await self._suspects.put(execution_id, time.time())
                await asyncio.sleep(_FOLLOW_SECONDS)
                return None
            await self._suspects.discard({execution_id: None})
        if known.position.is_long:
            prune(known.replica)
            known.position = await self._log.compacted(execution_id, known.position, known.replica.export())
        if self._quarantine is not None and not self._may_run(is_suspected=is_suspected):
            return await self._put_off(execution_id, known.position, is_suspected=is_suspected)
        head = self.claimed[execution_id] = known.position
        async with self._alone(execution_id) if is_suspected else nullcontext():
            end = await self.pool.run(known, lambda: self.started(execution_id))
        if isinstance(end, str):
            return None if self._is_stopping else await self._refused(execution_id, end, refusals)
        if end.status in AT_WORK:
            return Outcome(status=end.status.value, seconds=max(0.0, end.not_before - time.time()), note=end.note)
        if end.status is S.SUSPENDED:
            return await self._cancelled(execution_id, head)  # a client may have asked the worker a moment ago
        await self.engine.store.delete([ask_key(execution_id, head)])
        return None

    def _may_run(self, *, is_suspected: bool) -> bool:
        """Return whether an execution may run beside those that run here: nothing does beside one that is tried."""
        others = len(self.claimed) - self.pool.waiting
        return others <= 0 if is_suspected else len(self._suspected) <= self.pool.waiting

    async def _put_off(self, execution_id: str, head: Head, *, is_suspected: bool) -> Outcome:
        """Return that an execution is to be tried again in a moment, for it or another one is tried alone."""
        trouble = self._quarantine.trouble if self._quarantine is not None and is_suspected else None
        if trouble is not None:
            await self._log.save_note(execution_id, untried(trouble), _NOTE_SECONDS, plainly=True)
        return Outcome(status=head.status, seconds=_ERROR_SECONDS)

    @asynccontextmanager
    async def _alone(self, execution_id: str) -> AsyncIterator[None]:
        """Wait until no other execution is tried here, except those that wait for another one."""
        while len(self._suspected) > self.pool.waiting and not self._is_stopping:
            await self._a_moment()
        self._suspected.add(execution_id)
        try:
            yield
        finally:
            self._suspected.discard(execution_id)

    async def _refused(self, execution_id: str, why: str, refusals: int, *, plainly: bool = False) -> Outcome:
        """Return that this worker may not run an execution; each refusal in a row is followed by a longer wait."""
        await self._log.save_note(execution_id, why, _NOTE_SECONDS, plainly=plainly)
        seconds = min(_MAX_REFUSED_SECONDS, 2.0 ** min(refusals, 10))
        return Outcome(status=S.PENDING.value, note=why, seconds=seconds, refusals=refusals + 1)

    # What a worker does periodically

    async def obey(self) -> None:
        """Cancel what clients have asked to stop."""
        asks = {ask_key(execution_id, head): execution_id for execution_id, head in self.claimed.items()}
        for key in await self.engine.store.get_many(list(asks)):
            self.pool.cancel(asks[key])

    async def sweep(self) -> None:
        """Check what is open: have it offered again, run it here if that does not help, remove it once it is at rest."""
        notices = self.engine.notices
        notices.note(await self.engine.workers.watch(self.heartbeat, notices.watch_keys))
        over = []
        for entry in await self.engine.open.due():
            try:
                over += [entry] if await self._is_over(entry) else []
            except DurableError as error:
                logger.warning("execution_id=<%s>, error=<%s> | to be checked again", entry.execution_id, error)
        await self.engine.open.close(over)

    async def _is_over(self, entry: OpenExecution) -> bool:
        execution_id, head, quiet = entry.execution_id, entry.head, entry.quiet_seconds
        if head is None:
            return quiet > _REOPENED_SECONDS
        if head.is_at_rest:
            if quiet > _REST_SECONDS:
                await self.settle(execution_id, head)
            elif head.has_ended:
                await self.notify(execution_id, head)
            return quiet > (_REOPENED_SECONDS if head.may_reopen else _REST_SECONDS)
        if await self._is_owned(execution_id, head):
            return False
        if quiet < _ADOPT_SECONDS:
            await self.notify(execution_id, head)
        elif self._is_free and not self._is_stopping:
            task = asyncio.create_task(self.until_at_rest(execution_id, head.life))
            self._adopted.add(task)
            task.add_done_callback(self._adopted.discard)
        return False

    async def try_suspects(self) -> None:
        """Run executions that may have killed their worker, one at a time, each until it is cleared or has ended."""
        for execution_id in await self._suspects.items():
            if execution_id in self._tried and execution_id not in self.live:
                self._tried.discard(execution_id)
                await self._suspects.discard({execution_id: None})
            elif execution_id not in self.live and len(self.live) <= self.pool.waiting and not self._is_stopping:
                head = await self._log.head(execution_id)
                self._tried.add(execution_id)
                if head is not None and not head.is_at_rest and not await self._is_owned(execution_id, head):
                    self._begin(execution_id)

    # The end

    async def drained(self, seconds: float) -> bool:
        """Claim no more, and release every execution after its current steps; return True if all ended in time."""
        self._is_stopping = True
        self._freed.set()
        return await self.pool.drained(seconds)

    async def close(self) -> None:
        """Stop what still runs here."""
        self._closed.set()
        self.pool.close()
        tasks = [*self.live.values(), *self._adopted]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._log.close()


async def run_periodically(seconds: float, duty: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again; an error is logged and has no other effect."""
    while True:
        try:
            await duty()
        except Exception as error:
            logger.warning("error=<%s> | tried again in %g s", error, seconds)
        await asyncio.sleep(seconds)
