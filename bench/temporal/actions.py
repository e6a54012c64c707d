"""``python -m bench.temporal.actions``: what Temporal bills for the same run on either side. It takes two minutes.

Actions are counted as Temporal's price list names them: a workflow that starts, a timer, a signal, an activity that starts, and
each of its heartbeats.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from temporalio.api.enums.v1 import EventType

from bench.run import console, scratch
from bench.temporal.__main__ import Bench
from bench.temporal.engine import Server, history_of, runs_of
from bench.temporal.engine import until_polled as polled
from bench.temporal.sides import SIDES

E = EventType
BILLED = {
    E.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "workflow",
    E.EVENT_TYPE_ACTIVITY_TASK_STARTED: "activities",
    E.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    E.EVENT_TYPE_TIMER_STARTED: "timers",
}


async def count(bench: Bench, side_name: str, cycles: int, seconds: float) -> dict[str, int]:
    """Run an agent whose model takes so many seconds; return what was billed for it."""
    side, name = SIDES[side_name], f"{side_name}-actions"
    before = bench.server.heartbeats()
    with bench.worker(side, name, pace=seconds) as worker:
        await polled(bench.client, name, worker)
        await side.run(bench.client, name, name, cycles, 120 + 3 * cycles * seconds)
    found = dict.fromkeys([*BILLED.values(), "heartbeats"], 0)
    found["heartbeats"] = bench.server.heartbeats() - before
    for run in await runs_of(bench.client, name):
        for event in (await history_of(bench.client, name, run.run_id)).events:
            if event.event_type in BILLED:
                found[BILLED[event.event_type]] += 1
    return found


async def measure(folder: Path, cycles: int, seconds: float) -> dict[str, dict[str, int]]:
    """Count both sides, one after the other."""
    server = Server(folder)
    try:
        client, _ = await server.connect()
        bench = Bench(server=server, client=client, folder=folder)
        return {side: await count(bench, side, cycles, seconds) for side in SIDES if SIDES[side].is_there}
    finally:
        server.process.end()


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.temporal.actions", description="What Temporal bills for a run."
    )
    parser.add_argument("--cycles", type=int, default=3, help="model calls with a tool call after them")
    parser.add_argument("--seconds", type=float, default=11.5, help="what each model call takes")
    given = parser.parse_args()
    with scratch() as folder:
        found = asyncio.run(measure(Path(folder), given.cycles, given.seconds))
    for side, actions in found.items():
        parts = ", ".join(f"{number} {name}" for name, number in actions.items())
        console.print(f"{SIDES[side].label}: {sum(actions.values())} actions ({parts})")


if __name__ == "__main__":
    main()
