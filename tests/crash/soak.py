"""A long campaign of random kills: `python -m tests.crash.soak 3000`. Prints a line per round and the sum at the end.

First scripts with an agent of their own are killed, then workers of the command line with dispatched executions, and then
workers on Temporal, which are frozen, too, and Temporal itself.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from strands_durable.testing.temporal import TemporalServer
from tests.crash import chaos, chaos_dapr, chaos_temporal, test_fleet, test_temporal_fleet
from tests.crash.temporal import Site
from tests.crash.test_random_kills import rampage
from tests.crash.test_temporal_fleet import Fleet as Workers

_ROUND = 300
_RESULT = Path(__file__).parents[2] / "bench" / "results" / "soak.json"


def main(kills: int) -> None:
    """Kill ``kills`` processes, in rounds with a new store each."""
    began, killed, finished, effects = time.monotonic(), 0, 0, 0
    while killed < kills:
        seed = random.randrange(2**32)
        random.seed(seed)
        with tempfile.TemporaryDirectory() as folder:
            done, seen = rampage(Path(folder), min(_ROUND, kills - killed))
        killed, finished, effects = killed + min(_ROUND, kills - killed), finished + done, effects + seen
        print(f"seed {seed}: {killed} kills, {finished} executions completed, {effects} effects audited", flush=True)
    seconds = round(time.monotonic() - began)
    print(f"{killed} kills in {seconds} s: nothing lost, no finished step repeated")
    found: dict[str, object] = {"kills": killed, "executions": finished, "effects": effects, "seconds": seconds}
    found["fleet"] = fleet(kills // 10)
    _keep(found)
    found["temporal"] = temporal(kills // 50)
    _keep(found)
    chaos.campaign(max(8, kills // 15))
    chaos_temporal.campaign(max(8, kills // 47))
    chaos_dapr.campaign(max(8, kills // 60))


def _keep(found: dict[str, object]) -> None:
    _RESULT.write_text(json.dumps(found, indent=2) + "\n")


def fleet(kills: int) -> dict[str, object]:
    """Kill ``kills`` workers, as they are typed, under six times as many executions."""
    with tempfile.TemporaryDirectory() as folder:
        recoveries = test_fleet.rampage(Path(folder), kills, 6 * kills, test_fleet.typed)
        test_fleet.audit(Path(folder), 6 * kills)
    found = {"kills": kills, "executions": 6 * kills, "recoveries": test_fleet.summary_of(recoveries)}
    print(f"{kills} workers killed under {6 * kills} executions; {found['recoveries']}", flush=True)
    return found


def temporal(times: int) -> dict[str, object]:
    """Kill ``times`` workers on Temporal, freeze half as many, and kill the server a quarter as often."""
    strikes: dict[str, tuple[int, Callable[[TemporalServer], Callable[[Workers], bool]]]] = {
        "workers killed": (times, lambda server: Workers.kill_one),
        "workers frozen": (times // 2, lambda server: Workers.freeze_one),
        "servers killed": (times // 4, _outage),
    }
    found: dict[str, object] = {}
    for name, (count, strike) in strikes.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            TemporalServer(f"{folder}/temporal.db") as server,
            Site(server, Path(folder)) as site,
        ):
            began = time.monotonic()
            recoveries = test_temporal_fleet.rampage(site, count, 3 * count, strike(server))
        found[name] = {"times": count, "executions": 3 * count, "seconds": round(time.monotonic() - began)}
        summary = f"; {test_fleet.summary_of(recoveries)}" if recoveries else ""
        print(f"Temporal: {count} {name} under {3 * count} executions{summary}", flush=True)
    return found


def _outage(server: TemporalServer) -> Callable[[Workers], bool]:
    def strike(workers: Workers) -> bool:
        test_temporal_fleet.outage(workers.site, server, random.uniform(0, 6))
        return True

    return strike


if __name__ == "__main__":
    main(int(sys.argv[1]))
