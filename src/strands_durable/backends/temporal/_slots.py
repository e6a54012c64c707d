"""How many executions a worker takes at a time. Where there is no seat it does not even ask for one."""

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


class Seats(CustomSlotSupplier):
    """Gives out seats.

    Args:
        count: Says how many there are at the moment.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._taken = 0
        self._freed = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a free seat."""
        while not self._has_room():
            self._freed.clear()
            with suppress(TimedOut):
                await limited(self._freed.wait(), _LOOK_SECONDS)  # there is no notification when the count grows
        self._taken += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Take a seat if one is free."""
        if not self._has_room():
            return None
        self._taken += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """A seat that was taken is used."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Free a seat."""
        self._taken -= 1
        self._freed.set()

    def _has_room(self) -> bool:
        return self._taken < self._count()


def tuner(seats: Seats) -> WorkerTuner:
    """Return what has a worker go by the seats."""
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(_MANY),
        activity_supplier=seats,
        local_activity_supplier=FixedSizeSlotSupplier(1),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )
