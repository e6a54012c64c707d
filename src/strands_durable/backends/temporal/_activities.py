"""What a worker does for the workflow: take an execution over, and let its steps run."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Container
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from ..._carrier import Carrier
from ..._driver import Batch, Driver, Loop
from ..._lease import Released
from ..._outside import MAX_BYTES, Outside
from ..._points import reach
from ..._queue import Queue
from ..._replica import Rows
from ..._turns import Turn
from ...errors import PayloadTooLargeError
from ._carrying import carry, leave
from ._life import BEAT_SECONDS, Live, beating, is_asked, is_taken_back, signal, vouch
from ._log import read
from ._pieces import Pieces, refuse_overflow
from ._wire import (
    CARRY,
    DRIVE,
    GONE,
    NOT_HERE,
    OMITTED,
    PIECE,
    PROGRESS,
    RELEASE,
    STEPS,
    TOO_LARGE,
    WAKE,
    Carrying,
    Driving,
    Stepping,
    Told,
)

logger = logging.getLogger(__name__)

_HOOK_SECONDS = 0.5
_STOP_SECONDS = 10.0
_LONG_SECONDS = 1e9
_SUMMARY_LENGTH = 100
_TEXT_LENGTH = 10_000


class Activities:
    """The activities of one worker."""

    def __init__(
        self, client: Client, queue: str, loop: Loop, outside: Outside, only: Container[str] | None = None
    ) -> None:
        self._client, self._queue, self._loop, self._outside, self._only = client, queue, loop, outside, only
        self._carrier = Carrier(_LONG_SECONDS)
        self._live: dict[tuple[str, str], Live] = {}
        self._refused: set[str] = set()
        self._is_stopping = False
        self._left = asyncio.Event()

    def stop(self) -> None:
        """Leave all executions to other workers, each after the steps that run now."""
        self._is_stopping = True
        for live in self._live.values():
            live.driver.halt(Released(), gently=True)

    async def idle(self) -> None:
        """Return when this worker has nothing left to tell."""
        while self._live:
            self._left.clear()
            await self._left.wait()

    def busy(self) -> int:
        """Return how many executions are here."""
        return len(self._live)

    def waiting(self, *, alone: bool = False) -> int:
        """Return how many executions here do nothing but wait for others: they take no seat, or both would wait.

        ``alone``: of those that are tried alone, or else of all the others.
        """
        lives = list(self._live.values())  # asked for by threads of Temporal
        return sum(live.driver.is_waiting for live in lives if live.is_alone == alone)

    def steps(self) -> list[Any]:
        """Return what is to be registered where steps are sent."""
        return [activity.defn(name=name)(_copy(self.step)) for name in (*STEPS.values(), WAKE)] + [
            activity.defn(name=RELEASE)(_copy(self.release))
        ]

    def drives(self) -> list[Any]:
        """Return what is to be registered where executions are taken over."""
        return [activity.defn(name=DRIVE)(_copy(self.drive)), activity.defn(name=CARRY)(_copy(self.carry))]

    async def carry(self, given: Carrying) -> Rows:
        """Have a run of the workflow begin with what the one before it had come to."""
        async with beating():
            return await carry(self._client, self._outside, given)

    # Taking an execution over

    async def drive(self, given: Driving) -> Told:
        """Run an execution until it ends, waits, or is to be left."""
        async with beating():
            try:
                return await self._taken_over(given, activity.info())
            except asyncio.CancelledError:
                if is_asked():
                    raise
                raise _gone(f"epoch {given['epoch']}") from None

    async def _taken_over(self, given: Driving, info: activity.Info) -> Told:
        assert info.heartbeat_timeout is not None
        workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        if self._is_stopping:
            raise _not_here("the worker is being stopped")
        if self._only is not None and workflow_id not in self._only:
            raise _not_here("the process that was asked works on its own executions only; start a worker")
        log = await read(self._client, self._outside, workflow_id, run_id)
        replica = await asyncio.to_thread(log.replica, given["base"])
        if replica is None:
            raise _not_here(f"history does not go as far as {given['base']} yet")
        if log.has_told(given["epoch"]):  # somebody tries once more what has begun: whoever goes on is the next one
            raise _gone(f"epoch {given['epoch']}")
        log.withdraw(replica)
        is_pardoned = log.survivor == given["base"][0] and given["base"][1] > 0  # else its owner is an earlier one
        if is_pardoned:
            Queue(replica).pardon()
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        driver = Driver(
            replica,
            self._carrier,
            alone=given["alone"],
            on_news=partial(_set, loop, news),
        )
        if given["alone"] and is_pardoned and not driver.is_suspected:
            return {**await self._told(given["epoch"], driver), "end": _ended(driver, 0)}  # for any worker
        await self._refuse(driver, workflow_id)
        execution_id, agent = log.start["execution_id"], log.start["agent"]
        logger.info("execution_id=<%s>, agent=<%s>, alone=<%s> | claimed", execution_id, agent, given["alone"])
        live = Live(given["epoch"], driver, replica, news, info.heartbeat_timeout.total_seconds(), given["alone"])
        key = (workflow_id, run_id)
        self._live[key] = live
        if self._is_stopping:
            driver.halt(Released())
        try:
            async with beating(live):
                return await self._driven(live, info)
        except ApplicationError:
            raise
        except Exception as error:  # whoever tries again must know what was told so far: it is another epoch
            logger.warning("execution_id=<%s>, error=<%r> | not carried on here", workflow_id, error)
            raise _gone(f"epoch {live.epoch}: {error!r}") from error
        finally:
            if self._live.get(key) is live:
                del self._live[key]
            self._left.set()

    async def _refuse(self, driver: Driver, workflow_id: str) -> None:
        why = await asyncio.to_thread(driver.refusal)
        if why is None:
            return
        if why not in self._refused:
            self._refused.add(why)
            logger.warning("execution_id=<%s> | left unclaimed: %s", workflow_id, why)
        raise _not_here(f"{why}; start a worker with the version that dispatched it")

    async def _driven(self, live: Live, info: activity.Info) -> Told:
        driver = live.driver
        self._loop.run(driver)
        is_first = True
        try:
            while not (driver.is_over and driver.is_calm and not live.steps):
                if driver.is_calm and driver.has_untold and not live.is_reporting:
                    told = await self._told(live.epoch, driver)
                    if is_first:
                        told["queue"] = self._queue
                    is_first = False
                    reach("told:before")
                    await signal(self._client, PROGRESS, told)
                    reach("told:after")
                await live.change()
        except asyncio.CancelledError:
            await self._cancelled(live)
        except BaseException:
            driver.halt(Released())
            raise
        told = await self._told(live.epoch, driver)
        told["end"] = _ended(driver, len(json.dumps(told["rows"])))
        if live.is_leaving:
            return await asyncio.to_thread(leave, self._outside, live.replica, told, info.workflow_id or "")
        return told

    async def _cancelled(self, live: Live) -> None:
        """Somebody has cancelled the execution, or it is no longer ours: what runs is to stop."""
        is_cancelled = is_asked() and not await is_taken_back(self._client, live)
        live.driver.halt(None if is_cancelled else Released())
        await vouch(self._client, live)
        until = time.monotonic() + (_STOP_SECONDS if is_cancelled else BEAT_SECONDS)
        while not (live.driver.is_over and live.driver.is_calm) and time.monotonic() < until:
            await live.change()

    # Steps

    async def step(self, given: Stepping) -> Told:
        """Let a step run, and tell what has changed once it has ended, with what comes next if that is soon known."""
        live = self._found(given["epoch"])
        driver, turn_id = live.driver, given["turn"]
        live.look()
        if live.is_lost or not driver.open(turn_id):
            raise _gone(turn_id)
        live.steps.add(turn_id)
        try:
            async with beating(live):
                while not driver.has_ended(turn_id):
                    await live.change()
                await _settled(live)
                return await self._told(live.epoch, driver)
        except asyncio.CancelledError:
            if is_asked():
                driver.halt()
                raise
            driver.halt(Released())
            await vouch(self._client, live)
            raise _gone(turn_id) from None
        finally:
            live.steps.discard(turn_id)
            live.news.set()

    async def release(self, given: dict[str, Any]) -> None:
        """Leave an execution, so that it can go on in a new run of its workflow."""
        live = self._found(given["epoch"])
        live.is_leaving = True
        live.driver.halt(Released())

    def _found(self, epoch: int) -> Live:
        info = activity.info()
        live = self._live.get((info.workflow_id or "", info.workflow_run_id or ""))
        if live is None or live.epoch != epoch:
            raise _gone(f"epoch {epoch}")
        return live

    async def _told(self, epoch: int, driver: Driver) -> Told:
        batch: Batch = driver.batch()
        info, pieces = activity.info(), Pieces()
        what = _what(batch.rows, info.workflow_id)
        send = partial(self._outside.sent, batch.rows, what, put=pieces.put)
        rows = await asyncio.to_thread(send) if self._outside.is_far else send()
        if pieces.size:
            await self._send(pieces, what, info)
        return {
            "epoch": epoch,
            "number": batch.number,
            "rows": rows,
            "turns": [_asked(turn_id, turn, turn_id in batch.inner) for turn_id, turn in batch.turns.items()],
        }

    async def _send(self, pieces: Pieces, what: str, info: activity.Info) -> None:
        """Send what is too large for one payload, as long as Temporal keeps it."""
        workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        try:
            await refuse_overflow(self._client, workflow_id, run_id, pieces.size, what)
        except PayloadTooLargeError as error:
            raise ApplicationError(str(error), type=TOO_LARGE, non_retryable=True) from error
        await pieces.send(partial(signal, self._client, PIECE))


def _ended(driver: Driver, beside: int) -> dict[str, Any]:
    """Return how far an execution has come, in a form that Temporal takes with so many bytes beside it."""
    end = driver.ended()
    result, error = end.result, end.error
    if len(json.dumps(result)) + beside > MAX_BYTES:
        result = {OMITTED: "its result is too large for Temporal, with what was recorded last"}
    if error is not None:
        error = {**error, "text": error["text"][:_TEXT_LENGTH]}
    return {
        "status": end.status.value,
        "result": result,
        "error": error,
        "steps": end.steps,
        "not_before": end.not_before,
    }


def _what(rows: Rows, workflow_id: str | None) -> str:
    """Return what a batch is, for an error."""
    names = sorted({row[5] for row in rows.get("steps", ()) if row[4] == "tool"})
    of_tools = f", of {', '.join(names)}" if names else ""
    return f"Execution {workflow_id!r}: what is recorded at once{of_tools}"


def _asked(turn_id: str, turn: Turn, is_inner: bool) -> dict[str, Any]:
    """Return what the workflow is to know of a step that waits."""
    asked: dict[str, Any] = {"id": turn_id, "kind": turn.kind, "step": [turn.call_id, turn.key, turn.attempt]}
    asked["summary"] = ""
    if is_inner:
        asked["is_inner"] = True
    if turn.kind != "model":
        asked["summary"] = f"{turn.name} {turn.title}"[:_SUMMARY_LENGTH]
    return {**asked, "until": turn.until} if turn.until else asked


def _set(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    loop.call_soon_threadsafe(news.set)


async def _settled(live: Live) -> None:
    """Return when it is known what comes next; but what has ended must not wait for a hook that takes its time."""
    until = time.monotonic() + _HOOK_SECONDS
    while not live.driver.is_settled and time.monotonic() < until:
        await live.change(_HOOK_SECONDS)


def _not_here(why: str) -> ApplicationError:
    return ApplicationError(why, type=NOT_HERE, category=ApplicationErrorCategory.BENIGN)


def _gone(what: str) -> ApplicationError:
    return ApplicationError(
        f"{what} is not at work here", type=GONE, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


def _copy(method: Any) -> Any:
    """Return a function of its own for each name that an activity is known by."""

    async def act(given: dict) -> Any:  # type: ignore[type-arg]
        return await method(given)

    return act
