"""``make bench``: plain Strands, ours and a bare SQLite commit, side by side in one run.

Here is the order of the measurements, the arithmetic and the tables; what runs in the child processes is in `workload`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import dispatch, transfer
from bench.workload import Found, run_child, stored_bytes

RESULTS = Path(__file__).resolve().parent / "results"
VARIANTS = {"plain": "plain Strands", "quickened": "plain, our speed-ups", "durable": "with Durability"}
CPU_LIMIT_MS, RESUME_LIMIT_MS, STORED_LIMIT_KB = 0.5, 50.0, 3.34
FLAT_STORAGE, FLAT_MEMORY_KB = 0.10, 0.5
"""Flat: storage within a tenth from size to size; memory per cycle within a quarter of the result that the cycle adds."""

console = Console(width=None if sys.stdout.isatty() else 118)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often each thing is measured."""

    sizes: tuple[int, ...] = (10, 100, 1000)
    variants: tuple[str, ...] = ("plain", "quickened", "durable")
    rounds: tuple[int, ...] = (5, 3, 1)
    """Rounds of each size; a round is one process per variant."""
    executions: tuple[int, int] = (40, 20)
    """Executions per process without a tool, and of 10 cycles; longer ones run once per process."""
    resumes: int = 5
    commits: int = 1000

    def pairs(self, cycles: int) -> list[tuple[int, int]]:
        """Return cycles and executions of one process; short calls ride along with those of 10 cycles."""
        return [(0, self.executions[0]), (10, self.executions[1])] if cycles == 10 else [(cycles, 1)]


QUICK = Plan(sizes=(10, 100), variants=("plain", "durable"), rounds=(2, 1), executions=(20, 10), resumes=2, commits=300)


def steps_in(cycles: int) -> int:
    """Return the steps of an execution: two per cycle, and the last answer."""
    return 2 * cycles + 1


# Measuring


@contextmanager
def scratch() -> Iterator[str]:
    """Give a folder on a disk: a /tmp in memory would make every fsync free."""
    disk = "/var/tmp"
    with tempfile.TemporaryDirectory(dir=disk if os.path.isdir(disk) else None, prefix="bench-") as folder:
        yield folder


def measure_steps(plan: Plan) -> Found:
    """Time every variant at every size, one variant after the other in each round, and take medians."""
    raw: dict[str, dict[str, list[Found]]] = {variant: {} for variant in plan.variants}
    for cycles, rounds in zip(plan.sizes, plan.rounds, strict=True):
        for number in range(rounds):
            for variant in plan.variants:
                with console.status(f"{cycles} cycles, round {number + 1} of {rounds}: {variant}"), scratch() as folder:
                    found = run_child("timed", variant=variant, plan=plan.pairs(cycles), folder=folder)
                for size, values in found.items():
                    raw[variant].setdefault(size, []).append(values)
    return {variant: {size: medians(found) for size, found in sizes.items()} for variant, sizes in raw.items()}


def measure_resumes(plan: Plan) -> tuple[Found, Found]:
    """Kill a run at every size, go on with it in fresh processes; return the times, and the bytes it had stored."""
    times: Found = {"plain": {}, "durable": {}}
    stored: Found = {}
    for cycles in (0, *plan.sizes):
        with scratch() as folder:
            with console.status(f"{cycles} cycles, then a kill"):
                run_child("crash", cycles=cycles, folder=folder)
            stored[str(cycles)] = stored_bytes(Path(folder))
            if cycles == 0:
                continue
            rounds: dict[str, list[Found]] = {"plain": [], "durable": []}
            for number in range(plan.resumes):
                for variant, found in rounds.items():
                    with console.status(f"going on at {cycles}, {number + 1} of {plan.resumes}: {variant}"):
                        found.append(resume_copy(folder, variant=variant, cycles=cycles))
            for variant, found in rounds.items():
                times[variant][str(cycles)] = medians(found)
    return times, stored


