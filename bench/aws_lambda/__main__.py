"""Our Lambda engine and pydantic-ai's AWS Lambda durability, side by side on AWS's local runner.

Here is what is measured, and in which order. This process is the runner and measures; functions run beside it.
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

from bench.aws_lambda import runs, tables
from bench.aws_lambda.sides import SIDES
from bench.run import RESULTS, console, environment, medians, scratch, show_goals
from bench.workload import Found

PACKAGES = {
    "ours": ("aws-durable-execution-sdk-python", "aws-durable-execution-sdk-python-testing", "boto3"),
    "peer": ("aws-durable-execution-sdk-python", "pydantic-ai-harness", "pydantic-ai-slim", "boto3"),
}


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
            found[side][str(cycles)] = _together(measured)
    versions = {side: SIDES[side].versions(*PACKAGES[side]) for side in PACKAGES if side in plan.sides}
    return {"environment": environment(), "versions": versions, "plan": vars(plan), "sides": found}


def _together(measured: list[Found]) -> Found:
    statuses = {each.pop("status") for each in measured}
    if statuses != {"SUCCEEDED"}:
        raise SystemExit(f"bench: a run ended as {statuses}")
    return {"rounds": len(measured), **medians(measured)}


def measure_long(plan: Plan, folder: Path, say: Callable[[str], None]) -> Found:
    """Run far more cycles than one durable execution may have."""
    cycles, side = tables.LONG_CYCLES, SIDES["window"]
    say(f"{cycles} cycles: {side.label}")
    run = runs.measure(side, cycles, folder, "long", is_killed=False)
    return {
        "long": {"cycles": cycles, **run, "environment": environment(), "versions": side.versions(*PACKAGES["ours"])}
    }


def plan_from(given: argparse.Namespace) -> Plan:
    """Return what is to be measured; the peer is left out if it is not installed, and that is said."""
    sides = tuple(side for side in SIDES if SIDES[side].is_there)
    for side in SIDES.keys() - set(sides):
        print(f"bench.aws_lambda: {SIDES[side].label} is not installed and not measured", file=sys.stderr)
    return Plan(sides=sides, sizes=(10, 100), rounds={}) if given.quick else Plan(sides=sides)


def show(found: Found) -> None:
    """Print all tables."""
    for name, make in tables.ALL.items():
        head, rows = make(found)
        if not rows or name == "goals":
            continue
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
        prog="python -m bench.aws_lambda", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--quick", action="store_true", help="10 and 100 cycles only, once")
    parser.add_argument(
        "--long", action="store_true", help=f"{tables.LONG_CYCLES:,} cycles of ours in one run, instead"
    )
    given = parser.parse_args()
    path = RESULTS / ("lambda-quick.json" if given.quick else "lambda.json")
    found: Found = json.loads(path.read_text()) if path.exists() else {"sides": {}}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else what was started would outlive this process
    with scratch() as folder, console.status("a runner") as status:
        found |= (measure_long if given.long else measure)(
            plan_from(given), Path(folder), lambda text: status.update(text)
        )
    found["goals"] = tables.goals_of(found)
    show(found)
    path.write_text(json.dumps(found, indent=2) + "\n")
    console.print(f"Kept in bench/results/{path.name}.")


if __name__ == "__main__":
    main()
