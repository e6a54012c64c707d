"""What a worker has sent, and is not known to have arrived, for an engine that acknowledges a batch by what comes after it.

If the engine loses sight of the worker and comes back to it, all that it lacks is sent again, in a new epoch, and no step runs
twice.
"""

from __future__ import annotations

from .._records.step_gate import StepTicket
from .driver import Batch, Driver


class Outbox:
    """The batches of one execution that may have to be sent again."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kept: dict[int, Batch] = {}
        self._sent_in: dict[str, int] = {}
        """The batch with the intent of a step that waits."""

    def batch(self) -> Batch:
        """Return what has changed, and keep it until it is known to have arrived."""
        return self._keep(self._driver.batch())

    def accept(self, ticket_id: str) -> None:
        """Take note that the batch with a step's intent has arrived, and all before it: the step is let run."""
        number = self._sent_in.pop(ticket_id, 0)
        self._kept = {each: batch for each, batch in self._kept.items() if each > number}

    def again(self, accepted: int) -> tuple[list[Batch], dict[str, StepTicket]]:
        """Return all that has not arrived as the first batches of a new epoch, and the steps that run.

        Batches up to ``accepted`` have arrived. The last one that is returned has every step that waits.
        """
        lacking = [batch.rows for number, batch in sorted(self._kept.items()) if number > accepted]
        self._kept, self._sent_in = {}, {}
        batches = [Batch(number=n, rows=rows, tickets={}, inner=frozenset()) for n, rows in enumerate(lacking, 1)]
        last, running = self._driver.report_again(len(lacking))
        for batch in (*batches, last):
            self._keep(batch)
        self._sent_in.update(dict.fromkeys(running, last.number))
        return [*batches, last], running

    def _keep(self, batch: Batch) -> Batch:
        self._kept[batch.number] = batch
        self._sent_in.update(dict.fromkeys(batch.tickets, batch.number))
        return batch
