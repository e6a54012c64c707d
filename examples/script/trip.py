"""Book a trip, and ask you the agent's questions. Kill it anywhere and run it again."""

from __future__ import annotations

import asyncio

from agents import trip_planner


async def main() -> None:
    handle = await trip_planner.dispatch_async("Book a trip to Paris", execution_id="trip-1")
    result = await handle.result()
    while result.interrupts:
        await handle.respond({question.interrupt_id: input(f"{question.reason} ") for question in result.interrupts})
        result = await handle.result()
    print(result)


asyncio.run(main())
