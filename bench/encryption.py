"""What encryption costs per step: the same run with and without a cipher, in turns: `python -m bench.encryption`."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from bench.run import RESULTS, environment, medians, new_table, scratch, steps_in
from bench.workload import Found, run_child

SIZES = (10, 100)
ROUNDS = 5
EXECUTIONS = {10: 20, 100: 2}
VARIANTS = {"durable": "in plain text", "encrypted": "encrypted"}
console = Console()


def measure() -> Found:
    """Time both variants one after the other in each round, and take medians; also what they store."""
    found: Found = {"environment": environment(), "steps": {}}
    for cycles in SIZES:
        raw: dict[str, list[Found]] = {variant: [] for variant in VARIANTS}
        for number in range(ROUNDS):
            for variant, rows in raw.items():
                with console.status(f"{cycles} cycles, round {number + 1} of {ROUNDS}: {variant}"), scratch() as folder:
                    given = {"variant": variant, "plan": [(cycles, EXECUTIONS[cycles])], "folder": folder}
                    timed = run_child("timed", **given)[str(cycles)]
                    rows.append({**timed, "bytes": sum(file.stat().st_size for file in Path(folder).glob("timed.db*"))})
        found["steps"][str(cycles)] = {variant: medians(rows) for variant, rows in raw.items()}
    return found


def rows_of(found: Found) -> list[list[str]]:
    """Return label, CPU, wall and stored bytes per step, by cycles."""
    rows = []
    for cycles, both in found["steps"].items():
        number = steps_in(int(cycles))
        per_step = {
            variant: (values["cpu_ms"] / number, values["wall_ms"] / number, values["bytes"])
            for variant, values in both.items()
        }
        for variant, (cpu, wall, _) in per_step.items():
            rows.append([f"{cycles} cycles, {VARIANTS[variant]}", f"{cpu:.3f}", f"{wall:.3f}", ""])
        ratios = [after / before for after, before in zip(per_step["encrypted"], per_step["durable"], strict=True)]
        rows.append([f"{cycles} cycles, encrypted / plain text", *(f"x {ratio:.2f}" for ratio in ratios)])
    return rows


def main() -> None:
    """Measure, print, and keep the numbers as JSON."""
    found = measure()
    table = new_table("Milliseconds per step with Durability, and size of the file", ("",), "CPU", "wall", "bytes")
    for row in rows_of(found):
        table.add_row(*row)
    console.print(table)
    (RESULTS / "encryption.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
