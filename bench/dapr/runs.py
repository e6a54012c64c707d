"""One run on a Dapr of its own: two workers, what they take and keep, and how soon one takes over when the other is killed."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.dapr.script import KILL, LOG, Note, notes
from bench.dapr.sides import ROOT, RUN, Side
from strands_durable.testing.dapr import DaprCluster, Sidecar

Found = dict[str, Any]
_MB = 1024 * 1024


@contextmanager
def started(command: list[str], sidecar: Sidecar, env: dict[str, str], output: Path) -> Iterator[psutil.Process]:
    """Run a process as `dapr run` does, with the ports of its sidecar in its environment; it is killed in the end."""
    env = {**env, "DAPR_GRPC_PORT": str(sidecar.grpc_port), "DAPR_HTTP_PORT": str(sidecar.http_port)}
    with output.open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield psutil.Process(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def measure(side: Side, cycles: int, folder: Path, name: str, *, is_killed: bool = True) -> Found:
    """Run ``cycles`` cycles, kill the worker in the tool of one more, and return what all that took and left behind."""
    log, place = folder / f"{name}.log", folder / name
    env = {**os.environ, "PYTHONPATH": str(ROOT), LOG: str(log), "PYTHONUNBUFFERED": "1"}
    if is_killed:
        env[KILL] = str(cycles)
    total = cycles + 1 if is_killed else cycles
    with DaprCluster(2, folder=place) as cluster:
        first, second = cluster.sidecars
        output = log.with_suffix(".out")
        with (
            started(side.worker(first), first, env, output) as one,
            started(side.worker(second), second, env, output) as two,
        ):
            _await_workers(cluster, output)
            idle = {"worker": _mb(one), **{each.name: _mb(psutil.Process(each.pid)) for each in cluster.processes}}
            cpu = _cpu(cluster)
            with started(side.starter(first, total), first, env, output):
                error, peak = _followed(log, total, [one, two], cluster)
                cpu = _cpu(cluster) - cpu
                after = {each.name: _mb(psutil.Process(each.pid)) for each in cluster.processes}
                kept = _kept(place / "state.db")
    found = notes(log)
    done = len({note["number"] for note in found if note["what"] == "tool"})
    return {
        **({"error": error} if error else {}),
        **pace(found, cycles),
        **kept,
        **(_takeover(found) if is_killed and not error else {}),
        "sidecar_cpu_ms_per_cycle": 1000 * cpu / max(1, done),
        "worker_idle_mb": idle["worker"],
        "worker_peak_mb": peak,
        **{f"{name}_idle_mb": idle[key] for name, key in _NAMES.items()},
        **{f"{name}_after_mb": after[key] for name, key in _NAMES.items()},
        "machine_load": os.getloadavg()[0],
    }


_NAMES = {"sidecar": "daprd-0", "placement": "placement", "scheduler": "scheduler"}


def _await_workers(cluster: DaprCluster, output: Path) -> None:
    """Wait until both sidecars have a worker: they say so in their logs."""
    deadline = time.monotonic() + 90
    while not all("work item stream" in each.log.read_text().lower() for each in cluster.sidecars):
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: no worker has connected:\n{output.read_text()[-2000:]}")
        time.sleep(0.05)


def _followed(log: Path, total: int, workers: list[psutil.Process], cluster: DaprCluster) -> tuple[str, float]:
    """Wait for the last model call; return why it does not come, if it does not, and the most memory of a worker meanwhile."""
    peak, deadline = 0.0, time.monotonic() + 120 + total
    while not any(note["what"] == "model" and note["number"] == total for note in notes(log)):
        done = len({note["number"] for note in notes(log) if note["what"] == "tool"})
        if any("workflow is stalled" in each.log.read_text() for each in cluster.sidecars):
            return f"stalled after {done} cycles", peak
        if time.monotonic() > deadline:
            return f"not ended after {120 + total} s and {done} cycles", peak
        peak = max([peak, *(_mb(worker) for worker in workers)])
        time.sleep(0.2)
    time.sleep(2)  # the end is recorded after its model call
    return "", peak


def _mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / _MB
    except psutil.NoSuchProcess:  # the one that was killed
        return 0.0


def _cpu(cluster: DaprCluster) -> float:
    used = [psutil.Process(each.pid).cpu_times() for each in cluster.sidecars]
    return float(sum(each.user + each.system for each in used))


def _kept(database: Path) -> Found:
    """Return the bytes of keys and values: of the workflow, and of everything else that belongs to the run."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)
    rows = connection.execute("SELECT key, length(key) + length(value), value FROM state").fetchall()
    connection.close()
    workflow = [size for key, size, _ in rows if "||dapr.internal." in key]
    history = [size for key, size, _ in rows if "||dapr.internal." in key and "||history" in key]
    ours = [size for key, size, _ in rows if "||dapr.internal." not in key and RUN in key]
    return {
        "kept_bytes": sum(workflow) + sum(ours),
        "kept_rows": len(workflow) + len(ours),
        "workflow_bytes": sum(workflow),
        "history_events": len(history),
    }


def pace(found: list[Note], cycles: int) -> Found:
    """Return what a cycle takes, from tool to tool."""
    tools = [note for note in found if note["what"] == "tool" and note["number"] < cycles]
    few = max(1, min(100, len(tools) // 3))
    cpu = [
        later["cpu_s"] - earlier["cpu_s"]
        for earlier, later in itertools.pairwise(tools)
        if later["pid"] == earlier["pid"]
    ]
    return {
        "cycles_done": len({note["number"] for note in tools}),
        "cycles_repeated": len(tools) - len({note["number"] for note in tools}),
        "wall_ms_per_cycle": _between(tools),
        "last_wall_ms_per_cycle": _between(tools[-few - 1 :]),
        "worker_cpu_ms_per_cycle": 1000 * sum(cpu) / max(1, len(cpu)),
    }


def _between(tools: list[Note]) -> float:
    return float(1000 * (tools[-1]["at"] - tools[0]["at"]) / max(1, len(tools) - 1))


def _takeover(found: list[Note]) -> Found:
    """Return how long after a kill the tool began again, and the next model call."""
    killed = next(at for at, note in enumerate(found) if note["what"] == "killed")
    again = next((note for note in found[killed + 1 :] if note["what"] == "tool"), None)
    model = next((note for note in found[killed + 1 :] if note["what"] == "model"), None)
    assert again is not None
    assert model is not None
    return {"takeover_s": again["at"] - found[killed]["at"], "next_model_s": model["at"] - found[killed]["at"]}
