"""Limits the history of a workflow, and decides when it continues in a new run. Imported into the sandbox."""

from __future__ import annotations

from temporalio import workflow
from temporalio.client import Client

from ...errors import PayloadTooLargeError
from ._failures import overflow
from ._protocol import Start

HISTORY_BYTES = 48_000_000
"""How large a history may become. Temporal terminates a workflow at 50 MB, and it could not be resumed then."""
CARRIED_BYTES = 20_000_000
"""How much of it a run may begin with."""
_MAX_EVENTS = 49_000
"""Temporal ends a workflow at 51,200."""
_MORE_BYTES, _MORE_EVENTS = 4_000_000, 4_000
"""How much a run must add to what it began with before a new run is worth copying its state."""


class Growth:
    """The size of the history of one run."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._stays: tuple[int, int] | None = None
        """The size and length at which a new run is tried again: the last time the state was too large to copy."""

    def wants_new_run(self, *, has_begun: bool) -> bool:
        """Return True if it is time for a new run; ``has_begun``: whether a step was let run in this one."""
        info = workflow.info()
        history, events = info.get_current_history_size(), info.get_current_history_length()
        if self._stays is not None:
            return history > self._stays[0] or events > self._stays[1]
        limit = self._start.get("max_events", 0) if has_begun else 0  # or a low limit would start new runs forever
        if limit and events > limit:
            return True
        carried = self._start.get(
            "carried_bytes", 0
        )  # Temporal suggests it at 4 MB, which may be what a run begins with
        is_worth_it = not carried or events > _MORE_EVENTS or history > 2 * carried + _MORE_BYTES
        return info.is_continue_as_new_suggested() and is_worth_it

    def stay(self, size: int) -> None:
        """Continue in this run, since the state is too large for a new one; raise before Temporal would end the workflow."""
        info = workflow.info()
        history, events = info.get_current_history_size(), info.get_current_history_length()
        if history > HISTORY_BYTES or events > _MAX_EVENTS:
            raise overflow(self._start["execution_id"], size, history, events)
        self._stays = min(history + _MORE_BYTES, HISTORY_BYTES), min(events + _MORE_EVENTS, _MAX_EVENTS)


async def refuse_overflow(client: Client, workflow_id: str, run_id: str, size: int, what: str) -> None:
    """Raise if ``size`` more bytes would bring a history to where Temporal terminates the workflow."""
    found = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    known = found.raw_description.workflow_execution_info.history_size_bytes
    if known + size > HISTORY_BYTES:
        raise PayloadTooLargeError(f"{what}, with the history before it,", known + size, HISTORY_BYTES)
