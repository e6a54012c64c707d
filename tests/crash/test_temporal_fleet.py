"""Workers on Temporal killed at random, and the server with them: all executions end, and nothing finished is done again."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.crash import fleet
from tests.crash.temporal import Site
from tests.crash.test_fleet import compare, told
from tests.processes import Child
from tests.waiting import until

WORKERS, CONCURRENCY = 3, 4


def serve(url: str, folder: str) -> None:
    fleet.serve(url, f"{folder}/ledger.jsonl", CONCURRENCY)


class Fleet:
    """Some workers on a task queue; whoever is killed is replaced."""

    def __init__(self, site: Site, executions: int) -> None:
        self.site = site
        self.handles = [site.dispatch(f"run-{number}", agent=fleet.labourer) for number in range(executions)]
        self._workers = [self._start() for _ in range(WORKERS)]
        self.recoveries: list[float] = []
        self._left: dict[str, tuple[int, float]] = {}

    def _start(self) -> Child:
        return self.site.worker(target=serve)

    def kill_one(self) -> int:
        """Kill a worker at random, of those that have work; return how many executions had a tool under way in it."""
        at_work = {entry["pid"] for entry in self._open()}
        busy = [index for index, child in enumerate(self._workers) if child.pid in at_work]
        if not busy:
            return 0
        index = random.choice(busy)
        child = self._workers[index]
        os.kill(child.pid, signal.SIGKILL)
        child.process.join()
        left = {entry["execution_id"] for entry in self._open() if entry["pid"] == child.pid}
        begun = self._begun()
        self._left.update({each: (begun[each], time.monotonic()) for each in left})
        self._workers[index] = self._start()
        return len(left)

    def look(self) -> None:
        """Take the time of executions that somebody has taken up again."""
        begun = self._begun() if self._left else {}
        for execution_id, (before, killed_at) in list(self._left.items()):
            if begun[execution_id] > before:
                self.recoveries.append(time.monotonic() - killed_at)
                del self._left[execution_id]

    def _begun(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for entry in self.site.ledger(what="begun"):
            counts[entry["execution_id"]] = counts.get(entry["execution_id"], 0) + 1
        return counts

    def _open(self) -> list[dict[str, Any]]:
        """Return the tools that have begun, and have not told that they are done."""
        done = {(entry["key"], entry["attempt"]) for entry in self.site.ledger(what="done")}
        return [entry for entry in self.site.ledger(what="begun") if (entry["key"], entry["attempt"]) not in done]

    def finished(self) -> int:
        """Return how many executions have done their last tool."""
        return len({entry["execution_id"] for entry in self.site.ledger(what="done", number=fleet.TOOLS - 1)})

    def audit(self) -> None:
        """Have all executions end; compare them with the ledger, and with one that nobody disturbed."""
        for handle in self.handles:
            self.site.result(handle)
        whole = self.site.dispatch("whole", agent=fleet.labourer)
        expected = self.site.seen(whole)
        for handle in self.handles:
            assert self.site.seen(handle) == expected, handle
        ids = [handle.execution_id for handle in self.handles]
        self.site.run(compare(self.site.backend, self.site.folder / "ledger.jsonl", ids))


def rampage(site: Site, kills: int, executions: int, pause_seconds: float = 1.0) -> list[float]:
    """Kill workers at random while executions are under way, and audit them; return the times to recover."""
    workers, killed = Fleet(site, executions), 0
    until(lambda: site.ledger(what="begun"))
    due = time.monotonic()
    while workers.finished() < executions:
        assert time.monotonic() - due < 60, f"{executions - workers.finished()} executions do not end"
        if killed < kills and time.monotonic() >= due and workers.kill_one():
            killed, due = killed + 1, time.monotonic() + pause_seconds
        workers.look()
        time.sleep(0.02)
    workers.audit()
    assert killed == kills, f"only {killed} workers were killed while they had work"
    return workers.recoveries


@pytest.mark.timeout(300)
def test_workers_are_killed_at_random_and_all_executions_end(
    temporal: TemporalServer, tmp_path: Path, record_property: Any
) -> None:
    random.seed(os.environ.get("STRANDS_DURABLE_SEED"))
    with Site(temporal, tmp_path) as site:
        recoveries = rampage(site, kills=8, executions=24)
    record_property("kills", 8)
    print(f"\n8 workers killed, {told(recoveries)}")


def outage(site: Site, server: TemporalServer, down_seconds: float) -> None:
    """Kill the server under tools and model calls, and start it again on its database."""
    begun = len(site.ledger(what="begun"))
    until(lambda: len(site.ledger(what="begun")) > begun, 60)
    server.kill()
    time.sleep(down_seconds)  # there is no condition: nothing happens without a server
    server.start()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("down_seconds", [0, 5])
def test_the_server_is_killed_under_tools_and_all_executions_end(tmp_path: Path, down_seconds: float) -> None:
    with TemporalServer(tmp_path / "temporal.db") as server, Site(server, tmp_path) as site:
        workers = Fleet(site, 8)
        for _ in range(2):
            outage(site, server, down_seconds)
        workers.audit()
