"""Everything at once on one file: workers that are killed, stopped and terminated, beside what must not block other runs.

`python -m tests.crash.chaos 200` runs it with 200 executions and prints what it measured; `make soak` includes it. Beside the
workers there are all the time: an agent whose factory hangs, unreadable rows, a reader inside a transaction, a backup.
A worker that is frozen inside a commit holds SQLite's lock until it thaws: what others wait for it is counted apart.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from strands import Agent, tool

from strands_durable import Durability
from strands_durable.testing import ScriptedModel, call
from tests import threads
from tests.crash import fleet
from tests.crash.test_fleet import CONCURRENCY, Fleet, audit, dispatch
from tests.processes import Child
from tests.waiting import until

_RESULT = Path(__file__).parents[2] / "bench" / "results" / "chaos.json"
STOP_SECONDS = (0.2, 2.0)
PATIENCE_SECONDS = 600
UNREADABLE = {
    "poison-spec": "UPDATE dispatches SET spec = substr(spec, 1, 20)",
    "poison-given": """UPDATE dispatches SET given = '{"invocation_state": {"$": "unheard-of", "v": 1}, "limits": null}'""",
    "poison-owner": """UPDATE executions SET status = 'RUNNING', owner = '{"host":', lease_until = 0""",
}
"""Executions, and what makes each of them unreadable: damage, or a newer version, or another program."""


class Crew(Fleet):
    """Workers that are struck in three ways."""

    struck: Counter[str]
    frozen_writers: list[tuple[float, float]]
    """When a worker was frozen while it held SQLite's write lock: from, until."""

    def strike(self) -> None:
        """Kill a worker, stop it for a while, or have it stop in order; whichever ends is replaced."""
        how = random.choice(("kill", "stop", "term"))
        if how == "kill":
            self.kill_one()
        elif how == "stop":
            self._freeze(random.choice(self._workers).pid, random.uniform(*STOP_SECONDS))
        else:
            index = random.randrange(len(self._workers))
            os.kill(self._workers[index].pid, signal.SIGCONT)
            os.kill(self._workers[index].pid, signal.SIGTERM)
            self._workers[index] = self._start()
        self.struck[how] += 1

    def _freeze(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        now = time.monotonic()
        if _is_writing(pid, self.path):
            self.frozen_writers.append((now, now + seconds))
        threading.Timer(seconds, _wake, [pid]).start()


def _is_writing(pid: int, path: Path) -> bool:
    """Return whether a process holds the write lock of a file in WAL mode: byte 120 of the file beside it."""
    lock = f":{os.stat(f'{path}-shm').st_ino} 120 120"
    return any(
        f" WRITE {pid} " in line and line.endswith(lock) for line in Path("/proc/locks").read_text().splitlines()
    )


def _wake(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # it was killed while it was stopped


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Be a reader inside a transaction, as a browser for databases is: for ten seconds at a time."""

    def read(stop: threading.Event) -> None:
        while not stop.is_set():
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM steps").fetchone()
            stop.wait(10)
            connection.close()

    with _thread(read):
        yield


@contextmanager
def copying(path: Path) -> Iterator[None]:
    """Make one backup after the other with SQLite's own means, a few pages at a time."""

    def copy(stop: threading.Event) -> None:
        while not stop.is_set():
            source, target = sqlite3.connect(f"file:{path}?mode=ro", uri=True), sqlite3.connect(":memory:")
            source.backup(target, pages=64, sleep=0.01)
            source.close(), target.close()

    with _thread(copy):
        yield


@contextmanager
def _thread(work: object) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))  # type: ignore[arg-type]
    thread.start()
    try:
        yield
    finally:
        stop.set()
        threads.join(thread)


@contextmanager
def probing(folder: Path) -> Iterator[list[tuple[float, float]]]:
    """Have a script of its own make one short step after the other; give the times of any two that follow each other."""
    pauses: list[tuple[float, float]] = []
    child = Child(_probe, str(folder))
    try:
        until((folder / "probe.txt").exists, 60)
        yield pauses
    finally:
        (folder / "probed").touch()
        assert child.join().checked() == "Probed."
        times = [float(line) for line in (folder / "probe.txt").read_text().splitlines()]
        pauses += itertools.pairwise(times)


