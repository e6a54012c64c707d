"""Answers questions whose time is over with their default answers: what a worker does beside running executions.

It works on the port alone. The questions it has seen are kept in memory, and read again when it starts: nothing is lost with a
worker that is killed, and two workers that answer at once give the same answer, which is recorded once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from .._records.crash_points import reach
from .._records.deadline import limited
from .._records.logs import safe_logger
from .._records.questions import DEADLINE
from .._records.views import OpenQuestion
from ..errors import BackendUnavailableError, ExecutionCancelledError, ExecutionNotFoundError, InputMismatchError
from .ports import DurableBackend
from .stopping import cancelled

logger = safe_logger(__name__)

_OVERLAP_SECONDS = 60.0
"""By how much each look reaches back: a list may lag behind, and clocks differ."""
_REST = 20
"""How many times as long as a look took the next one waits: thousands of open questions must not slow the runs beside it."""
_MOST_SECONDS = 10.0
"""The longest wait between two looks: a deadline is applied at most about this much too late."""


class DeadlineKeeper:
    """Knows the open questions of a backend that have a deadline."""

    def __init__(self, backend: DurableBackend) -> None:
        self._backend = backend
        self._since: float | None = None
        self._waiting: dict[tuple[str, str], OpenQuestion] = {}

    async def look(self) -> int:
        """Answer the questions whose time is over; return how many."""
        latest = time.time() - _OVERLAP_SECONDS
        if self._since is not None:
            self._since = min(self._since, latest)  # the clock may have been set back
        for found in await self._backend.questions(since=self._since):
            self._since = max(self._since or 0.0, min(found.asked_at - _OVERLAP_SECONDS, latest))
            if found.question.expires_at is not None:
                self._waiting[found.execution_id, found.question.interrupt_id] = found
        due = [key for key, found in self._waiting.items() if (found.question.expires_at or 0.0) <= time.time()]
        return sum([await self._expire(key) for key in due])

    async def _expire(self, key: tuple[str, str]) -> bool:
        """Answer one question; what the backend could not record now is tried again at the next look."""
        await asyncio.sleep(0)  # many may be due at once, and the runs of this worker have their turns in between
        try:
            is_answered = await expire(self._backend, self._waiting[key])
        except BackendUnavailableError as error:
            logger.warning("execution_id=<%s>, error=<%s> | deadline not applied, retrying", key[0], error)
            return False
        except Exception as error:  # one execution must not stop the others
            logger.warning("execution_id=<%s>, error=<%s> | deadline not applied", key[0], error)
            is_answered = False
        self._waiting.pop(key, None)
        return is_answered


async def expire(backend: DurableBackend, found: OpenQuestion) -> bool:
    """Answer a question whose time is over; False if it was answered in the meantime."""
    question = found.question
    reach("deadline:before")
    try:
        handle = await backend.get(found.execution_id)
        await handle.respond({question.interrupt_id: question.default}, by=DEADLINE)
    except (InputMismatchError, ExecutionNotFoundError, ExecutionCancelledError):
        return False  # answered, removed or cancelled in the meantime
    logger.info("execution_id=<%s>, question=<%s> | answered by its deadline", found.execution_id, question.name)
    reach("deadline:after")
    return True


@asynccontextmanager
async def expiring(backend: DurableBackend, seconds: float) -> AsyncIterator[None]:
    """Answer questions at their deadlines as long as the block runs, looking every ``seconds``."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(_keep(DeadlineKeeper(backend), seconds, stop))
    try:
        yield
    finally:
        stop.set()  # an engine's client may turn the cancellation of a request into an error of its own
        await cancelled(task)


async def _keep(keeper: DeadlineKeeper, seconds: float, stop: asyncio.Event) -> None:
    while not stop.is_set():
        began = time.monotonic()
        try:
            await keeper.look()
        except Exception as error:  # the engine may be unreachable for a while
            if not stop.is_set():
                logger.warning("error=<%s> | cannot look for questions with a deadline, retrying", error)
        pause = max(seconds, min(_MOST_SECONDS, _REST * (time.monotonic() - began)))
        with suppress(TimeoutError):
            await limited(stop.wait(), pause)
