"""The findings as tables, for the terminal and for the documents. Needs no Dapr."""

from __future__ import annotations

import itertools
from typing import Any

Found = dict[str, Any]
Table = tuple[list[str], list[list[str]]]
LABELS = {
    "peer": "diagrid",
    "ours": "ours",
    "window": "ours, 40 messages",
    "silent": "ours, 40 messages, steps=off",
}
MAX_MS, MAX_KB, MAX_HISTORY_KB, MAX_TOLD_KB = 20.0, 1.5, 10.0, 150.0
"""The first three are goals of the design. The last one bounds a workflow that gets step events: we chose it for this bench."""


def cycle(found: Found) -> Table:
    """Return what a cycle takes and keeps."""
    head = ["side", "cycles", "ended", "ms per cycle", "of the last", "worker CPU ms", "sidecar CPU ms"]
    names = ("wall_ms_per_cycle", "last_wall_ms_per_cycle", "worker_cpu_ms_per_cycle", "sidecar_cpu_ms_per_cycle")
    rows = [
        [
            LABELS[side],
            f"{int(cycles):,}",
            size.get("error", "completed"),
            *(f"{size[name]:.1f}" for name in names),
            f"{size['kept_bytes'] / 1024 / size['cycles_done']:.2f}",
            f"{size['workflow_bytes'] / 1024:,.1f}",
        ]
        for cycles, side, size in _sizes(found)
    ]
    return [*head, "KB kept per cycle", "workflow, KB"], rows


def control(found: Found) -> Table:
    """Return what the agent with its whole conversation takes on Dapr, and without it."""
    given = found["control"]
    sides = {"ours": found["sides"]["ours"][str(given["cycles"])], "the same agent, inline on SQLite": given}
    rows = [
        [
            name,
            f"{given['cycles']:,}",
            *(f"{values[key]:.1f}" for key in ("worker_cpu_ms_per_cycle", "wall_ms_per_cycle", "machine_load")),
        ]
        for name, values in sides.items()
    ]
    return ["side", "cycles", "CPU ms per cycle", "wall ms per cycle", "load average"], rows


def takeover(found: Found) -> Table:
    """Return how soon another worker repeats the tool in which its worker was killed."""
    head = ["side", "cycles", "tool again, s", "next model call, s", "finished cycles repeated"]
    rows = [
        [
            LABELS[side],
            f"{int(cycles):,}",
            f"{size['takeover_s']:.2f}",
            f"{size['next_model_s']:.2f}",
            f"{size['cycles_repeated']:g}",
        ]
        for cycles, side, size in _sizes(found)
        if "error" not in size
    ]
    return head, rows


def memory(found: Found) -> Table:
    """Return what each process holds, idle and after the run."""
    head = ["side", "cycles", "worker, MB", "most", "sidecar", "after", "placement", "after", "scheduler", "after"]
    names = ("worker_idle", "worker_peak", *(f"{who}_{when}" for who in _OTHERS for when in ("idle", "after")))
    rows = [
        [LABELS[side], f"{int(cycles):,}", *(f"{size[f'{name}_mb']:.0f}" for name in names)]
        for cycles, side, size in _sizes(found)
    ]
    return head, rows


_OTHERS = ("sidecar", "placement", "scheduler")


def goals(found: Found) -> Table:
    """Return what was to be reached, and what was."""
    rows = [
        [row["goal"], f"{row['value']:g} {row['unit']}", f"{row['limit']:g} {row['unit']}", _word(row)]
        for row in goals_of(found)
    ]
    return ["what", "measured", "at most", "reached"], rows


def goals_of(found: Found) -> list[Found]:
    """Hold what was found against the goals; each of our sides has to reach them."""
    rows = []
    for side, sizes in found["sides"].items():
        if side == "peer":
            continue
        numbers = sorted(map(int, sizes))
        last, label = sizes[str(numbers[-1])], LABELS[side]
        for cycles in numbers:
            rows.append(
                _goal(f"a cycle, of {cycles:,}, {label}", sizes[str(cycles)]["wall_ms_per_cycle"], MAX_MS, "ms")
            )
        for first, second in itertools.pairwise(numbers):
            kept = growth(sizes, first, second) / 1024
            rows.append(_goal(f"kept per cycle, {first:,} to {second:,}, {label}", kept, MAX_KB, "KB"))
        limit = MAX_HISTORY_KB if side == "silent" else MAX_TOLD_KB
        size = last["workflow_bytes"] / 1024
        rows.append(_goal(f"workflow after {numbers[-1]:,} cycles, {label}", size, limit, "KB"))
    return rows


def growth(sizes: Found, first: int, last: int) -> float:
    """Return how many bytes a cycle adds between two sizes, without what is told to the workflow."""
    own = [sizes[str(each)]["kept_bytes"] - sizes[str(each)]["workflow_bytes"] for each in (first, last)]
    return float(own[1] - own[0]) / (last - first)


ALL = {"goals": goals, "cycle": cycle, "control": control, "takeover": takeover, "memory": memory}


def _goal(name: str, value: float, limit: float, unit: str) -> Found:
    return {"goal": name, "value": round(value, 2), "limit": limit, "unit": unit, "reached": value <= limit}


def _word(row: Found) -> str:
    return "yes" if row["reached"] else "no"


def _sizes(found: Found) -> list[tuple[str, str, Found]]:
    """Return the findings by size, the sides next to each other."""
    pairs = [(cycles, side, size) for side, sizes in found["sides"].items() for cycles, size in sizes.items()]
    return sorted(pairs, key=lambda pair: int(pair[0]))
