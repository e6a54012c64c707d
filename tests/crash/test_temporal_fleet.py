"""Workers on Temporal killed at random, and the server with them: all executions end, and nothing finished is done again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.crash import fleet
from tests.crash.site import EngineSite
from tests.crash.temporal import HEARTBEAT_SECONDS, Site
from tests.crash.test_fleet import compare, summary_of
from tests.processes import Child
from tests.waiting import until

WORKERS, CONCURRENCY = 3, 4


def serve(url: str, folder: str) -> None:
    fleet.serve(url, f"{folder}/ledger.jsonl", CONCURRENCY)


class Fleet:
    """Some workers of an engine; a killed one is replaced, a frozen one wakes up again."""

    freeze_seconds: float = 3 * HEARTBEAT_SECONDS

    def __init__(self, site: EngineSite, executions: int) -> None:
        self.site = site
        self.handles = [site.dispatch(f"run-{number}", agent=fleet.labourer) for number in range(executions)]
        self._workers = [self._start() for _ in range(WORKERS)]
        self.recoveries: list[float] = []
        self._left: dict[str, tuple[int, float]] = {}
        self._frozen: dict[int, float] = {}

    def _start(self) -> Child:
        return self.site.worker(target=serve)

    def kill_one(self) -> bool:
        """Kill a worker at random, of those that have work."""
        child = self._leave(signal.SIGKILL)
        if child is None:
            return False
        child.process.join()
        self._workers[self._workers.index(child)] = self._start()
        return True

    def freeze_one(self) -> bool:
        """Freeze a worker at random, of those that have work, for longer than it may be silent."""
        child = self._leave(signal.SIGSTOP)
        if child is None:
            return False
        self._frozen[child.pid] = time.monotonic() + self.freeze_seconds
        return True

    def _leave(self, how: signal.Signals) -> Child | None:
        at_work = {entry["pid"] for entry in self._open()} - {*self._frozen}
        busy = [child for child in self._workers if child.pid in at_work]
        if not busy:
            return None
        child = random.choice(busy)
        os.kill(child.pid, how)
        self._note_left(child)
        return child

    def _note_left(self, child: Child) -> None:
        """Take the time from now until another worker resumes what this one has begun."""
        begun = self._begun()
        left = {entry["execution_id"] for entry in self._open() if entry["pid"] == child.pid}
        self._left.update({each: (begun[each], time.monotonic()) for each in left})

    def look(self) -> None:
        """Take the time of executions that another worker has resumed, and wake up workers that were frozen long enough."""
        for pid, until_ in list(self._frozen.items()):
            if time.monotonic() > until_:
                os.kill(pid, signal.SIGCONT)
                del self._frozen[pid]
        begun = self._begun() if self._left else {}
        for execution_id, (before, left_at) in list(self._left.items()):
            if begun[execution_id] > before:
                self.recoveries.append(time.monotonic() - left_at)
                del self._left[execution_id]

    def _begun(self) -> Counter[str]:
        return Counter(entry["execution_id"] for entry in self.site.ledger(what="begun"))

    def _open(self) -> list[dict[str, Any]]:
        """Return the tools that have begun and are not done."""
        done = {(entry["key"], entry["attempt"]) for entry in self.site.ledger(what="done")}
        return [entry for entry in self.site.ledger(what="begun") if (entry["key"], entry["attempt"]) not in done]

    def finished(self) -> int:
        """Return how many executions have done their last tool."""
        return len({entry["execution_id"] for entry in self.site.ledger(what="done", number=fleet.TOOLS - 1)})

    def audit(self) -> None:
        """Let all executions end; compare them with the ledger, and with one that was not disturbed."""
        for handle in self.handles:
            self.site.result(handle)
        whole = self.site.dispatch("whole", agent=fleet.labourer)
        expected = self.site.seen(whole)
        for handle in self.handles:
            assert self.site.seen(handle) == expected, handle
        ids = [handle.execution_id for handle in self.handles]
        self.site.run(compare(self.site.backend, self.site.folder / "ledger.jsonl", ids))


def rampage(site: Site, times: int, executions: int, strike: Callable[[Fleet], bool]) -> list[float]:
    """Strike every second while executions are running, and audit them; return the times to recover."""
    workers, struck = Fleet(site, executions), 0
    until(lambda: site.ledger(what="begun"), 60)
    due = moved = time.monotonic()
    done = 0
    while (found := workers.finished()) < executions:
        if found > done:  # what may have killed a worker is tried alone, one after the other, which takes its time
            done, moved = found, time.monotonic()
        assert time.monotonic() - max(due, moved) < 90, f"{executions - done} executions do not end"
        if struck < times and time.monotonic() >= due and strike(workers):
            struck, due = struck + 1, time.monotonic() + 1
        workers.look()
        time.sleep(0.02)
    workers.audit()
    assert struck == times, f"only {struck} times a worker had work"
    return workers.recoveries


def outage(site: Site, server: TemporalServer, seconds: float) -> None:
    """Kill the server while a tool is running, and start it again on its database."""
    begun = len(site.ledger(what="begun"))
    until(lambda: len(site.ledger(what="begun")) > begun, 60)
    server.kill()
    time.sleep(seconds)  # there is no condition to wait for: nothing happens without a server
    server.start()


@pytest.mark.timeout(300)
def test_workers_are_killed_at_random_and_all_executions_end(
    temporal: TemporalServer, tmp_path: Path, record_property: Any
) -> None:
    random.seed(os.environ.get("STRANDS_DURABLE_SEED"))
    with Site(temporal, tmp_path, max_events=40) as site:  # so that they also continue in new runs of their workflows
        recoveries = rampage(site, 6, 16, Fleet.kill_one)
    assert recoveries, "something was left by those who were killed"
    record_property("kills", 6)
    print(f"\n6 workers killed, {summary_of(recoveries)}")


@pytest.mark.timeout(300)
def test_the_server_is_killed_under_tools_and_all_executions_end(tmp_path: Path) -> None:
    with TemporalServer(tmp_path / "temporal.db") as server, Site(server, tmp_path) as site:
        workers = Fleet(site, 8)
        for seconds in (0, 2 * HEARTBEAT_SECONDS):
            outage(site, server, seconds)
        workers.audit()
        assert workers.finished() == 8 + 1, "and the one that was not disturbed"