def _probe(folder: str) -> str:
    @tool
    def look() -> str:
        """Look at the clock."""
        with open(f"{folder}/probe.txt", "a") as file:
            print(time.monotonic(), file=file)
        time.sleep(0.05)
        return "seen"

    def script(turn: int, messages: object) -> object:
        return "Probed." if Path(folder, "probed").exists() else call("look")

    agent = Agent(
        model=ScriptedModel(script),  # type: ignore[arg-type]
        tools=[look],
        plugins=[Durability(f"{folder}/runs.db", execution_id="probe")],
        callback_handler=None,
    )
    return str(agent("Probe")).strip()


def poison(path: Path) -> None:
    """Make what was dispatched for it unreadable."""
    with sqlite3.connect(path) as connection:
        for execution_id, statement in UNREADABLE.items():
            column = "id" if "UPDATE executions" in statement else "execution"
            row = "(SELECT id FROM executions WHERE execution_id = ?)"
            connection.execute(f"{statement} WHERE {column} = {row}", (execution_id,))
    connection.close()


def _worker(url: str, ledger: str) -> Child:
    return Child(_serve, url, ledger)


def _serve(url: str, ledger: str) -> None:
    os.environ["HANG_FACTORY"] = "1"  # in the workers alone: to be dispatched, an agent has to be described
    fleet.serve(url, ledger, CONCURRENCY)


async def _dispatch_others(url: str) -> None:
    await fleet.hanging.on(url).dispatch_async("Work.", execution_id="hanging")
    for execution_id in UNREADABLE:
        await fleet.labourer.on(url).dispatch_async("Work.", execution_id=execution_id)


def run(folder: Path, executions: int, strikes: int) -> dict[str, Any]:
    """Have executions end under all of it; return what was measured."""
    url, path = f"sqlite:///{folder / 'runs.db'}?worker=off", folder / "runs.db"
    asyncio.run(_dispatch_others(url))
    poison(path)
    asyncio.run(dispatch(url, executions))
    Crew.struck, Crew.frozen_writers = Counter(), []
    with ExitStack() as stack:
        pauses = stack.enter_context(probing(folder))
        stack.enter_context(reading(path))
        stack.enter_context(copying(path))
        crew = Crew(folder, _worker)
        stack.callback(crew.stop)
        began = due = time.monotonic()
        while _unended(crew, executions):
            assert time.monotonic() - began < PATIENCE_SECONDS, f"{_unended(crew, executions)} executions do not end"
            if sum(crew.struck.values()) < strikes and time.monotonic() >= due:
                crew.strike()
                due += 1
            time.sleep(0.02)
        seconds = time.monotonic() - began
    audit(folder, executions)
    waits, behind = _waits(pauses, crew.frozen_writers)
    return {
        "executions": executions,
        "strikes": dict(crew.struck),
        "seconds": round(seconds),
        "probe_steps": len(pauses),
        "probe_median": round(waits[len(waits) // 2], 3),
        "probe_99": round(waits[int(len(waits) * 0.99)], 3),
        "probe_longest": round(waits[-1], 3),
        "frozen_writers": len(crew.frozen_writers),
        "probe_longest_behind_frozen_writer": round(max(behind, default=0.0), 3),
    }


def _waits(
    pauses: list[tuple[float, float]], frozen_writers: list[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """Return the seconds between steps, the shortest first, and apart those during which a frozen worker held the lock."""
    waits, behind = list[float](), list[float]()
    for earlier, later in pauses:
        is_behind = any(earlier < end and start < later for start, end in frozen_writers)
        (behind if is_behind else waits).append(later - earlier)
    return sorted(waits), behind


def _unended(crew: Crew, executions: int) -> int:
    done = "SELECT count(*) FROM executions WHERE execution_id LIKE 'run-%' AND status = 'COMPLETED'"
    return executions - int(crew._rows(done)[0][0])


def campaign(executions: int) -> None:
    """Run it in a folder of its own; print and keep what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        keep("sqlite", run(Path(folder), executions, executions // 4))


def keep(engine: str, found: dict[str, Any]) -> None:
    """Print what a campaign measured, and keep it for the documents."""
    print(f"chaos on {engine}: {found}", flush=True)
    kept = json.loads(_RESULT.read_text()) if _RESULT.exists() else {}
    _RESULT.write_text(json.dumps({**kept, engine: found}, indent=2) + "\n")


if __name__ == "__main__":
    campaign(int(sys.argv[1]))
