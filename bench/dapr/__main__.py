"""Our Dapr engine and diagrid's Strands runner, side by side on sidecars with a SQLite state store.

Here is what is measured, and in which order. This process starts Dapr and the workers, and reads their logs and the store.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.dapr import control, runs, tables
from bench.dapr.sides import SIDES
from bench.run import RESULTS, console, environment, medians, scratch, show_goals
from bench.workload import Found
from strands_durable.testing.dapr import build


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often each thing is measured."""

    sides: tuple[str, ...]
    sizes: tuple[int, ...] = (10, 100, 1000)
    rounds: dict[int, int] = field(default_factory=lambda: {10: 3, 100: 3})
    """Of the sizes that are measured more than once."""


def measure(plan: Plan, folder: Path, say: Callable[[str], None]) -> Found:
    """Measure every side at every size; the sides take turns."""
    found: Found = {side: {} for side in plan.sides}
    for cycles in plan.sizes:
        rounds: dict[str, list[Found]] = {side: [] for side in plan.sides}
        for number in range(plan.rounds.get(cycles, 1)):
            for side in plan.sides:
                say(f"{cycles} cycles, round {number + 1}: {SIDES[side].label}")
                rounds[side].append(runs.measure(SIDES[side], cycles, folder, f"{side}-{cycles}-{number}"))
        for side, measured in rounds.items():
            found[side][str(cycles)] = _together(side, measured)
    versions = {side: SIDES[side].versions() for side in plan.sides}
    said = {"environment": environment(), "versions": versions, "plan": vars(plan), "sides": found}
    return {**said, **measure_control(plan, folder, say)}


def measure_control(plan: Plan, folder: Path, say: Callable[[str], None]) -> Found:
    """Run the agent with its whole conversation without Dapr, at the largest size."""
    cycles = max(plan.sizes)
    say(f"{cycles} cycles: without Dapr")
    return {"control": {"cycles": cycles, **control.measure(cycles, folder)}}


def _together(side: str, measured: list[Found]) -> Found:
    """Return the medians; a run of the peer that does not end is a finding, ours must."""
    errors = [each["error"] for each in measured if "error" in each]
    if errors and SIDES[side].is_ours:
        raise SystemExit(f"bench: a run of ours has {errors[0]}")
    if not errors:
        return {"rounds": len(measured), **medians(measured)}
    return {"rounds": 1, **next(each for each in measured if "error" in each)}


def plan_from(given: argparse.Namespace) -> Plan:
    """Return what is to be measured; the peer is left out if it is not installed, and that is said."""
    sides = tuple(side for side in SIDES if SIDES[side].is_there)
    for side in SIDES.keys() - set(sides):
        print(f"bench.dapr: {SIDES[side].label} is not installed and not measured", file=sys.stderr)
    return Plan(sides=sides, sizes=(10, 100), rounds={}) if given.quick else Plan(sides=sides)


def show(found: Found) -> None:
    """Print all tables."""
    for name, make in tables.ALL.items():
        if name == "goals":
            continue
        head, rows = make(found)
        grid = Table()
        for at, column in enumerate(head):
            grid.add_column(column, justify="left" if at == 0 else "right")
        for row in rows:
            grid.add_row(*row)
        console.print(grid)
    show_goals(tables.goals_of(found))


def main() -> None:
    """Measure, print, and keep the numbers as JSON; those of a quick look are kept apart."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.dapr", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--quick", action="store_true", help="10 and 100 cycles only, once")
    parser.add_argument(
        "--control", action="store_true", help="only the agent without Dapr, beside the figures of before"
    )
    given = parser.parse_args()
    build()
    path = RESULTS / ("dapr-quick.json" if given.quick else "dapr.json")
    found: Found = json.loads(path.read_text()) if given.control else {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else what was started would outlive this process
    with scratch() as folder, console.status("Dapr") as status:
        take = measure_control if given.control else measure
        found |= take(plan_from(given), Path(folder), lambda text: status.update(text))
    found["goals"] = tables.goals_of(found)
    show(found)
    path.write_text(json.dumps(found, indent=2) + "\n")
    console.print(f"Kept in bench/results/{path.name}.")


if __name__ == "__main__":
    main()
