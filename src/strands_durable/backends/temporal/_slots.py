"""Limits how many executions a worker takes at a time. Without a free slot it does not even poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

from ..._records.deadline import TimedOut, limited

_LOOK_SECONDS = 0.2
_MANY = 1000


class SlotSupplier(CustomSlotSupplier):
    """Gives out slots.

    Args:
        count: Returns the current number of slots.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._taken = 0
        self._freed = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a free slot."""
        while not self._has_room():
            self._freed.clear()
            with suppress(TimedOut):
                await limited(self._freed.wait(), _LOOK_SECONDS)  # there is no notification when the count grows
        self._taken += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Take a slot if one is free."""
        if not self._has_room():
            return None
        self._taken += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Do nothing: a slot counts from its reservation."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Free a slot."""
        self._taken -= 1
        self._freed.set()

    def _has_room(self) -> bool:
        return self._taken < self._count()


def tuner(slots: SlotSupplier) -> WorkerTuner:
    """Return a tuner that limits the activities of a worker to these slots."""
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(_MANY),
        activity_supplier=slots,
        local_activity_supplier=FixedSizeSlotSupplier(1),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )
