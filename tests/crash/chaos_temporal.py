"""Everything at once on Temporal: workers that are killed, frozen and terminated, a factory that hangs, malformed signals.

`python -m tests.crash.chaos_temporal 64` runs it with so many executions and prints what it measured; `make soak` includes it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from strands_durable.backends.temporal._protocol import ALIVE, PROGRESS
from strands_durable.testing.temporal import TemporalServer
from tests.crash import fleet
from tests.crash.chaos import keep
from tests.crash.temporal import Site
from tests.crash.test_temporal_fleet import CONCURRENCY, Fleet
from tests.processes import Child
from tests.waiting import until

PATIENCE_SECONDS = 900
MALFORMED: list[tuple[str, Any]] = [
    (PROGRESS, "nonsense"),
    (PROGRESS, {"epoch": "one"}),
    (PROGRESS, None),
    (ALIVE, {"epoch": []}),
    (ALIVE, 7),
    ("unheard_of", {}),
]


class Crew(Fleet):
    """Workers that are struck in three ways, while strangers send signals."""

    struck: Counter[str]
    site: Site

    def _start(self) -> Child:
        return self.site.worker(target=_serve)

    def strike(self) -> None:
        """Kill a worker that has work, freeze it for longer than its heartbeat, or have it stop in order."""
        how = random.choice(("kill", "freeze", "term"))
        if how == "term":
            child = random.choice(self._workers)
            if child.pid in self._frozen:
                return
            os.kill(child.pid, signal.SIGTERM)
            self._workers[self._workers.index(child)] = self._start()
            self.struck[how] += 1
        elif {"kill": self.kill_one, "freeze": self.freeze_one}[how]():
            self.struck[how] += 1

    def disturb(self) -> None:
        """Send a malformed signal to one of the executions."""
        name, value = random.choice(MALFORMED)
        handle = random.choice(self.handles)

        async def send() -> None:
            await (await self.site.backend.workflow(handle.execution_id)).signal(name, value)

        if self.site.status(handle) in ("PENDING", "RUNNING"):
            try:
                self.site.run(send())
            except Exception as error:
                if "completed" not in str(error):  # it has just ended
                    raise
            self.struck["malformed signals"] += 1


def _serve(url: str, folder: str) -> None:
    os.environ["HANG_FACTORY"] = "1"  # in the workers alone: to be dispatched, an agent has to be described
    fleet.serve(url, f"{folder}/ledger.jsonl", CONCURRENCY)


def run(site: Site, executions: int, strikes: int) -> dict[str, Any]:
    """Have executions end under all of it, and audit them; return what was measured."""
    site.dispatch("hanging", agent=fleet.hanging)
    Crew.struck = Counter()
    crew = Crew(site, executions)
    until(lambda: site.ledger(what="begun"), 90)
    began = due = time.monotonic()
    while crew.finished() < executions:
        assert time.monotonic() - began < PATIENCE_SECONDS, f"{executions - crew.finished()} executions do not end"
        if time.monotonic() >= due:
            due += 1
            crew.disturb()
            if sum(crew.struck[how] for how in ("kill", "freeze", "term")) < strikes:
                crew.strike()
        crew.look()
        time.sleep(0.02)
    seconds = time.monotonic() - began
    crew.audit()
    return {"executions": executions, "strikes": dict(crew.struck), "seconds": round(seconds)}


def campaign(executions: int) -> None:
    """Run it on a server of its own; print and keep what was measured."""
    with (
        tempfile.TemporaryDirectory() as folder,
        TemporalServer(f"{folder}/temporal.db") as server,
        Site(server, Path(folder)) as site,
    ):
        keep("temporal", run(site, executions, executions // 4))


if __name__ == "__main__":
    campaign(int(sys.argv[1]))
