"""Reports steps to the workflows of their executions, for Dapr's own tools: at most one event a second, and a bounded number.

Nothing depends on these events: they may be lost.
"""

from __future__ import annotations

from ..._records.change_sets import ChangeSet, Row, rows_of
from ..._records.steps import shown_status
from ._client import Sidecar
from ._workflow import STEP

MAX_EVENTS = 500
"""Events until an execution leaves its worker, so that its workflow continues with an empty history."""
_MAX_STEPS = 20


class StepEvents:
    """The steps of a worker's executions that were not reported yet."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._listening: set[str] = set()
        """The executions whose workflow waits for such events."""
        self._new: dict[str, list[str]] = {}
        self._reported: dict[str, int] = {}

    def listen(self, execution_id: str) -> None:
        """Note that a workflow waits for events."""
        self._listening.add(execution_id)

    def ignore(self, execution_id: str) -> None:
        """Note that a workflow no longer waits for events."""
        self._listening.discard(execution_id)

    def begin(self, execution_id: str) -> None:
        """Report an execution from now on, if its workflow waits for that."""
        if execution_id in self._listening:
            self._reported[execution_id] = 0

    def end(self, execution_id: str) -> None:
        """Forget an execution."""
        self._reported.pop(execution_id, None)
        self._new.pop(execution_id, None)

    def add(self, execution_id: str, changes: ChangeSet) -> None:
        """Note the steps of a batch."""
        steps = [f"{row['kind']} {row['name']}: {_status(row)}" for row in rows_of(changes, "steps")]
        if steps and execution_id in self._reported:
            self._new.setdefault(execution_id, []).extend(steps)

    async def report(self) -> list[str]:
        """Raise an event for each execution with new steps; return those whose workflow has had enough of them."""
        new, self._new = self._new, {}
        for execution_id, steps in new.items():
            more = {"more": len(steps) - _MAX_STEPS} if len(steps) > _MAX_STEPS else {}
            event = {"now": steps[-1], "steps": steps[-_MAX_STEPS:], **more}
            await self._sidecar.raise_event(execution_id, STEP, event)
            if execution_id in self._reported:
                self._reported[execution_id] += 1
        return [each for each, count in self._reported.items() if count >= MAX_EVENTS]


def _status(row: Row) -> str:
    return shown_status(row["status"], has_error=row.get("error") is not None)
