"""Dispatch: how much one file carries with 1, 2 and 4 workers, what waiting costs, and what an execution weighs.

``python -m bench.dispatch`` measures, prints, and keeps the figures beside those of the last bench; the children that it starts
are this module, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strands import Agent, tool

from strands_durable import Durability, connect, durable_agent
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import ScriptedModel, call

Found = dict[str, Any]
KEPT = Path(__file__).parent / "results" / "last.json"
CYCLES, STEPS = 5, 11
RESULT = "x" * 2048
_TICKS = os.sysconf("SC_CLK_TCK")


@tool
def fetch(number: int) -> str:
    """Return two kilobytes."""
    return RESULT


@tool
async def linger() -> str:
    """Be under way for as long as the bench wants."""
    await asyncio.sleep(3600)
    return "never"


def _agent(**more: Any) -> Agent:
    turns = [call("fetch", number=number) for number in range(CYCLES)]
    return Agent(model=ScriptedModel([*turns, "Done."]), tools=[fetch], callback_handler=None, **more)


@durable_agent
def fetcher() -> Agent:
    return _agent()


@durable_agent
def lingerer() -> Agent:
    return Agent(model=ScriptedModel([call("linger")]), tools=[linger], callback_handler=None)


# What runs in the children


def _work(url: str, gate: str, concurrency: int) -> None:
    fetcher.spec, lingerer.spec  # noqa: B018 - imports and first builds are not what is measured
    _ready(gate)
    _until(Path(gate, "go").exists)
    asyncio.run(connect(url).work(concurrency=concurrency))


def _ready(gate: str) -> None:
    Path(gate, f"ready-{os.getpid()}").touch()


def _hold(url: str, gate: str, count: int) -> None:
    """Wait for the results of many executions at once."""

    async def hold() -> None:
        backend = connect(url)
        waiting = [asyncio.ensure_future((await backend.get(f"wait-{n}")).result()) for n in range(count)]
        await asyncio.sleep(0)
        _ready(gate)
        await asyncio.gather(*waiting)

    asyncio.run(hold())


class Child:
    """A worker or a holder, and what it uses."""

    def __init__(self, what: str, url: str, gate: Path, number: int) -> None:
        command = [sys.executable, "-m", "bench.dispatch", what, url, str(gate), str(number)]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
        _until((gate / f"ready-{self._process.pid}").exists)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_kb(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return float(status.partition("VmRSS:")[2].split()[0])

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _until(condition: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the bench waits for something that does not happen")
        time.sleep(0.005)


@contextmanager
def _children(what: str, url: str, folder: Path, numbers: list[int]) -> Iterator[list[Child]]:
    found = [Child(what, url, folder, number) for number in numbers]
    try:
        yield found
    finally:
        for child in found:
            child.end()


# Measurements


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="bench-dispatch-"))


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}?worker=off"


async def _dispatch(url: str, agent: Any, names: list[str]) -> None:
    for name in names:
        await agent.on(url).dispatch_async("Go.", execution_id=name)


def _open(url: str, *statuses: str) -> int:
    backend = connect(url)
    assert isinstance(backend, SqliteBackend)
    wanted = json.dumps(statuses or ("PENDING", "RUNNING"))
    rows = backend.store.read(
        "SELECT count(*) FROM executions WHERE status IN (SELECT value FROM json_each(?))", wanted
    )
    return int(rows[0][0])


def inline(executions: int) -> Found:
    """Return what one process does without dispatch: the floor."""
    folder = _folder()
    plugin = Durability(folder / "runs.db")
    begun, used = time.perf_counter(), _cpu()
    for _ in range(executions):
        _agent(plugins=[plugin])("Go.")
    return _rate(executions, time.perf_counter() - begun, _cpu() - used)


def throughput(workers: int, executions: int) -> Found:
    """Return what some workers do with executions that wait for them."""
    folder = _folder()
    url = _url(folder)
    asyncio.run(_dispatch(url, fetcher, [f"run-{n}" for n in range(executions)]))
    with _children("work", url, folder, [10] * workers) as children:
        used = sum(child.cpu_seconds() for child in children)
        begun = time.perf_counter()
        (folder / "go").touch()
        _until(lambda: _open(url) == 0)
        seconds = time.perf_counter() - begun
        return _rate(executions, seconds, sum(child.cpu_seconds() for child in children) - used)


def latency(executions: int) -> Found:
    """Return how long a dispatch waits for an idle worker of another process, and a handle for the end it waits for."""
    folder = _folder()
    url = _url(folder)

    async def one(name: str) -> tuple[float, float, float]:
        begun = time.perf_counter()
        handle = await fetcher.on(url).dispatch_async("Go.", execution_id=name)
        dispatched = time.perf_counter() - begun
        await handle.result()
        heard = time.time()
        call_ = (await handle.detail()).calls[0]
        record = (await handle.detail()).execution
        return dispatched, call_.started_at - record.created_at, heard - (call_.ended_at or heard)

    async def all_() -> list[tuple[float, float, float]]:
        return [await one(f"run-{n}") for n in range(executions)]

    connect(url).store  # type: ignore[attr-defined]  # noqa: B018
    with _children("work", url, folder, [10]):
        (folder / "go").touch()
        dispatched, begun, heard = zip(*asyncio.run(all_()), strict=True)
    return {
        "dispatch_ms": 1000 * statistics.median(dispatched),
        "begin_ms": 1000 * statistics.median(begun),
        "begin_worst_ms": 1000 * max(begun),
        "heard_ms": 1000 * statistics.median(heard),
        "heard_worst_ms": 1000 * max(heard),
    }


def idle(seconds: float, handles: int) -> Found:
    """Return what a worker with nothing to do uses, and a process that waits for many results."""
    folder = _folder()
    url = _url(folder)
    asyncio.run(_dispatch(url, lingerer, [f"wait-{n}" for n in range(handles)]))
    empty = _folder()
    connect(_url(empty)).store  # type: ignore[attr-defined]  # noqa: B018
    with (
        _children("work", _url(empty), empty, [10]) as (worker,),
        _children("hold", url, folder, [handles]) as (holder,),
    ):
        (empty / "go").touch()
        time.sleep(1)  # what is measured is time itself
        before = worker.cpu_seconds(), holder.cpu_seconds()
        time.sleep(seconds)
        used = worker.cpu_seconds() - before[0], holder.cpu_seconds() - before[1]
    return {"worker_percent": 100 * used[0] / seconds, "holder_percent": 100 * used[1] / seconds, "handles": handles}


def memory(count: int, waiting: int) -> Found:
    """Return what an execution weighs in its worker while it runs, and while it waits in the store."""
    folder = _folder()
    url = _url(folder)
    connect(url).store  # type: ignore[attr-defined]  # noqa: B018
    with _children("work", url, folder, [count]) as (worker,):
        (folder / "go").touch()
        asyncio.run(_dispatch(url, lingerer, ["warm"]))
        _until(lambda: _steps_begun(url) == 1)
        alone = worker.memory_kb()
        asyncio.run(_dispatch(url, lingerer, [f"run-{n}" for n in range(count - 1)]))
        _until(lambda: _steps_begun(url) == count)
        running = (worker.memory_kb() - alone) / (count - 1)
        before = worker.memory_kb()
        asyncio.run(_dispatch(url, lingerer, [f"more-{n}" for n in range(waiting)]))
        time.sleep(2)
        idle_kb = (worker.memory_kb() - before) / waiting
    return {
        "worker_mb": alone / 1024,
        "running_kb": running,
        "waiting_kb": idle_kb,
        "running": count,
        "waiting": waiting,
    }


def _steps_begun(url: str) -> int:
    backend = connect(url)
    assert isinstance(backend, SqliteBackend)
    return int(backend.store.read("SELECT count(*) FROM steps WHERE kind = 'tool' AND status = 'started'")[0][0])


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rate(executions: int, seconds: float, cpu_seconds: float) -> Found:
    return {
        "executions_per_second": executions / seconds,
        "steps_per_second": executions * STEPS / seconds,
        "cpu_ms_per_execution": 1000 * cpu_seconds / executions,
    }


def measure(*, quick: bool = False) -> Found:
    """Measure everything."""
    executions = 60 if quick else 400
    found: Found = {"inline": inline(executions)}
    for workers in (1, 2) if quick else (1, 2, 4):
        found[f"workers_{workers}"] = throughput(workers, executions)
    found["latency"] = latency(10 if quick else 50)
    found["idle"] = idle(3 if quick else 20, 100)
    found["memory"] = memory(50 if quick else 200, 200 if quick else 2000)
    return found


def lines(found: Found) -> list[tuple[str, str]]:
    """Return the measurements as names and values, for the terminal and the documents."""
    floor = found["inline"]["executions_per_second"]
    shown = [("inline, one process, no dispatch", _shown(found["inline"], floor))]
    for key, rate in found.items():
        if key.startswith("workers_"):
            shown.append((f"{key.partition('_')[2]} worker(s)", _shown(rate, floor)))
    latency_, idle_, memory_ = found["latency"], found["idle"], found["memory"]
    shown += [
        ("a dispatch takes", f"{latency_['dispatch_ms']:.1f} ms"),
        (
            "an idle worker starts an execution after",
            f"{latency_['begin_ms']:.0f} ms, at worst {latency_['begin_worst_ms']:.0f} ms",
        ),
        (
            "a waiting handle is notified of the end after",
            f"{latency_['heard_ms']:.0f} ms, at worst {latency_['heard_worst_ms']:.0f} ms",
        ),
        ("CPU of an idle worker", f"{idle_['worker_percent']:.2f} % of a core"),
        (f"CPU of a process with {idle_['handles']} waiting handles", f"{idle_['holder_percent']:.2f} % of a core"),
        ("memory of a worker", f"{memory_['worker_mb']:.0f} MB"),
        ("memory per running execution", f"{memory_['running_kb']:.0f} KB"),
        ("memory per waiting execution", f"{memory_['waiting_kb']:.2f} KB in the worker"),
    ]
    return shown


def _shown(rate: Found, floor: float) -> str:
    ratio = rate["executions_per_second"] / floor
    return (
        f"{rate['executions_per_second']:.0f} executions/s, {rate['steps_per_second']:.0f} steps/s ({ratio:.2f} x inline), "
        f"{rate['cpu_ms_per_execution']:.1f} ms CPU each"
    )


def main(arguments: list[str]) -> None:
    if arguments and arguments[0] in ("work", "hold"):
        what, url, gate, number = arguments
        (_work if what == "work" else _hold)(url, gate, int(number))
        return
    found = measure(quick="--quick" in arguments)
    for name, value in lines(found):
        print(f"{name:44} {value}")
    if "--quick" not in arguments:
        kept = json.loads(KEPT.read_text())
        KEPT.write_text(json.dumps({**kept, "dispatch": found}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
