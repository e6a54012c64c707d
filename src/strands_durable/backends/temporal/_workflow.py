"""The workflow of every execution: it records what workers report, and schedules steps. It runs no code of an agent.

History is the journal. A worker that takes over the execution (an epoch) reports what has changed in batches; every waiting
step becomes an activity on that same worker, and runs once the batch with its intent is part of history. If the worker is lost,
another one reads the history and resumes. Because no agent runs here, replay costs next to nothing, nothing an agent does can
be non-deterministic, and a new version of an agent breaks no workflow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from ..._enginekit.pieces import piece_of
from ..._enginekit.supervision import Offer, Supervisor
from ._activity_calls import ask, carry, start_driving
from ._failures import committed, failure, is_gone, is_of, is_too_large, too_large
from ._history_size import Growth
from ._notifications.notify_workflow import start_notifying
from ._protocol import (
    ACCEPT_DRIFT,
    ALIVE,
    CANCEL,
    COMMIT,
    NOT_HERE,
    NOTIFY,
    PIECE,
    PREVIOUS,
    PROGRESS,
    RELEASE,
    STALE,
    STEPS,
    WAKE,
    WORKFLOW,
    BatchMessage,
    Carrying,
    Driving,
    Position,
    Start,
    Stepping,
    alive_of,
    batch_message_of,
)

_CANCEL_SECONDS = 15.0
_SURVIVOR_SECONDS = 3.0
"""Upper bound, once the server is back, until a worker learns that it was given up and reports that it is alive."""


@workflow.defn(name=WORKFLOW)
class ExecutionWorkflow:
    """One execution."""

    @workflow.init
    def __init__(self, start: Start) -> None:
        self._start = start
        self._epochs = Supervisor(start["epoch"])
        self._status, self._steps = "PENDING", 0
        self._totals: dict[str, Any] = {}
        self._is_woken = False
        self._running: dict[str, asyncio.Task[None]] = {}
        self._lost: str | None = None
        self._broken: ApplicationError | None = None
        self._is_leaving = False
        self._has_begun = False
        """Whether a step was let run since this run of the workflow began."""
        self._growth = Growth(start)
        self._reports: list[str] = []
        """The events that workers report."""

    @workflow.run
    async def run(self, start: Start) -> Any:
        """Run the execution to its end, and return its result."""
        try:
            end = await self._run(start)
        except (ApplicationError, ActivityError) as error:
            if not is_cancelled_exception(error):
                await self._report_end("failed")
            raise
        await self._report_end(end["status"].lower())
        self._show(end["status"])
        if end["status"] == "FAILED":
            raise failure(start["execution_id"], end["error"])
        return end["result"]

    async def _report_end(self, event: str) -> None:
        """Have the end of the execution reported; what is recorded as ended stays so, even if it is cancelled now."""
        if self._is_reported(event):
            starting = asyncio.ensure_future(start_notifying(self._start, event))
            while not starting.done():
                try:
                    await asyncio.shield(starting)
                except asyncio.CancelledError:
                    continue

    def _is_reported(self, event: str) -> bool:
        """Return whether a worker reports an event. If a version that knows no reports ran this task, history says so."""
        return event in self._reports and workflow.patched(f"{NOTIFY}-{self._epochs.epoch}")

    async def _run(self, start: Start) -> dict[str, Any]:
        """Have workers run the execution until it has completed or failed; return how."""
        if PREVIOUS in start["rows"]:
            await self._take_over()
        while True:
            message = await self._drive()
            end = {} if message is None else message["end"]
            status = end.get("status")
            self._steps, self._totals = end.get("steps", self._steps), end.get("totals", self._totals)
            if status in ("COMPLETED", "FAILED"):
                return end
            if status == "SUSPENDED":
                self._show(status)
                if self._is_reported("suspended"):
                    await start_notifying(start, "suspended")
                await workflow.wait_condition(lambda: self._is_woken)
                self._is_woken = False
                continue
            await self._rest(end.get("not_before", 0.0))
            if message is not None and "whole" in message:
                self._continue(message["whole"], message.get("whole_bytes", 0))
            if message is not None and "whole_bytes" in message:
                self._growth.stay(message["whole_bytes"])

    async def _rest(self, not_before: float) -> None:
        """Wait before the next worker takes over: until the time that the last one set, or longer if none makes progress."""
        pause_seconds = self._epochs.count(was_useful=self._is_leaving)
        seconds = max(not_before - workflow.time(), pause_seconds)
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _take_over(self) -> None:
        """Have a worker send the state of the run before, which was too large for the input."""
        info = workflow.info()
        given: Carrying = {
            "run_id": info.continued_run_id or self._start["previous_run_id"],
            "base": self._start["rows"][PREVIOUS],
            "changes": self._start.get("changes", {}),
        }
        await carry(given, self._start)

    def _continue(self, whole: dict[str, Any], size: int) -> None:
        """Continue in a new run, with an empty history."""
        given: Start = {**self._start, "rows": whole, "epoch": self._epochs.epoch}
        given.pop("carried_bytes", None)
        if size:
            given["carried_bytes"] = size
        given.pop("previous_run_id", None)
        given.pop("changes", None)
        workflow.continue_as_new(given, memo={**workflow.memo(), "status": self._status, "steps": self._steps})

    def _show(self, status: str) -> None:
        """Publish the status in the memo, where it can be read without a worker."""
        if status != self._status:
            self._status = status
            shown = {"status": status, "steps": self._steps, "updated_at": workflow.time()}
            workflow.upsert_memo({**shown, **self._totals})

    # Signals and updates

    @workflow.signal(name=PROGRESS)
    def progress(self, *given: Any) -> None:
        """Accept a batch that no step returned."""
        message = batch_message_of(_one(given))
        if message is None:
            _ignore(PROGRESS)
        else:
            self._take(message)

    @workflow.signal(name=ALIVE)
    def alive(self, *given: Any) -> None:
        """Record that a worker is alive: if it was given up, the execution has not killed it."""
        alive = alive_of(_one(given))
        if alive is None:
            _ignore(ALIVE)
        else:
            self._epochs.alive(alive["epoch"], alive.get("queue"))

    @workflow.signal(name=PIECE)
    def piece(self, *given: Any) -> None:
        """Do nothing with a part of a large payload: only readers of history need it."""
        if piece_of(_one(given)) is None:
            _ignore(PIECE)

    @workflow.signal(dynamic=True)
    def other(self, name: str, given: Sequence[RawValue]) -> None:
        """Ignore signals that are not ours."""
        _ignore(name)

    @workflow.signal(name=ACCEPT_DRIFT)
    def accept_drift(self, given: Any = None) -> None:
        """Record in history that another version may take over the execution; the next worker reads it there."""

    @workflow.update(name=COMMIT)
    async def commit(self, *given: Any) -> Position:
        """Accept what a client adds; refuse it if the execution has changed since the client read it."""
        base, epochs = committed(_one(given))["base"], self._epochs
        await workflow.wait_condition(  # on a replay, what this waits for may come after it
            lambda: epochs.position > base or (epochs.position == base and not epochs.is_driven)
        )
        if epochs.position != base:
            raise ApplicationError(f"stale: {base} is not {epochs.position}", type=STALE, non_retryable=True)
        position = epochs.commit()
        self._is_woken = True
        self._show("PENDING")
        return position

    @commit.validator
    def check_commit(self, *given: Any) -> None:
        """Refuse a malformed update before it becomes part of history."""
        committed(_one(given))

    # An epoch

    async def _drive(self) -> BatchMessage | None:
        """Have a worker take over the execution; return its last batch, or None if the worker was lost."""
        epochs = self._epochs
        if epochs.waits_for_survivor:
            await self._hear_of_survivor()
        else:
            epochs.clear_suspicion()
        offer = epochs.begin()
        self._lost, self._is_leaving, self._running = None, False, {}
        drive = start_driving(_driving(offer), self._start, offer.holder)
        drive.add_done_callback(_retrieve_exception)
        try:
            return await self._until_left(drive)
        except asyncio.CancelledError:
            drive.cancel()
            if epochs.can_stop and epochs.queue:
                self._running[CANCEL] = asyncio.create_task(self._tell_worker(CANCEL))
            await asyncio.wait([drive], timeout=_CANCEL_SECONDS)
            raise
        finally:
            epochs.is_driven = False

    async def _hear_of_survivor(self) -> None:
        """Give a process that ran the quarantined execution time to report that it is alive: its death would be counted."""
        lost, seconds = self._epochs.epoch, min(_SURVIVOR_SECONDS, self._start["heartbeat_seconds"] / 2)
        try:
            await workflow.wait_condition(lambda: self._epochs.survivor == lost, timeout=seconds)
        except TimeoutError:
            return

    async def _until_left(self, drive: asyncio.Task[BatchMessage]) -> BatchMessage | None:
        while True:
            await workflow.wait_condition(
                lambda: (
                    drive.done()
                    or self._lost is not None
                    or bool(self._startable())
                    or self._may_leave()
                    or self._epochs.is_to_be_taken_back
                )
            )
            if self._epochs.is_to_be_taken_back:
                self._epochs.take_back()
                drive.cancel()
            if self._may_leave():
                self._is_leaving = True
                self._running[RELEASE] = asyncio.create_task(self._tell_worker(RELEASE))
            for turn in self._startable():
                self._epochs.waiting.remove(turn)
                self._has_begun = True
                self._running[turn["id"]] = asyncio.create_task(self._step(turn))
            if self._broken is not None:
                raise self._broken
            if self._lost is not None:
                workflow.logger.warning("epoch=<%d>, reason=<%s> | worker lost", self._epochs.epoch, self._lost)
                drive.cancel()
                for task in self._running.values():
                    task.cancel()
                return None
            if drive.done():
                return await self._left(drive)

    async def _left(self, drive: asyncio.Task[BatchMessage]) -> BatchMessage | None:
        """Return the last batch, once all earlier ones have arrived."""
        try:
            message = drive.result()
        except ActivityError as error:
            if self._epochs.is_taken_back and (is_cancelled_exception(error) or is_of(error, NOT_HERE)):
                self._epochs.is_suspected = False
                return None
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from None
            is_timeout = isinstance(error.cause, ActivityTimeoutError)
            if is_too_large(error):
                raise too_large(error) from None
            if not is_timeout and not is_gone(error):
                raise
            self._epochs.lose(is_timeout=is_timeout)
            for task in self._running.values():
                task.cancel()
            return None
        self._take(message)
        epochs = self._epochs
        await workflow.wait_condition(
            lambda: epochs.number >= message["number"] or not self._running or bool(self._lost)
        )
        epochs.is_suspected = False
        return message if epochs.number >= message["number"] else None

    def _startable(self) -> list[dict[str, Any]]:
        """Return the steps that may start: before a new run, only those that a running step waits for."""
        return self._epochs.startable(lambda: not self._wants_new_run())

    def _may_leave(self) -> bool:
        """Return True if the worker is to release the execution, so that it can continue in a new run."""
        is_idle = bool(self._epochs.waiting) and bool(self._epochs.queue) and not self._running
        return is_idle and not self._is_leaving and self._wants_new_run()

    def _wants_new_run(self) -> bool:
        return self._growth.wants_new_run(has_begun=self._has_begun)

    async def _tell_worker(self, what: str) -> None:
        await self._ask(what, {"epoch": self._epochs.epoch}, what, "")

    async def _step(self, turn: dict[str, Any]) -> None:
        """Let a step run on the worker of its agent, and accept its batch."""
        given: Stepping = {"epoch": self._epochs.epoch, "turn": turn["id"], "step": turn["step"]}
        if turn.get("held"):
            given["held"] = True
        if "until" in turn:
            await asyncio.sleep(max(0.0, turn["until"] - workflow.time()))
        message = await self._ask(WAKE if "until" in turn else STEPS[turn["kind"]], given, turn["id"], turn["summary"])
        if message is not None:
            self._take(message)

    async def _ask(self, what: str, given: Any, key: str, summary: str) -> BatchMessage | None:
        epoch = self._epochs.epoch
        try:
            return await ask(what, given, f"{epoch}-{key}", self._epochs.queue, self._start, summary)
        except ActivityError as error:
            # A worker that has lost or released the execution lets no step start, and is about to report that itself.
            if epoch == self._epochs.epoch and not is_cancelled_exception(error) and not is_gone(error):
                self._lost = f"{what}: {error.cause}"
                self._broken = too_large(error) if is_too_large(error) else None
                self._epochs.lose_step(is_timeout=isinstance(error.cause, ActivityTimeoutError))
            return None
        finally:
            if epoch == self._epochs.epoch:
                self._running.pop(key, None)

    def _take(self, message: BatchMessage) -> None:
        """Take a batch; the first of an epoch shows that a worker has the execution."""
        self._reports = message.get("reports", self._reports)
        if self._epochs.take(message):
            self._show("RUNNING")


def _driving(offer: Offer) -> Driving:
    given: Driving = {"epoch": offer.epoch, "base": offer.base, "alone": offer.alone}
    if offer.holder:
        given["held"] = offer.held
    elif offer.is_lost:
        given["lost"] = True
    return given


def _one(given: tuple[Any, ...]) -> Any:
    """Return the only argument of a signal or an update."""
    return given[0] if len(given) == 1 else None


def _ignore(name: str) -> None:
    workflow.logger.warning("signal=<%s> | not of a form that this workflow knows, ignored", name)


def _retrieve_exception(drive: asyncio.Task[BatchMessage]) -> None:
    """Retrieve the exception of an activity that was given up, or asyncio warns that it was never retrieved."""
    if not drive.cancelled():
        drive.exception()
