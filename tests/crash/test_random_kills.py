"""Kills at random times under the load of eight executions at once, on one file."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.crash.audit import audit
from tests.crash.scenarios import Ledger, loop
from tests.processes import Child, Ended, run

EXECUTIONS, TURNS, PAUSE_SECONDS = 8, 12, 0.004


class Fleet:
    """Eight executions at a time; a killed process is started again, one that ends makes room for the next."""

    def __init__(self, folder: Path, expected: Any) -> None:
        self._folder, self._expected = folder, expected
        self._running: dict[str, Child] = {}
        self.finished: list[str] = []
        self.started = 0

    def fill(self) -> None:
        while len(self._running) < EXECUTIONS:
            self._start(f"run-{self.started}")
            self.started += 1

    def _start(self, execution_id: str) -> None:
        self._running[execution_id] = Child(loop, str(self._folder), execution_id, TURNS, PAUSE_SECONDS)

    def collect(self) -> None:
        for execution_id, child in list(self._running.items()):
            if not child.process.is_alive():
                del self._running[execution_id]
                self._take(execution_id, child.join())

    def _take(self, execution_id: str, ended: Ended) -> None:
        assert ended.checked() == self._expected, execution_id
        self.finished.append(execution_id)

    def kill_one(self) -> bool:
        """Kill a random child; False if it had just ended."""
        execution_id = random.choice(sorted(self._running))
        child = self._running.pop(execution_id)
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        ended = child.join()
        if ended.exitcode != -signal.SIGKILL:
            self._take(execution_id, ended)
            return False
        self._start(execution_id)
        return True

    def drain(self) -> None:
        while self._running:
            self.collect()
            time.sleep(0.01)


def rampage(folder: Path, kills: int) -> tuple[int, int]:
    """Kill ``kills`` processes at random, let the rest end, and audit; return executions and lines in the ledger."""
    whole = folder / "whole"
    whole.mkdir()
    expected = run(loop, str(whole), "run-0", TURNS, PAUSE_SECONDS).checked()
    keys = {entry["key"] for entry in Ledger(whole / "ledger.jsonl").read()}
    load = folder / "load"
    load.mkdir()
    fleet = Fleet(load, expected)
    killed = 0
    while killed < kills:
        fleet.fill()
        time.sleep(random.uniform(0.005, 0.06))
        fleet.collect()
        fleet.fill()
        killed += fleet.kill_one()
    fleet.drain()
    entries = Ledger(load / "ledger.jsonl").read()
    for execution_id in fleet.finished:
        audit(load, execution_id, keys, [entry for entry in entries if entry["execution_id"] == execution_id])
    return len(fleet.finished), len(entries)


@pytest.mark.timeout(400)
def test_300_kills_at_random_times_lose_nothing_and_repeat_nothing_finished(
    tmp_path: Path, record_property: Any
) -> None:
    random.seed(os.environ.get("STRANDS_DURABLE_SEED"))
    finished, effects = rampage(tmp_path, kills=300)
    record_property("kills", 300)
    assert finished >= EXECUTIONS
    assert effects > finished * TURNS
