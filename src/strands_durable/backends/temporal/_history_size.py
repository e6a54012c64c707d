"""How large the history of a workflow may become, and when it is to go on in a new run. Imported into the sandbox."""

from __future__ import annotations

from temporalio import workflow

from ._failures import overflow
from ._payload_parts import HISTORY_BYTES
from ._protocol import Start

_MAX_EVENTS = 49_000
"""Temporal ends a workflow at 51,200."""
_MORE_BYTES, _MORE_EVENTS = 4_000_000, 4_000
"""How much a run adds to what it began with, until a new one is worth what it takes over."""


class Growth:
    """The history of one run as it grows."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._stays: tuple[int, int] | None = None
        """How large, and how long, it may become before a new run is tried again: the last time there was too much to carry."""

    def wants_new_run(self, *, has_begun: bool) -> bool:
        """Say whether it is time for a new run; ``has_begun``: whether a step was let run in this one."""
        info = workflow.info()
        history, events = info.get_current_history_size(), info.get_current_history_length()
        if self._stays is not None:
            return history > self._stays[0] or events > self._stays[1]
        limit = self._start.get("max_events", 0) if has_begun else 0  # or a low one would start over for ever
        if limit and events > limit:
            return True
        carried = self._start.get(
            "carried_bytes", 0
        )  # Temporal suggests it at 4 MB, which may be what a run begins with
        is_worth_it = not carried or events > _MORE_EVENTS or history > 2 * carried + _MORE_BYTES
        return info.is_continue_as_new_suggested() and is_worth_it

    def stay(self, size: int) -> None:
        """Continue in this run, since there is more than a new one may begin with; until Temporal would end the workflow."""
        info = workflow.info()
        history, events = info.get_current_history_size(), info.get_current_history_length()
        if history > HISTORY_BYTES or events > _MAX_EVENTS:
            raise overflow(self._start["execution_id"], size, history, events)
        self._stays = min(history + _MORE_BYTES, HISTORY_BYTES), min(events + _MORE_EVENTS, _MAX_EVENTS)
