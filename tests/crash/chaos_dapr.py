"""Everything at once on Dapr: workers and sidecars that are killed and frozen, scheduler and placement that restart.

`python -m tests.crash.chaos_dapr 48` runs it with so many executions, on SQLite and on PostgreSQL, and prints what it measured;
`make soak` includes it.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.crash import fleet
from tests.crash.chaos import keep
from tests.crash.postgres import Postgres
from tests.crash.sidecars import SILENT_SECONDS, DaprSite
from tests.crash.test_fleet import summary_of
from tests.crash.test_temporal_fleet import CONCURRENCY, WORKERS, Fleet
from tests.processes import Child
from tests.waiting import until

PATIENCE_SECONDS = 900
STRIKES = ("worker", "sidecar", "both", "worker", "freeze", "sidecar", "placement", "both", "term", "scheduler")
"""What is struck, one after the other, from a random place on."""
AWAY_SECONDS = (0.2, 8.0)
"""How long a sidecar stays away: at most longer than a worker may be silent."""


class Crew(Fleet):
    """Workers beside sidecars, which are struck in seven ways."""

    freeze_seconds = SILENT_SECONDS + 2
    site: DaprSite

    def __init__(self, site: DaprSite, executions: int, strikes: Sequence[str] = STRIKES) -> None:
        self.struck: Counter[str] = Counter()
        self._strikes = strikes
        self._away: dict[int, float] = {}
        self._first = random.randrange(len(strikes))
        super().__init__(site, executions)

    def _start(self) -> Child:
        return self.site.worker(target=serve)

    def strike(self) -> None:
        """Strike what is next, if a worker has work."""
        how = self._strikes[(self._first + self.struck.total()) % len(self._strikes)]
        if self._busy() is not None and getattr(self, f"_{how}")():
            self.struck[how] += 1

    def look(self) -> None:
        """Wake up what was frozen long enough, and start the sidecars that were away long enough."""
        super().look()
        for number, until_ in list(self._away.items()):
            if time.monotonic() > until_:
                self.site.cluster.sidecars[number].start()
                del self._away[number]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is frozen or away."""
        return not self._frozen and not self._away

    def _worker(self) -> bool:
        return self.kill_one()

    def _freeze(self) -> bool:
        left = {*self._left}
        is_done = self.freeze_one()
        self._left = {each: since for each, since in self._left.items() if each in left}  # a time of its own kind
        return is_done

    def _sidecar(self) -> bool:
        child = self._busy()
        return child is not None and self._send_away(child)

    def _both(self) -> bool:
        child = self._busy()
        if child is None or not self._send_away(child):
            return False
        self.site.killed(child)
        self._note_left(child)
        self._workers[self._workers.index(child)] = self._start()
        return True

    def _term(self) -> bool:
        child = self._busy()
        if child is None:
            return False
        child.process.terminate()
        child.process.join(30)
        self.site.killed(child)
        self._workers[self._workers.index(child)] = self._start()
        return True

    def _scheduler(self) -> bool:
        self.site.cluster.scheduler.restart()
        return True

    def _placement(self) -> bool:
        self.site.cluster.placement.restart()
        return True

    def _send_away(self, child: Child) -> bool:
        sidecar = self.site.sidecar_of(child)
        if not sidecar.is_running:
            return False
        sidecar.kill()
        self._away[self.site.cluster.sidecars.index(sidecar)] = time.monotonic() + random.uniform(*AWAY_SECONDS)
        return True

    def _busy(self) -> Child | None:
        """Return a worker at random, of those that have work and are not frozen."""
        at_work = {entry["pid"] for entry in self._open()} - {*self._frozen}
        busy = [child for child in self._workers if child.pid in at_work]
        return random.choice(busy) if busy else None


def serve(url: str, folder: str) -> None:
    """Be a worker."""
    os.chdir(folder)
    fleet.serve(url, f"{folder}/ledger.jsonl", CONCURRENCY)


def run(site: DaprSite, executions: int, times: int, strikes: Sequence[str] = STRIKES) -> dict[str, Any]:
    """Have executions end under all of it, and audit them; return what was measured."""
    crew = Crew(site, executions, strikes)
    until(lambda: site.ledger(what="begun"), 90)
    began = due = time.monotonic()
    while crew.finished() < executions:
        assert time.monotonic() - began < PATIENCE_SECONDS, f"{executions - crew.finished()} executions do not end"
        if time.monotonic() >= due and crew.struck.total() < times:
            due = time.monotonic() + 1
            crew.strike()
        crew.look()
        time.sleep(0.02)
    seconds = time.monotonic() - began
    while not crew.is_whole:  # also those that wake up now must do no harm
        crew.look()
        time.sleep(0.02)
    crew.audit()
    repeated = [entry for entry in site.ledger(what="begun") if entry["attempt"] > 1]
    return {
        "executions": executions,
        "strikes": dict(crew.struck),
        "seconds": round(seconds),
        "tools_in_second_attempts": len(repeated),
        "recoveries": summary_of(crew.recoveries) if crew.recoveries else "",
    }


def campaign(executions: int) -> None:
    """Run it on each store; print and keep what was measured."""
    for store in ("sqlite", "postgres"):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            url = stack.enter_context(Postgres()).url if store == "postgres" else None
            site = stack.enter_context(DaprSite(Path(folder), WORKERS, store=url))
            keep(f"dapr-{store}", run(site, executions, executions // 2))


if __name__ == "__main__":
    campaign(int(sys.argv[1]))
