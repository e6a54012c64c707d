"""How many executions a worker takes at a time. Where there is no slot it does not even ask for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

_LOOK_SECONDS = 0.2
_MANY = 1000


class SlotSupplier(CustomSlotSupplier):
    """Gives out slots.

    Args:
        count: Says how many there are at the moment.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._taken = 0
        self._freed = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a free slot."""
        while not self._has_room():
            self._freed.clear()
            try:
                await asyncio.wait_for(self._freed.wait(), _LOOK_SECONDS)  # nobody tells when there are more
            except asyncio.TimeoutError:
                continue
        self._taken += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Take a slot if one is free."""
        if not self._has_room():
            return None
        self._taken += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """A slot that was taken is used."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Free a slot."""
        self._taken -= 1
        self._freed.set()

    def _has_room(self) -> bool:
        return self._taken < self._count()


def tuner(slots: SlotSupplier) -> WorkerTuner:
    """Return what has a worker go by the slots."""
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(_MANY),
        activity_supplier=slots,
        local_activity_supplier=FixedSizeSlotSupplier(1),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )
