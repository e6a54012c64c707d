"""A long campaign of random kills: `python -m tests.crash.soak 3000`. Prints a line per round and the sum at the end.

First scripts with an agent of their own are killed, then workers of the command line with dispatched executions.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.crash import test_fleet
from tests.crash.test_random_kills import rampage

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
    found = {
        "kills": killed,
        "executions": finished,
        "effects": effects,
        "seconds": seconds,
        "fleet": fleet(kills // 10),
    }
    _RESULT.write_text(json.dumps(found, indent=2) + "\n")


def fleet(kills: int) -> dict[str, object]:
    """Kill ``kills`` workers, as they are typed, under six times as many executions."""
    with tempfile.TemporaryDirectory() as folder:
        recoveries = test_fleet.rampage(Path(folder), kills, 6 * kills, test_fleet.typed)
        test_fleet.audit(Path(folder), 6 * kills)
    found = {"kills": kills, "executions": 6 * kills, "recoveries": test_fleet.told(recoveries)}
    print(f"{kills} workers killed under {6 * kills} executions; {found['recoveries']}", flush=True)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
