"""Decides which worker has an execution, which of its batches count and which of its steps may start. No I/O, no clock.

For an engine with a process of its own between workers, such as a workflow: batches reach it late or twice, it loses contact
with workers that are alive, and receives messages of workers that it has given up. An execution that may have killed its worker
is offered to workers that run it alone, unless that worker turns out to live. Deterministic, so that a workflow can replay it;
imported into its sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Position = list[int]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An execution that a worker is to take over, as the next epoch."""

    epoch: int
    base: Position
    alone: bool
    holder: str
    """The worker that still has it, by its queue; empty for any worker."""
    held: Position
    """The last batch of that worker that counts."""
    is_lost: bool
    """Whether the engine has lost sight of the worker before; it may live."""


class Supervisor:
    """The epochs of one execution."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.number = epoch, 0
        self.is_driven = False
        """Whether a worker has the execution, or is to have it."""
        self.is_suspected = False
        """Whether the execution may have killed its last worker."""
        self.is_taken_back = False
        """Whether the offer of this epoch is withdrawn."""
        self.survivor = 0
        """The last epoch whose worker was given up, and lives."""
        self.queue = ""
        """Where the worker of this epoch receives messages, once it has sent a batch."""
        self.can_stop = False
        """Whether it receives a cancellation there."""
        self.is_timed_out = False
        """Whether the engine has lost contact with the last worker."""
        self.fruitless = 0
        """Workers in a row that took it over and got nowhere."""
        self.waiting: list[dict[str, Any]] = []
        """The steps that wait for their turn."""
        self._is_alone = False
        self._may_be_cleared = False
        self._late: dict[int, Mapping[str, Any]] = {}
        self._last: Position = [0, 0]
        """The last batch that was taken; one that a client has brought is of no worker."""
        self._holder = ""
        """Where the worker of the last batch is, if it was given up and still has the execution."""
        self._is_with_holder = False
        self._is_held_back = False
        """Whether no batch of this epoch counts: the execution returns to the holder."""

    @property
    def position(self) -> Position:
        """The epoch, and how many of its batches count."""
        return [self.epoch, self.number]

    def alive(self, epoch: int, queue: str | None) -> None:
        """Note that a worker is alive; with ``queue``, that it still has the execution, and where it receives messages."""
        if queue is None:
            self.survivor = epoch
        elif epoch == self._last[0]:
            self._holder = queue

    def commit(self) -> Position:
        """Take what a client adds, as an epoch of its own."""
        self.epoch, self.number = self.epoch + 1, 1
        self._last, self._holder = [0, 0], ""
        return self.position

    # The next epoch

    @property
    def waits_for_survivor(self) -> bool:
        """Whether the worker that ran the execution alone should have time to report that it lives: its death is counted."""
        return not self._holder and self.is_suspected and self._is_alone

    def clear_suspicion(self) -> None:
        """Drop the suspicion if the last worker lives."""
        if self._holder or self.survivor == self.epoch:
            self.is_suspected = False

    def begin(self) -> Offer:
        """Begin the next epoch: return what a worker is to take over."""
        self._may_be_cleared = self.is_suspected and not self._is_alone
        self._is_alone, self.is_taken_back = self.is_suspected, False
        holder, self._holder = self._holder, ""
        offer = Offer(
            epoch=self.epoch + 1,
            base=self.position,
            alone=self.is_suspected,
            holder=holder,
            held=self._last,
            is_lost=self.is_timed_out,
        )
        self.epoch, self.number = self.epoch + 1, 0
        self.queue = ""
        self._is_with_holder, self._is_held_back, self.is_timed_out = bool(holder), False, False
        self._late, self.waiting = {}, []
        self.is_driven = True
        return offer

    def take(self, message: Mapping[str, Any]) -> bool:
        """Take a batch, in its order; return whether it says where the worker receives messages.

        Batches of a worker that was given up are no part of the execution.
        """
        if message["epoch"] != self.epoch or not self.is_driven or self._is_held_back:
            return False
        self._late[message["number"]] = message
        has_begun = False
        while self.number + 1 in self._late:
            batch = self._late.pop(self.number + 1)
            self.number += 1
            self._last, self._holder = self.position, ""
            if "queue" in batch:
                self.queue, self.can_stop, has_begun = batch["queue"], batch.get("stops", False), True
            self.waiting += batch["turns"]
        return has_begun

    # What becomes of an epoch

    @property
    def is_to_be_taken_back(self) -> bool:
        """Whether the offer should be withdrawn: the last worker lives, and no other one has sent anything."""
        return self._is_cleared() or self._is_held()

    def take_back(self) -> None:
        """Withdraw the offer of this epoch."""
        self.is_taken_back, self._is_held_back = True, self._is_held()

    def _is_cleared(self) -> bool:
        """Return whether a worker lives that the execution seemed to have killed, and none has begun to run it alone."""
        has_survived = self._may_be_cleared and self.survivor == self.epoch - 1
        return has_survived and not self.queue and not self.is_taken_back

    def _is_held(self) -> bool:
        """Return whether the last worker still has the execution, and no other one has sent anything."""
        is_with_another = not self._is_with_holder and not self.queue
        return bool(self._holder) and is_with_another and not self.is_taken_back

    def lose(self, *, is_timeout: bool) -> None:
        """Give up the worker of this epoch, which ended without a last batch."""
        self.is_timed_out = is_timeout
        # A worker that is stopped may lose what it asked for last: once, that none began with it is no suspicion.
        self.is_suspected = is_timeout and (self.number > 0 or self._is_alone or self.fruitless > 0)

    def lose_step(self, *, is_timeout: bool) -> None:
        """Give up the worker of this epoch, which does not answer for a step."""
        self.is_suspected = self.is_timed_out = is_timeout

    def startable(self, are_due: Callable[[], bool]) -> list[dict[str, Any]]:
        """Return the steps that may start: all, or, unless they are due, those that a running step waits for."""
        if not self.waiting or not self.queue or self.is_taken_back:
            return []
        is_due = are_due()
        return [turn for turn in self.waiting if is_due or turn.get("is_inner") or turn.get("held")]

    def count(self, *, was_useful: bool) -> float:
        """Count a worker that has left; return how long to wait for the next one, longer if none gets anywhere."""
        self.fruitless = 0 if self.number > 1 or was_useful else self.fruitless + 1
        return min(30.0, 2.0 ** (self.fruitless - 2)) if self.fruitless > 1 else 0.0
