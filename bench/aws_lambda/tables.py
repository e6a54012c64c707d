"""The findings as tables, for the terminal and for the documents. Needs nothing of AWS."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Found = dict[str, Any]
Table = tuple[list[str], list[list[str]]]
LABELS = {"peer": "pydantic-ai", "ours": "ours", "window": "ours, 40 messages"}
MAX_OPERATIONS, MAX_KB, MAX_HEAD_SECONDS, LONG_CYCLES = 2.0, 3.0, 0.4, 10_000


def cycle(found: Found) -> Table:
    """Return what a cycle records and asks for: from one size to the next, without what each run has once."""
    head = ["side", "cycles", "operations per cycle", "calls", "KB recorded", "CPU ms", "wall ms", "of the last"]
    rows = [
        [
            LABELS[side],
            f"{first:,} to {last:,}",
            f"{growth(sizes, 'operations', first, last):.2f}",
            f"{growth(sizes, 'calls', first, last):.2f}",
            f"{growth(sizes, 'recorded_bytes', first, last) / 1024:.2f}",
            f"{sizes[str(last)]['cpu_ms_per_cycle']:.0f}",
            f"{sizes[str(last)]['wall_ms_per_cycle']:.0f}",
            f"{sizes[str(last)]['last_wall_ms_per_cycle']:.0f}",
        ]
        for first, last, side, sizes in _steps(found)
    ]
    return head, rows


def heads(found: Found) -> Table:
    """Return how long the invocation after a kill takes."""
    head = ["side", "cycles", "event, MB", "to the head, ms", "CPU", "to the next step, ms", "CPU"]
    rows = [
        [
            LABELS[side],
            f"{int(cycles):,}",
            f"{size['event_bytes'] / 1024**2:.2f}",
            *(f"{size[name]:.0f}" for name in ("head_wall_ms", "head_cpu_ms", "step_wall_ms", "step_cpu_ms")),
        ]
        for cycles, side, size in _sizes(found)
    ]
    return head, rows


def long(found: Found) -> Table:
    """Return how a very long run went."""
    run = found.get("long")
    if not run:
        return ["a long run", "measured"], []
    rows = [
        ["cycles, each once", f"{run['cycles_done'] - run['cycles_repeated']:,}"],
        ["status", run["status"]],
        ["durable executions, one after the other", f"{run['executions']}"],
        ["invocations", f"{run['invocations']}"],
        ["operations in all, and in the largest", f"{run['operations']:,}, {run['most_operations']:,}"],
        ["MB recorded in all, and in the largest", f"{run['recorded_bytes'] / 1e6:.1f}, {run['most_bytes'] / 1e6:.1f}"],
        ["calls per cycle", f"{run['calls'] / run['cycles_done']:.2f}"],
        ["input of the largest, MB", f"{run['most_input_bytes'] / 1e6:.2f}"],
        ["CPU ms per cycle; of the first hundred, of the last", _cpu(run)],
        ["wall ms per cycle", f"{run['wall_ms_per_cycle']:.0f}"],
        ["longest cycle, from one durable execution to the next, s", f"{run['longest_s']:.1f}"],
    ]
    return [f"{LABELS['window']}, {run['cycles']:,} cycles", "measured"], rows


def goals(found: Found) -> Table:
    """Return what was to be reached, and what was."""
    rows = [
        [row["goal"], f"{row['value']:g} {row['unit']}".strip(), f"{row['limit']:g} {row['unit']}".strip(), _word(row)]
        for row in goals_of(found)
    ]
    return ["what", "measured", "at most", "reached"], rows


def goals_of(found: Found) -> list[Found]:
    """Hold what was found against the goals; each of our sides has to reach them."""
    ours = {side: sizes for side, sizes in found["sides"].items() if side != "peer"}
    numbers = sorted(int(cycles) for sizes in ours.values() for cycles in sizes)
    rows = []
    for side, sizes in ours.items():
        first, last = sorted(map(int, sizes))[-2:]
        span = f"{first:,} to {last:,} cycles, {LABELS[side]}"
        rows.append(_goal(f"operations per cycle, {span}", growth(sizes, "operations", first, last), MAX_OPERATIONS))
        size = growth(sizes, "recorded_bytes", first, last) / 1024
        rows.append(_goal(f"recorded per cycle, {span}", size, MAX_KB, "KB"))
        seconds = sizes[str(numbers[-1])]["step_wall_ms"] / 1000
        rows.append(_goal(f"to the next step at {last:,} cycles, {LABELS[side]}", seconds, MAX_HEAD_SECONDS, "s"))
    run = found.get("long")
    if run:
        missing = run["cycles"] - run["cycles_done"] + run["cycles_repeated"] + (run["status"] != "SUCCEEDED")
        rows.append(_goal(f"missing or repeated of {run['cycles']:,} cycles", missing, 0, "cycles"))
    return rows


def growth(sizes: Found, name: str, first: int, last: int) -> float:
    """Return by how much something grows per cycle between two sizes."""
    return float(sizes[str(last)][name] - sizes[str(first)][name]) / (last - first)


ALL = {"goals": goals, "cycle": cycle, "heads": heads, "long": long}


def _goal(name: str, value: float, limit: float, unit: str = "") -> Found:
    return {"goal": name, "value": round(value, 2), "limit": limit, "unit": unit, "reached": value <= limit}


def _word(row: Found) -> str:
    return "yes" if row["reached"] else "no"


def _cpu(run: Found) -> str:
    every, first, last = (run[f"{part}cpu_ms_per_cycle"] for part in ("", "first_", "last_"))
    return f"{every:.0f}; {first:.0f}, {last:.0f}"


def _sizes(found: Found) -> list[tuple[str, str, Found]]:
    pairs = [(cycles, side, size) for side, sizes in found["sides"].items() for cycles, size in sizes.items()]
    return sorted(pairs, key=lambda pair: int(pair[0]))


def _steps(found: Found) -> Iterator[tuple[int, int, str, Found]]:
    """Yield each pair of neighbouring sizes, the sides next to each other."""
    numbers = sorted({int(cycles) for sizes in found["sides"].values() for cycles in sizes})
    for first, last in itertools.pairwise(numbers):
        for side, sizes in found["sides"].items():
            if str(first) in sizes and str(last) in sizes:
                yield first, last, side, sizes
