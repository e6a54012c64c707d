"""The activities that a worker runs for the workflow: take over an execution, and let its steps run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from ..._calls.control import ExecutionReleasedError
from ..._dispatch.quarantine import QuarantineProcess, untried
from ..._dispatch.queue import Queue
from ..._dispatch.runner import ExecutionRunner
from ..._enginekit.agent_loop import AgentLoop
from ..._enginekit.driver import Batch, Driver
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.pieces import Pieces
from ..._enginekit.replica import Replica
from ..._records.change_sets import ChangeSet
from ..._records.crash_points import reach
from ..._records.findings import ANY_ID
from ..._records.logs import safe_logger
from ..._records.step_gate import StepTicket
from ...errors import PayloadTooLargeError
from ._active import ActiveExecution
from ._connectivity import Link
from ._continue_as_new import carry, leave
from ._detached import DetachedExecutions, Key
from ._heartbeat import BEAT_SECONDS, Beat, beating, is_asked, is_cancelled, is_shutdown, is_withdrawn, signal
from ._history_reader import read
from ._history_size import refuse_overflow
from ._messages import asked, ended, what
from ._protocol import (
    CANCEL,
    CARRY,
    DRIVE,
    GONE,
    NOT_HERE,
    PIECE,
    PROGRESS,
    RELEASE,
    STEPS,
    TOO_LARGE,
    WAKE,
    BatchMessage,
    Carrying,
    Driving,
    Stepping,
)

logger = safe_logger(__name__)

_HOOK_SECONDS = 0.5
_STOP_SECONDS = 10.0
_LONG_SECONDS = 1e9


_NONE: Mapping[str, StepTicket] = {}


class Activities:
    """The activities of one worker."""

    def __init__(
        self,
        client: Client,
        queue: str,
        loop: AgentLoop,
        payload_store: PayloadStore,
        link: Link,
        only: Container[str] | None = None,
        reports: Sequence[str] = (),
        quarantine: QuarantineProcess | None = None,
    ) -> None:
        self._client, self._queue, self._loop, self._payload_store = client, queue, loop, payload_store
        self._only, self._reports, self._quarantine = only, list(reports), quarantine
        self._link, self._held = link, DetachedExecutions(client, queue, link)
        self._runner = ExecutionRunner(_LONG_SECONDS)
        self._live: dict[Key, ActiveExecution] = {}
        self._refused: set[str] = set()
        self._is_stopping = False
        self._left = asyncio.Event()

    def stop(self) -> None:
        """Release all executions to other workers, each after the steps that run now."""
        self._is_stopping = True
        for _, live in (*self._live.items(), *self._held.items()):
            live.driver.halt(ExecutionReleasedError(), gently=True)

    async def idle(self) -> None:
        """Return when this worker has nothing left to report."""
        while self._live:
            self._left.clear()
            await self._left.wait()

    def names(self) -> list[str]:
        """Return the ids of the workflows of what is here."""
        return [workflow_id for workflow_id, _ in self._live]

    def waiting(self, *, alone: bool = False) -> int:
        """Return how many executions here only wait for others: they occupy no slot, to avoid a deadlock.

        ``alone``: count only quarantined executions; otherwise only the others.
        """
        lives = list(self._live.values())  # called from Temporal's threads
        return sum(live.driver.is_waiting for live in lives if live.is_alone == alone)

    def steps(self) -> list[Any]:
        """Return the activities to register on the queue for steps."""
        steps = [activity.defn(name=name)(_copy(self.step)) for name in (*STEPS.values(), WAKE)]
        others = {RELEASE: self.release, CANCEL: self.cancel, DRIVE: self.drive}
        return [*steps, *(activity.defn(name=name)(_copy(method)) for name, method in others.items())]

    def drives(self) -> list[Any]:
        """Return the activities to register on queues that offer executions."""
        return [activity.defn(name=DRIVE)(_copy(self.drive)), activity.defn(name=CARRY)(_copy(self.carry))]

    async def carry(self, given: Carrying) -> ChangeSet:
        """Send a new run of the workflow the state of the run before it."""
        async with beating():
            return await carry(self._client, self._payload_store, given)

    # Taking over an execution

    async def drive(self, given: Driving) -> BatchMessage:
        """Run an execution until it ends, waits or is released."""
        async with beating() as beat:
            try:
                if "held" in given:
                    return await self._resumed(given, activity.info(), beat)
                return await self._taken_over(given, activity.info(), beat)
            except asyncio.CancelledError:
                if is_asked():
                    raise
                raise _gone(f"epoch {given['epoch']}") from None

    async def _taken_over(self, given: Driving, info: activity.Info, beat: Beat) -> BatchMessage:
        assert info.heartbeat_timeout is not None
        workflow_id, seconds = info.workflow_id or "", info.heartbeat_timeout.total_seconds()
        if self._is_stopping:
            raise _not_here("the worker is being stopped")
        if self._only is not None and workflow_id not in self._only:
            raise _not_here("the process that polled runs only its own executions; start a worker")
        if given.get("lost") and await self._link.settle() and await is_withdrawn(self._client):
            raise _not_here("the worker that has it is alive")
        log = await read(self._client, self._payload_store, workflow_id, info.workflow_run_id or "")
        replica = await asyncio.to_thread(log.replica, given["base"])
        if replica is None:
            raise _not_here(f"history does not reach {given['base']} yet")
        if log.has_reported(given["epoch"]):  # a retry of an epoch that has begun: the next epoch resumes it
            raise _gone(f"epoch {given['epoch']}")
        log.withdraw(replica)
        is_pardoned = log.survivor == given["base"][0] and given["base"][1] > 0  # else an earlier owner is recorded
        if is_pardoned:
            Queue(replica).clear_suspicion()
        log.accept_drift(replica)
        live = self._lively(given, replica, seconds, beat)
        if given["alone"] and is_pardoned and not live.driver.is_suspected:
            return {**await self._batch_message(live, live.batch()), "end": ended(live.driver, 0)}  # for any worker
        execution_id, agent = log.start["execution_id"], log.start["agent"]
        await self._refuse(live.driver, workflow_id, execution_id)
        logger.info("execution_id=<%s>, agent=<%s>, alone=<%s> | claimed", execution_id, agent, given["alone"])
        if (why := self._waits(alone=live.is_alone)) is not None:
            raise _not_here(why)
        self._live[_key(info)] = live
        if self._is_stopping:
            live.driver.halt(ExecutionReleasedError())
        self._loop.run(live.driver)
        return await self._carried(live, info, beat, [])

    def _waits(self, *, alone: bool) -> str | None:
        """Return why an execution may not run beside those that run here: nothing does beside one that is tried."""
        if self._quarantine is None:
            return None
        others = [live for _, live in (*self._live.items(), *self._held.items()) if not live.driver.is_waiting]
        if alone and others:
            return untried(str(self._quarantine.trouble))
        return "a worker is trying another execution alone" if any(live.is_alone for live in others) else None

    def _lively(self, given: Driving, replica: Replica, seconds: float, beat: Beat) -> ActiveExecution:
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        driver = Driver(replica, self._runner, alone=given["alone"], on_notify=partial(_set, loop, news))
        live = ActiveExecution(
            epoch=given["epoch"],
            driver=driver,
            replica=replica,
            news=news,
            heartbeat_seconds=seconds,
            is_alone=given["alone"],
            beat=beat,
        )
        beat.on_look = live.look
        return live

    async def _resumed(self, given: Driving, info: activity.Info, beat: Beat) -> BatchMessage:
        """Reattach an execution that Temporal had lost contact with and that kept running here."""
        key, (epoch, accepted) = _key(info), given["held"]
        live = self._held.get(key) or self._live.get(key)
        if live is None or live.epoch != epoch or live.is_lost or self._is_stopping:
            raise _gone(f"epoch {epoch}")
        self._held.let_go(key)
        self._live[key], live.beat, beat.on_look = live, beat, live.look
        live.news.set()  # ends an earlier activity that does not know of this one yet
        batches, running = live.again(given["epoch"], accepted)
        logger.warning("execution_id=<%s>, running=<%d> | resumed by the worker that has it", key[0], len(running))
        lacking = [(batch, running if batch is batches[-1] else {}) for batch in batches]
        return await self._carried(live, info, beat, lacking)

    async def _carried(
        self, live: ActiveExecution, info: activity.Info, beat: Beat, lacking: list[tuple[Batch, dict[str, StepTicket]]]
    ) -> BatchMessage:
        try:
            return await self._driven(live, info, beat, lacking)
        except ApplicationError:
            raise
        except Exception as error:  # a retry must build on what was reported so far, in a new epoch
            logger.warning("execution_id=<%s>, error=<%r> | cannot continue here", info.workflow_id, error)
            raise _gone(f"epoch {live.epoch}: {error!r}") from error
        finally:
            if self._live.get(_key(info)) is live and live.beat is beat:
                del self._live[_key(info)]
            self._left.set()

    async def _refuse(self, driver: Driver, workflow_id: str, execution_id: str) -> None:
        if (why := await driver.refusal()) is None:
            return
        reason = why.replace(execution_id, ANY_ID)
        if reason not in self._refused:
            self._refused.add(reason)
            logger.warning("execution_id=<%s> | left unclaimed: %s", workflow_id, why)
        raise _not_here(why)

    async def _driven(
        self, live: ActiveExecution, info: activity.Info, beat: Beat, lacking: list[tuple[Batch, dict[str, StepTicket]]]
    ) -> BatchMessage:
        driver = live.driver
        try:
            for batch, running in lacking:
                await self._report(live, batch, running)
            while not (driver.is_over and driver.is_quiescent and not live.steps and not self._link.is_away):
                if driver.is_quiescent and (driver.has_unreported or driver.has_notes) and not live.is_reporting:
                    await self._report(live, live.batch())
                await live.change()
                if live.beat is not beat:
                    raise _gone("what another activity has resumed")
        except asyncio.CancelledError:
            await self._cancelled(live, info)
        except ApplicationError:
            raise
        except BaseException:
            driver.halt(ExecutionReleasedError())
            raise
        message = await self._batch_message(live, live.batch())
        message["end"] = ended(driver, len(json.dumps(message["rows"])))
        if live.is_leaving:
            return await asyncio.to_thread(leave, self._payload_store, live.replica, message, info.workflow_id or "")
        return message

    async def _report(self, live: ActiveExecution, batch: Batch, running: Mapping[str, StepTicket] = _NONE) -> None:
        """Signal a batch that no step returns; the first of an epoch names the task queue of this worker."""
        message = await self._batch_message(live, batch, running)
        if batch.number == 1:
            message["queue"], message["stops"] = self._queue, True
        reach("report:before")
        await signal(self._client, PROGRESS, message)
        reach("report:after")

    async def _cancelled(self, live: ActiveExecution, info: activity.Info) -> None:
        """Stop an execution that was cancelled, or that another worker has.

        If Temporal has only lost contact with this worker, keep it running and notify the workflow that it may reattach.
        """
        is_for_good = await is_cancelled(self._client)
        if not is_for_good and self._may_hold(live) and not is_shutdown():
            self._held.hold(_key(info), live)
            await self._held.announce(_key(info), live)
            raise _gone(f"epoch {live.epoch}")
        live.driver.halt(None if is_for_good else ExecutionReleasedError())
        await self._held.report_alive(_key(info), live)
        until = time.monotonic() + (_STOP_SECONDS if is_for_good else BEAT_SECONDS)
        while not (live.driver.is_over and live.driver.is_quiescent) and time.monotonic() < until:
            await live.change()

    def _may_hold(self, live: ActiveExecution) -> bool:
        """Return True if an execution may keep running here although Temporal has lost contact with this worker."""
        return live.has_begun and not live.is_lost and not live.is_alone and not self._is_stopping

    async def back(self, seconds: float) -> None:
        """Announce the executions that Temporal may have given up while the server was unreachable for ``seconds``."""
        lives = [(key, live) for key, live in self._live.items() if seconds > live.heartbeat_seconds / 4]
        lives = [*self._held.items(), *((key, live) for key, live in lives if self._may_hold(live))]
        await asyncio.gather(*(self._held.announce(key, live) for key, live in lives))

    # Steps

    async def step(self, given: Stepping) -> BatchMessage:
        """Let a step run, and return what has changed once it has ended, with the next steps if they are known soon."""
        live = self._found(given["epoch"])
        driver, ticket_id, mine = live.driver, given["turn"], (given["epoch"], given["turn"])
        live.look()
        if live.is_lost or not (given.get("held") or driver.open(ticket_id)):
            raise _gone(ticket_id)
        live.accept(ticket_id)
        live.steps.add(mine)
        try:
            async with beating():
                while not driver.has_ended(ticket_id):
                    await live.change()
                await _settled(live)
                if live.epoch != given["epoch"]:
                    raise _gone(ticket_id)  # Temporal had given it up; another activity returns the result
                return await self._batch_message(live, live.batch())
        except asyncio.CancelledError:
            if is_asked():
                raise
            raise _gone(ticket_id) from None
        finally:
            live.steps.discard(mine)
            live.news.set()

    async def release(self, given: dict[str, Any]) -> None:
        """Release an execution, so that it can continue in a new run of its workflow."""
        live = self._found(given["epoch"])
        live.is_leaving = True
        live.driver.halt(ExecutionReleasedError())

    async def cancel(self, given: dict[str, Any]) -> None:
        """Stop an execution that was cancelled: heartbeats are too rare to wait for the next one."""
        self._found(given["epoch"]).driver.halt()

    def _found(self, epoch: int) -> ActiveExecution:
        live = self._live.get(_key(activity.info()))
        if live is None or live.epoch != epoch:
            raise _gone(f"epoch {epoch}")
        return live

    async def _batch_message(
        self, live: ActiveExecution, batch: Batch, running: Mapping[str, StepTicket] = _NONE
    ) -> BatchMessage:
        epoch, info, pieces = live.epoch, activity.info(), Pieces(self._payload_store.limits.max_bytes)
        name = what(batch.rows, info.workflow_id)
        send = partial(self._payload_store.offload, batch.rows, name, put=pieces.put)
        rows = await asyncio.to_thread(send) if self._payload_store.is_external else send()
        if pieces.size:
            await self._send(pieces, name, info)
        waiting = [asked(ticket_id, ticket, ticket_id in batch.inner) for ticket_id, ticket in batch.tickets.items()]
        held = [{**asked(ticket_id, ticket, False), "held": True} for ticket_id, ticket in running.items()]
        message: BatchMessage = {"epoch": epoch, "number": batch.number, "rows": rows, "turns": [*held, *waiting]}
        if batch.number == 1 and self._reports:
            message["reports"] = self._reports
        return message

    async def _send(self, pieces: Pieces, name: str, info: activity.Info) -> None:
        """Send what is too large for one payload, unless the history would become too large."""
        workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        try:
            await refuse_overflow(self._client, workflow_id, run_id, pieces.size, name)
        except PayloadTooLargeError as error:
            raise ApplicationError(str(error), type=TOO_LARGE, non_retryable=True) from error
        await pieces.send(partial(signal, self._client, PIECE))


def _key(info: activity.Info) -> Key:
    return info.workflow_id or "", info.workflow_run_id or ""


def _set(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    loop.call_soon_threadsafe(news.set)


async def _settled(live: ActiveExecution) -> None:
    """Return when the next step is known, or after a moment: the result of a step must not wait for a slow hook."""
    until = time.monotonic() + _HOOK_SECONDS
    while not live.driver.is_settled and time.monotonic() < until:
        await live.change(_HOOK_SECONDS)


def _not_here(why: str) -> ApplicationError:
    return ApplicationError(why, type=NOT_HERE, category=ApplicationErrorCategory.BENIGN)


def _gone(what: str) -> ApplicationError:
    return ApplicationError(
        f"{what} is not running here", type=GONE, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


def _copy(method: Any) -> Any:
    """Return a separate function, so that a method can be registered under several activity names."""

    async def act(given: dict) -> Any:  # type: ignore[type-arg]
        return await method(given)

    return act