def resume_copy(crashed: str, module: str = "bench.workload", **given: object) -> Found:
    """Go on with a copy. It is synced first: what the killed process had committed was on the disk."""
    with scratch() as folder:
        for file in Path(crashed).iterdir():
            if file.is_file():
                copied = shutil.copy(file, folder)
                with open(copied, "rb") as opened:
                    os.fsync(opened.fileno())
        return run_child("resume", module, folder=folder, **given)


def measure_commits(plan: Plan, plain: Found) -> Found:
    """Time bare commits in a tight loop, and with a plain step's computing in between; count those of a run of ours."""
    step_ms = plain["10"]["wall_ms"] / steps_in(10)
    with console.status("bare SQLite commits"), scratch() as folder:
        tight = run_child("bare_commits", folder=folder, rows=plan.commits, work_ms=0.0)
        spaced = run_child("bare_commits", folder=folder, rows=plan.commits, work_ms=step_ms)
        shorter, longer = (run_child("commits", folder=str(_new(folder, n)), cycles=n) for n in (1, 11))
    return {
        "tight": tight,
        "spaced": spaced,
        "transactions_per_cycle": {name: (longer[name] - shorter.get(name, 0)) / 10 for name in longer},
        "transactions_per_call": sum(count for name, count in longer.items() if shorter.get(name) == count),
    }


def _new(folder: str, number: int) -> Path:
    path = Path(folder) / str(number)
    path.mkdir()
    return path


def medians(rows: Iterable[Found]) -> Found:
    """Return the median of each value."""
    found = list(rows)
    return {name: statistics.median(row[name] for row in found) for name in found[0]}


# Arithmetic


def per_step(steps: Found, unit: str, variant: str, cycles: int, over: str | None = None) -> float:
    """Return the milliseconds per step of a variant, or how many more than those of another."""
    own = steps[variant][str(cycles)][unit]
    return float(own - (steps[over][str(cycles)][unit] if over else 0)) / steps_in(cycles)


def split_cost(steps: Found, unit: str) -> Found:
    """Tell the fixed cost of a call from that of a step: a call without tools has one step, one of 10 cycles has 21."""
    empty, full = (steps["durable"][n][unit] - steps["plain"][n][unit] for n in ("0", "10"))
    step = (full - empty) / (steps_in(10) - 1)
    return {"call": empty - step, "step": step}


def kb_per_cycle(stored: Found, first: int, last: int) -> float:
    """Return by how much a journal grows per cycle between two sizes."""
    return float(stored[str(last)] - stored[str(first)]) / (last - first) / 1024


def memory_over(steps: Found, base: str, cycles: int) -> float:
    """Return the peak memory over that of another variant, in KB."""
    return float(steps["durable"][str(cycles)]["peak_rss_kb"] - steps[base][str(cycles)]["peak_rss_kb"])


def goals(plan: Plan, found: Found) -> list[Found]:
    """Hold what was found against the goals."""
    steps, resume, stored = found["steps"], found["resume"], found["stored_bytes"]
    rows = [
        _goal("CPU per step over plain, without the fixed cost of a call", found["cost"]["cpu_ms"]["step"], CPU_LIMIT_MS, "ms"),
    ]  # fmt: skip
    for size in plan.sizes:
        over = per_step(steps, "cpu_ms", "durable", size, over="plain")
        rows.append(_goal(f"CPU per step over plain, {size} cycles, with all it costs", over, CPU_LIMIT_MS, "ms"))
    for size in plan.sizes:
        over = resume["durable"][str(size)]["tool_wall_ms"] - resume["plain"][str(size)]["tool_wall_ms"]
        rows.append(_goal(f"first new step over plain, killed at cycle {size}", over, RESUME_LIMIT_MS, "ms"))
    before, last = plan.sizes[-2:]
    late, early = kb_per_cycle(stored, before, last), kb_per_cycle(stored, 0, before)
    rows.append(_goal(f"stored per cycle, {before} to {last}", late, STORED_LIMIT_KB, "KB"))
    rows.append(_goal("  and flat: growth over the cycles before", late / early - 1, FLAT_STORAGE, "x"))
    walls = [steps[variant][str(last)]["wall_ms"] / 1000 for variant in ("durable", "plain")]
    rows.append(_goal(f"wall time of {last} cycles, plain in equal segments", walls[0], walls[1], "s"))
    if last >= 1000:  # in shorter runs the page cache of SQLite, a constant half MB, is most of the difference
        for base in plan.variants[:-1]:
            grown = (memory_over(steps, base, last) - memory_over(steps, base, before)) / (last - before)
            name = f"peak memory per cycle over {VARIANTS[base]}, {before} to {last}"
            rows.append(_goal(name, grown, FLAT_MEMORY_KB, "KB"))
    return rows


