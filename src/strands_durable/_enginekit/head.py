"""Runs one execution for an engine that takes its batches one after the other, on a thread of its own, for a limited time.

The agent runs on a loop of its own, and the engine's thread waits here for the next batch. A head lives until the execution
ends, waits for a person, or is left: for a sleep, for the time limit of the process, or because the engine's log is full.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import ceil

from .._calls.control import ExecutionReleasedError
from .._dispatch.queue import Queue
from .._dispatch.runner import ExecutionRunner
from .._journal.owner import Owner
from ..errors import StepTooLongError
from .agent_loop import AgentLoop
from .driver import Batch, Driver
from .replica import Replica
from .time_limit import TimeLimit

_LONG_SECONDS = 1e9
_SETTLE_SECONDS = 0.5
"""How long a result waits for what the agent does next: both are then recorded by one operation."""
_AWAKE_SECONDS = 1.0
"""Shorter sleeps are not worth a suspension, which takes at least a second."""
_HALT_SECONDS = 5.0

_loops: list[AgentLoop] = []


def _agent_loop() -> AgentLoop:
    """Return the loop of this process, which serves one execution after the other."""
    if not _loops:
        _loops.append(AgentLoop())
    return _loops[0]


class Head:
    """Runs the agent of one execution, as long as it is not left.

    Args:
        replica: The rows of the execution.
        limit: The time of this process.
        is_full: Returns True once the engine's log has no room for more steps.
        is_overfull: Returns True once it will soon refuse more: steps that wait for others inside them are left, too.
        look: Called from time to time while a step runs; it raises if the execution was stopped.
        look_seconds: How often.
        name: Distinguishes this owner from others of the same process.
    """

    def __init__(
        self,
        replica: Replica,
        limit: TimeLimit,
        *,
        is_full: Callable[[], bool],
        is_overfull: Callable[[], bool],
        look: Callable[[], None],
        look_seconds: float,
        name: str,
    ) -> None:
        self._replica, self._limit, self._is_full, self._is_overfull = replica, limit, is_full, is_overfull
        self._look, self._look_seconds = look, look_seconds
        self._news = threading.Event()
        self._alarms: dict[str, float] = {}
        """When to open the tickets of steps that sleep."""
        self._looked_at = time.monotonic()
        self.wait_seconds: int | None = None
        """How long to wait before the execution is resumed, once it was left."""
        self.is_log_full = False
        self._is_left = self._is_given_up = False
        self.has_opened = False
        """Whether a step was let run."""
        owner = Owner.me().within(name)
        self.driver = Driver(
            replica,
            ExecutionRunner(_LONG_SECONDS),
            on_notify=self._news.set,
            alone=Queue(replica, owner).only().is_suspected,
            stays=True,
            owner=owner,
            reports_claim=True,
        )

    def start(self) -> None:
        """Start the agent."""
        _agent_loop().run(self.driver)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes: the execution has ended, waits, was left or was given up."""
        return self._is_given_up or (self.driver.is_over and self.driver.is_quiescent)

    @property
    def has_stopped(self) -> bool:
        """Whether nothing of the execution runs in this process any more: no step, and no thread of a sync tool."""
        return self.driver.is_over and not _agent_loop().threads.is_busy

    def open(self, batch: Batch) -> None:
        """Let steps run whose intents are on record: those that sleep, when their time has come.

        Once the execution is about to be left, only those that a running step waits for.
        """
        waiting = self.driver.waiting()
        for ticket_id in batch.tickets:
            if ticket_id in waiting and waiting[ticket_id].until:
                self._alarms[ticket_id] = waiting[ticket_id].until
            elif not self._is_leaving or ticket_id in batch.inner:
                self.driver.open(ticket_id)
                self.has_opened = True

    def next_batch(self) -> Batch:
        """Wait for the next batch: a step has ended or waits for its turn, or the execution is over."""
        driver, result_at = self.driver, None
        while True:
            if driver.is_over and driver.is_quiescent:
                return driver.batch()
            if driver.has_results and result_at is None:
                result_at = time.monotonic()
            if driver.is_quiescent and not self._has_left() and self._is_reportable(result_at):
                return driver.batch()
            if self._limit.is_over and driver.running():
                return self._give_up()
            self._wait()

    def _is_reportable(self, result_at: float | None) -> bool:
        driver = self.driver
        if driver.has_unreported:
            return True
        is_old = result_at is not None and time.monotonic() - result_at > _SETTLE_SECONDS
        return driver.has_results and (driver.is_settled or is_old)

    @property
    def _is_leaving(self) -> bool:
        return self.is_log_full or self.wait_seconds is not None

    @property
    def _is_urgent(self) -> bool:
        return self._limit.is_urgent or self._is_overfull()

    def _has_left(self) -> bool:
        """Leave the execution if it is time to, or if all its steps sleep: no time is paid for."""
        driver = self.driver
        if self._is_left:
            return True
        if not self._is_leaving:
            self.is_log_full = self._is_full()
            is_late = self._limit.is_time_to_leave and self.has_opened
            if (is_late or self._limit.is_urgent) and not self.is_log_full:
                self.wait_seconds = 1
        until = driver.sleeps_until
        if until is not None and not self._is_leaving and until - time.time() > _AWAKE_SECONDS:
            self.wait_seconds = max(1, ceil(until - time.time()))
        elif not self._is_leaving or (driver.running() and not (self._is_urgent and driver.is_between_steps)):
            return False
        self._is_left = True
        driver.leave_between_steps()
        return True

    def _give_up(self) -> Batch:
        running = next(iter(self.driver.running().values()))
        self._is_given_up = True
        execution_id = self._replica.detail().execution.execution_id
        return self.driver.give_up(StepTooLongError(execution_id, running.name, ceil(self._limit.seconds)))

    def _wait(self) -> None:
        now = time.time()
        for ticket_id in [each for each, until in self._alarms.items() if until <= now]:
            del self._alarms[ticket_id]
            self.driver.open(ticket_id)
        soonest = min((until - now for until in self._alarms.values()), default=_SETTLE_SECONDS)
        self._news.wait(max(0.001, min(_SETTLE_SECONDS / 5, soonest)))
        self._news.clear()
        if time.monotonic() - self._looked_at > self._look_seconds:
            self._looked_at = time.monotonic()
            self._look()

    def cancel(self) -> bool:
        """Stop what runs, which sees its cancel signal; return whether it has stopped in time."""
        self.driver.halt()
        return self._stopped()

    def abandon(self) -> bool:
        """Start no more steps, since this process cannot record anything more; return whether what runs has stopped in time."""
        self.driver.halt(ExecutionReleasedError())
        return self._stopped()

    def _stopped(self) -> bool:
        deadline = time.monotonic() + _HALT_SECONDS
        while not self.has_stopped and time.monotonic() < deadline:
            self._news.wait(0.05)
            self._news.clear()
        return self.has_stopped
