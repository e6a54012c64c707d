"""Workers killed at random under two hundred dispatched executions: all end, and nothing finished is done again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strands_durable import DurableBackend, ExecutionStatus, connect
from strands_durable._journal.owner import Owner
from tests.crash.fleet import TOOLS, labourer, serve
from tests.processes import Child

EXECUTIONS, WORKERS, CONCURRENCY = 200, 3, 3


class Fleet:
    """Some workers on one file; a killed one is replaced."""

    def __init__(self, folder: Path, start: Callable[[str, str], Any]) -> None:
        self.path = folder / "runs.db"
        url, ledger = f"sqlite:///{self.path}", str(folder / "ledger.jsonl")
        self._start = partial(start, url, ledger)
        self._workers = [self._start() for _ in range(WORKERS)]
        self.recoveries: list[float] = []
        self._left: dict[str, float] = {}
        self._seen: sqlite3.Connection | None = None

    def kill_one(self) -> bool:
        """Kill a worker at random of those that have work; return whether it still had some."""
        busy = [index for index, child in enumerate(self._workers) if self._owned_by(child.pid)]
        if not busy:
            return False
        index = random.choice(busy)
        child = self._workers[index]
        os.kill(child.pid, signal.SIGKILL)
        _gone(child)
        left = self._owned_by(child.pid)
        self._left.update(dict.fromkeys(left, time.monotonic()))
        self._workers[index] = self._start()
        return bool(left)

    def look(self, dead: set[int]) -> None:
        """Take the time of executions that another worker has resumed."""
        if not self._left:
            return
        owners = dict(self._rows("SELECT execution_id, owner FROM executions"))
        for execution_id, killed_at in list(self._left.items()):
            owner = owners[execution_id]
            if owner is None or Owner.parse(owner).pid not in dead:
                self.recoveries.append(time.monotonic() - killed_at)
                del self._left[execution_id]

    def open(self) -> int:
        """Return how many executions have no end yet."""
        return int(self._rows("SELECT count(*) FROM executions WHERE status IN ('PENDING', 'RUNNING')")[0][0])

    def _owned_by(self, pid: int) -> list[str]:
        rows = self._rows("SELECT execution_id, owner FROM executions WHERE owner IS NOT NULL")
        return [execution_id for execution_id, owner in rows if Owner.parse(owner).pid == pid]

    def pids(self) -> set[int]:
        return {child.pid for child in self._workers}

    def _rows(self, sql: str) -> list[Any]:
        self._seen = self._seen or sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)
        return self._seen.execute(sql).fetchall()

    def stop(self) -> None:
        for child in self._workers:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            _gone(child)
        if self._seen is not None:
            self._seen.close()


def forked(url: str, ledger: str) -> Child:
    """Start a worker the quick way, forked from a process that has the imports behind it."""
    return Child(serve, url, ledger, CONCURRENCY)


def typed(url: str, ledger: str) -> subprocess.Popen[bytes]:
    """Start a worker as one types it."""
    command = ["worker", str(Path(__file__).with_name("fleet.py")), "--backend", url, "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "strands_durable", *command, "--concurrency", str(CONCURRENCY)],
        env={**os.environ, "LEDGER": ledger},
    )


def _gone(child: Any) -> None:
    """Wait for the end of a worker, however it was started."""
    child.wait() if isinstance(child, subprocess.Popen) else child.process.join()


async def dispatch(url: str, executions: int) -> None:
    agent = labourer.on(url)
    for number in range(executions):
        await agent.dispatch_async("Work.", execution_id=f"run-{number}")


def rampage(folder: Path, kills: int, executions: int, start: Callable[[str, str], Any]) -> list[float]:
    """Kill workers at random, as executions end, so that work is left for the last one; return the times to recover."""
    asyncio.run(dispatch(f"sqlite:///{folder / 'runs.db'}?worker=off", executions))
    fleet, dead, killed, begun = Fleet(folder, start), set[int](), 0, time.monotonic()
    ended_per_kill = 0.9 * executions / kills
    try:
        while running := fleet.open():
            assert time.monotonic() - begun < 60 + 4 * kills, f"{running} executions do not end"
            if killed < kills and executions - running >= killed * ended_per_kill:
                before = fleet.pids()
                killed += fleet.kill_one()
                dead |= before - fleet.pids()
            fleet.look(dead)
            time.sleep(0.02)
    finally:
        fleet.stop()
    assert killed == kills, f"only {killed} workers were killed while they had work"
    return fleet.recoveries


def audit(folder: Path, executions: int) -> None:
    """Compare the journal with the outside world, step by step."""
    backend = connect(f"sqlite:///{folder / 'runs.db'}?worker=off")
    asyncio.run(compare(backend, folder / "ledger.jsonl", [f"run-{number}" for number in range(executions)]))


async def compare(backend: DurableBackend, ledger: Path, execution_ids: list[str]) -> None:
    """Compare what is recorded of executions with what was written to a ledger."""
    logged: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        logged[entry["execution_id"], entry["number"]].append(entry)
    for execution_id in execution_ids:
        handle = await backend.get(execution_id)
        assert await handle.status() is ExecutionStatus.COMPLETED
        result = await handle.result()
        assert str(result) == "All is done.\n"
        assert result.state == {f"work-{each}": "done" for each in range(TOOLS)}
        steps = [step for step in await handle.steps() if step.kind == "tool"]
        for each in range(TOOLS):
            attempts = [step for step in steps if step.number == f"{each + 1}.0"]
            entries = logged[handle.execution_id, each]
            done = [step.attempt for step in attempts if step.state == "done"]
            assert done == [attempts[-1].attempt], "one attempt is done, and it is the last"
            assert len({entry["key"] for entry in entries}) == 1
            begun = [entry["attempt"] for entry in entries if entry["what"] == "begun"]
            assert len(begun) == len(set(begun)), "no attempt began twice"
            assert set(begun) <= {step.attempt for step in attempts}, "no attempt began without its intent"
            assert max(begun) == done[0], "nothing began after it was done"
            assert [entry["attempt"] for entry in entries if entry["what"] == "done"].count(done[0]) == 1
        models = [step for step in await handle.steps() if step.kind == "model" and step.state == "done"]
        assert len(models) == TOOLS + 1


def summary_of(recoveries: list[float]) -> str:
    """Return the times to recover in words."""
    shown = sorted(recoveries)
    return (
        f"{len(shown)} executions of killed workers resumed: median {statistics.median(shown):.2f} s, "
        f"90 % {shown[int(len(shown) * 0.9)]:.2f} s, longest {shown[-1]:.2f} s"
    )


@pytest.mark.timeout(600)
def test_fifty_workers_are_killed_and_two_hundred_executions_end(tmp_path: Path) -> None:
    recoveries = rampage(tmp_path, 50, EXECUTIONS, forked)
    audit(tmp_path, EXECUTIONS)
    assert len(recoveries) >= 50, "a worker that is killed has work"
    print(f"\n50 workers killed, {summary_of(recoveries)}")
