"""An execution at work in this process: what it has told, and whether history has it.

A worker that Temporal has lost sight of still holds what its steps return. What it has sent is kept until history is known to
have it; if the workflow comes back to this worker, in a new epoch, it sends all that history lacks, and no step runs twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ..._enginekit.driver import Batch, Driver
from ..._enginekit.outbox import Outbox
from ..._journal.lease import ExecutionReleasedError
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
    """The signs of life of the activity that holds it; another one's, once the workflow has come back."""
    steps: set[tuple[int, str]] = field(default_factory=set)
    """The turns whose activities have not told yet what came out, with their epochs."""
    is_lost: bool = False
    """Whether this process was frozen for so long that another worker may have taken it over by now."""
    is_leaving: bool = False
    has_begun: bool = False
    """Whether a step was let run here."""
    has_reported_alive: bool = False

    def __post_init__(self) -> None:
        self._outbox = Outbox(self.driver)

    @property
    def is_reporting(self) -> bool:
        """Whether a step has ended and is about to tell so, and what waits since then."""
        return any(self.driver.has_ended(ticket_id) for _, ticket_id in self.steps)

    def look(self) -> None:
        """Let nothing more start if this process showed no sign of life for too long: another worker may have it."""
        seconds = self.beat.age
        if seconds > 0.9 * self.heartbeat_seconds and not self.is_lost:
            self.is_lost = True
            logger.warning("seconds=<%.0f> | this process was away for too long, its executions are left", seconds)
            self.driver.halt(ExecutionReleasedError())

    async def change(self, seconds: float = BEAT_SECONDS) -> None:
        """Wait for news, or for a moment."""
        try:
            await limited(self.news.wait(), seconds)
        except TimedOut:
            return
        self.news.clear()

    # What it has sent

    def batch(self) -> Batch:
        """Return what has changed, and keep it until history is known to have it."""
        return self._outbox.batch()

    def accept(self, ticket_id: str) -> None:
        """Take note that history has the batch that told of a step, and all before it: the step is let run."""
        self.has_begun = True
        self._outbox.accept(ticket_id)

    def again(self, epoch: int, accepted: int) -> tuple[list[Batch], dict[str, StepTicket]]:
        """Begin a new epoch here: return all that history lacks as its first batches, and the steps that run."""
        self.epoch, self.steps = epoch, set()
        return self._outbox.again(accepted)
