"""An execution that runs in this process: what it has reported, and whether that is part of history.

A worker that Temporal has lost contact with still holds the results of its steps. It keeps what it has sent until history is
known to contain it; if the workflow reattaches to this worker in a new epoch, the worker sends all that history lacks, and no
step runs twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ..._calls.control import ExecutionReleasedError
from ..._enginekit.driver import Batch, Driver
from ..._enginekit.outbox import Outbox
from ..._records.deadline import TimedOut, limited
from ..._records.logs import safe_logger
from ..._records.step_gate import StepTicket
from ._heartbeat import BEAT_SECONDS, Beat

logger = safe_logger(__name__)


@dataclass(kw_only=True)
class ActiveExecution:
    """An execution that this worker has taken over."""

    epoch: int
    driver: Driver
    replica: Any
    news: asyncio.Event
    heartbeat_seconds: float
    is_alone: bool
    beat: Beat
    """The heartbeat of the activity that holds it; replaced when the workflow reattaches with a new activity."""
    steps: set[tuple[int, str]] = field(default_factory=set)
    """The epochs and tickets of steps whose activities have not returned yet."""
    is_lost: bool = False
    """Whether this process was frozen for so long that another worker may have taken over the execution."""
    is_leaving: bool = False
    has_begun: bool = False
    """Whether a step was let run here."""
    has_reported_alive: bool = False

    def __post_init__(self) -> None:
        self._outbox = Outbox(self.driver)

    @property
    def is_reporting(self) -> bool:
        """Whether a step has ended and is about to return a batch, with the steps that wait since then."""
        return any(self.driver.has_ended(ticket_id) for _, ticket_id in self.steps)

    def look(self) -> None:
        """Let no more steps start if this process sent no heartbeat for too long: another worker may have the execution."""
        seconds = self.beat.age
        if seconds > 0.9 * self.heartbeat_seconds and not self.is_lost:
            self.is_lost = True
            logger.warning("seconds=<%.0f> | no heartbeat for too long, executions are released", seconds)
            self.driver.halt(ExecutionReleasedError())

    async def change(self, seconds: float = BEAT_SECONDS) -> None:
        """Wait for a notification, at most for some seconds."""
        try:
            await limited(self.news.wait(), seconds)
        except TimedOut:
            return
        self.news.clear()

    # What it has sent

    def batch(self) -> Batch:
        """Return what has changed, and keep it until history is known to contain it."""
        return self._outbox.batch()

    def accept(self, ticket_id: str) -> None:
        """Record that history contains the batch with a step's intent, and all before it: the workflow lets the step run."""
        self.has_begun = True
        self._outbox.accept(ticket_id)

    def again(self, epoch: int, accepted: int) -> tuple[list[Batch], dict[str, StepTicket]]:
        """Begin a new epoch here: return all that history lacks as its first batches, and the running steps."""
        self.epoch, self.steps = epoch, set()
        return self._outbox.again(accepted)