def _goal(name: str, value: float, limit: float, unit: str) -> Found:
    return {"goal": name, "value": round(value, 4), "limit": round(limit, 4), "unit": unit, "reached": value <= limit}


def environment() -> Found:
    """Say on what this was measured, without saying where."""
    return {
        "python": platform.python_version(),
        "strands": version("strands-agents"),
        "strands_durable": version("strands-durable"),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


# Tables


def new_table(title: str, sizes: Iterable[int], *columns: str) -> Table:
    """Return a table with a group of columns, one per size, for each of ``columns``."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for column in columns:
        for size in sizes:
            table.add_column(f"{column}\n{size}", justify="right")
    return table


def show_steps(plan: Plan, found: Found) -> None:
    """Print CPU and wall per step."""
    steps, commits = found["steps"], found["commits"]
    table = new_table("Milliseconds per step (a cycle has two), by cycles", plan.sizes, "CPU", "wall")
    units = ("cpu_ms", "wall_ms")
    for variant in plan.variants:
        cells = [f"{per_step(steps, unit, variant, size):.2f}" for unit in units for size in plan.sizes]
        table.add_row(VARIANTS[variant], *cells)
    for base in plan.variants[:-1]:
        differences = [per_step(steps, unit, "durable", size, over=base) for unit in units for size in plan.sizes]
        table.add_row(f"Durability over {VARIANTS[base]}", *(f"{value:+.2f}" for value in differences))
    ratios = [
        per_step(steps, unit, "durable", size) / per_step(steps, unit, "plain", size)
        for unit in units
        for size in plan.sizes
    ]
    table.add_row("Durability / plain", *(f"x {ratio:.2f}" for ratio in ratios), end_section=True)
    blanks = [""] * (len(plan.sizes) - 1)
    for name, label in (("tight", "bare commit, tight loop"), ("spaced", "bare commit, a step between")):
        cpu, wall = (f"{commits[name][unit]:.2f}" for unit in units)
        table.add_row(label, cpu, *blanks, wall, *blanks)
    console.print(table)
    cost, per_cycle = found["cost"], sum(commits["transactions_per_cycle"].values())
    console.print(
        f"A call costs {cost['cpu_ms']['call']:.2f} ms CPU ({cost['wall_ms']['call']:.2f} wall) over plain once,"
        f" in {commits['transactions_per_call']} transactions, and each step {cost['cpu_ms']['step']:.2f} ms CPU"
        f" ({cost['wall_ms']['step']:.2f} wall). A cycle has {per_cycle:g} transactions: as many bare commits, all of them"
        f" with fsync, would be {per_cycle / 2 * commits['tight']['cpu_ms']:.2f} ms CPU per step.\n"
    )


def show_resumes(plan: Plan, found: Found) -> None:
    """Print what happens after a kill."""
    times = found["resume"]
    table = new_table("Killed inside a tool: ms to the first live calls of a new process", plan.sizes, "tool", "model")
    units = ("tool_wall_ms", "model_wall_ms")
    for variant, label in (("plain", "plain, messages in memory"), ("durable", VARIANTS["durable"])):
        cells = [f"{times[variant][str(size)][unit]:.1f}" for unit in units for size in plan.sizes]
        table.add_row(label, *cells)
    over = [
        times["durable"][str(size)][unit] - times["plain"][str(size)][unit] for unit in units for size in plan.sizes
    ]
    table.add_row("Durability over plain", *(f"{value:+.1f}" for value in over))
    console.print(table, "")


def show_space(plan: Plan, found: Found) -> None:
    """Print what is stored and what is held."""
    steps, stored = found["steps"], found["stored_bytes"]
    table = new_table("Space", plan.sizes, "cycles")
    table.add_row("KB in the closed file", *(f"{stored[str(size)] / 1024:.0f}" for size in plan.sizes))
    table.add_row("  per cycle", *(f"{stored[str(size)] / 1024 / size:.2f}" for size in plan.sizes))
    growth = [kb_per_cycle(stored, *pair) for pair in zip((0, *plan.sizes), plan.sizes, strict=False)]
    table.add_row("  per cycle since the size before", *(f"{value:.2f}" for value in growth), end_section=True)
    for variant in plan.variants:
        peaks = [steps[variant][str(size)]["peak_rss_kb"] / 1024 for size in plan.sizes]
        table.add_row(f"peak memory in MB, {VARIANTS[variant]}", *(f"{peak:.1f}" for peak in peaks))
    for base in plan.variants[:-1]:
        over = [memory_over(steps, base, size) / 1024 for size in plan.sizes]
        table.add_row(f"  Durability over {VARIANTS[base]}", *(f"{value:+.1f}" for value in over))
    console.print(table, "")


def show_goals(rows: list[Found]) -> None:
    """Print what was reached."""
    table = Table(title="Goals", title_justify="left", title_style="bold")
    for column, justify in (("", "left"), ("measured", "right"), ("at most", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        word = "[green]pass[/]" if row["reached"] else "[red]fail[/]"
        table.add_row(row["goal"], *(f"{row[name]:.2f} {row['unit']}" for name in ("value", "limit")), word)
    console.print(table)


def show_dispatch(plan: Plan, found: Found) -> None:
    """Print what workers do on one file."""
    table = Table(
        title="Dispatch: executions of 11 steps on one file",
        title_justify="left",
        title_style="bold",
        show_header=False,
    )
    for name, value in dispatch.lines(found["dispatch"]):
        table.add_row(name, value)
    console.print(table, "")


def show_transfer(plan: Plan, found: Found) -> None:
    """Print what it costs to move an execution."""
    title = f"An execution of {found['transfer']['steps']:,} steps with results of 2 KB, as a file"
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    for name, value in transfer.lines(found["transfer"]):
        table.add_row(name, value)
    console.print(table, "")


def measure(plan: Plan) -> Found:
    """Measure everything."""
    steps = measure_steps(plan)
    resume, stored = measure_resumes(plan)
    found: Found = {"environment": environment(), "plan": vars(plan), "steps": steps}
    found["cost"] = {unit: split_cost(steps, unit) for unit in ("cpu_ms", "wall_ms")}
    found |= {"commits": measure_commits(plan, steps["plain"]), "resume": resume, "stored_bytes": stored}
    found["dispatch"] = dispatch.measure(quick=plan is QUICK)
    found["transfer"] = transfer.kept(quick=plan is QUICK)
    found["goals"] = goals(plan, found)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and keep the numbers as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="10 and 100 cycles only, in half a minute")
    plan = QUICK if parser.parse_args(arguments).quick else Plan()
    found = measure(plan)
    for show in (show_steps, show_resumes, show_space, show_dispatch, show_transfer):
        show(plan, found)
    show_goals(found["goals"])
    path = RESULTS / ("quick.json" if plan is QUICK else "last.json")
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    console.print(
        f"Kept in bench/results/{path.name}: " + ", ".join(f"{k} {v}" for k, v in found["environment"].items())
    )


if __name__ == "__main__":
    main()
