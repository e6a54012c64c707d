"""Which batches of an execution count, for an engine whose messages arrive late, twice or from workers that were given up.

An epoch is the tenure of one writer: a worker that has taken over the execution, or a client that adds to it. It begins at a
position: the epoch before it, and the number of that epoch's last batch that counts. Later batches of the earlier epoch are
not part of the execution. An engine that fences each append needs none of this: see `log`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from .._records.change_sets import ChangeSet
from .._sqlite.lease import look
from .replica import Replica

Position = list[int]
"""An epoch, and the number of its batches."""
Step = tuple[int, str, int]
"""Call, key and attempt."""


class EpochLog:
    """The batches of an execution by epoch and number, and the steps that wait to run.

    Args:
        is_whole: Returns whether a batch is complete, if it may arrive in parts.
    """

    def __init__(self, is_whole: Callable[[ChangeSet], bool] = lambda changes: True) -> None:
        self._is_whole = is_whole
        self._epochs: dict[int, dict[int, ChangeSet]] = defaultdict(dict)
        self._bases: dict[int, Position] = {}
        self._waiting: dict[tuple[int, str], Step] = {}
        """The steps that wait to run, by epoch and ticket."""
        self._untouched: list[tuple[int, Step]] = []
        """The steps that were let run but did not start."""

    def begin(self, epoch: int, base: Position) -> None:
        """Begin an epoch at a position."""
        self._bases[epoch] = base

    def commit(self, base: Position, position: Position, changes: ChangeSet) -> None:
        """Add what a client has appended in an epoch of its own."""
        epoch, number = position
        self.begin(epoch, base)
        self._epochs[epoch][number] = changes

    def add(self, epoch: int, number: int, changes: ChangeSet, waiting: Iterable[tuple[str, Step]]) -> bool:
        """Add a batch and, by ticket, the steps that wait since then; False if the batch was already added."""
        if number in self._epochs[epoch]:
            return False
        self._epochs[epoch][number] = changes
        if epoch < max(self._bases, default=0):  # of a worker that was given up: its steps do not count
            return True
        # The next writer has handled these: the same step may have started there, in the same attempt.
        self._untouched = [found for found in self._untouched if found[0] >= epoch]
        self._waiting = {place: step for place, step in self._waiting.items() if place[0] >= epoch}
        self._waiting.update(((epoch, ticket_id), step) for ticket_id, step in waiting)
        return True

    def start(self, epoch: int, ticket_id: str) -> None:
        """Record that a step was let run."""
        self._waiting.pop((epoch, ticket_id), None)

    def not_started(self, epoch: int, step: Step) -> None:
        """Record that a step was let run but did not start."""
        self._untouched.append((epoch, step))

    def withdraw(self, replica: Replica, execution_id: str) -> None:
        """Withdraw the intents of steps that the last worker was to start but did not: they are not in doubt."""
        journal = look(replica, execution_id).journal()
        with replica.transaction("turn.withdraw"):
            for call_id, key, attempt in (*(step for _, step in self._untouched), *self._waiting.values()):
                journal.withdraw(call_id, key, attempt)

    # The batches that count

    def has(self, epoch: int) -> bool:
        """Return whether an epoch has any batches."""
        return bool(self._epochs.get(epoch))

    def changes(self, place: tuple[int, int]) -> ChangeSet:
        """Return a batch by its epoch and number."""
        epoch, number = place
        return self._epochs[epoch][number]

    def batches(self, upto: Position | None = None) -> list[tuple[int, int]]:
        """Return epoch and number of each batch that counts, in order."""
        found: list[tuple[int, int]] = []
        epochs = sorted({*self._epochs, *self._bases})
        for index, epoch in enumerate(epochs):
            last = self._bases[epochs[index + 1]][1] if index + 1 < len(epochs) else None
            if upto is not None and epoch >= upto[0]:
                last = upto[1] if epoch == upto[0] else 0
            number = 0
            while (last is None or number < last) and self._is_here(epoch, number + 1):
                number += 1
                found.append((epoch, number))
        return found

    def _is_here(self, epoch: int, number: int) -> bool:
        changes = self._epochs[epoch].get(number)
        return changes is not None and self._is_whole(changes)

    def reaches(self, position: Position) -> bool:
        """Return whether all batches up to a position are here."""
        return sum(1 for epoch, _ in self.batches(position) if epoch == position[0]) == position[1]

    def position(self, first_epoch: int) -> Position:
        """Return the position at which the next writer begins; ``first_epoch`` if there was none before."""
        epoch = max((*self._epochs, *self._bases), default=first_epoch)
        return [epoch, sum(1 for each, _ in self.batches() if each == epoch)]
