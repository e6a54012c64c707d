"""The findings as tables, for the terminal and for the documents. Needs no Temporal."""

from __future__ import annotations

from typing import Any

from rich.table import Table as Grid

from bench.run import console

Found = dict[str, Any]
Table = tuple[list[str], list[list[str]]]
LABELS = {"official": "official plugin", "ours": "ours"}
_MB, _DAY = 1024 * 1024, 86400


def history(found: Found) -> Table:
    """Return what is kept of a run, and what a cycle takes."""
    head = ["side", "cycles", "ended", "runs", "events", "history, MB", "largest run, MB", "ms per cycle"]
    rows = [
        [
            LABELS[side],
            f"{int(cycles):,}",
            _ended(size),
            f"{size['runs']:g}",
            f"{size['events']:,.0f}",
            f"{size['history_bytes'] / _MB:.2f}",
            f"{size['largest_run_bytes'] / _MB:.2f}",
            f"{size['wall_ms_per_cycle']:.0f}",
            f"{size['last_wall_ms_per_cycle']:.0f}",
            f"{size['worker_cpu_ms_per_cycle']:.0f}",
            f"{size['server_cpu_ms_per_cycle']:.0f}",
        ]
        for cycles, side, size in _sizes(found)
    ]
    return [*head, "of the last ten", "worker CPU ms per cycle", "server CPU ms per cycle"], rows


def pace(found: Found) -> Table:
    """Return what a cycle takes where a model takes its time."""
    head = ["side", "a model call takes, s", "rest of the cycle, ms"]
    seconds = found["plan"]["model_seconds"]
    rows = [[LABELS[side], f"{seconds:g}", f"{values['beside_ms']:.0f}"] for side, values in found["pace"].items()]
    return head, rows


def memory(found: Found) -> Table:
    """Return what is held, and how long a cold replay takes."""
    head = ["side", "cycles", "worker, peak MB", "server before, MB", "after, MB", "growth of server's file, MB"]
    rows = [
        [
            LABELS[side],
            f"{int(cycles):,}",
            f"{size['worker_peak_mb']:.0f}",
            f"{size['server_before_mb']:.0f}",
            f"{size['server_after_mb']:.0f}",
            f"{size['stored_bytes'] / _MB:.1f}",
            f"{size['replay_call_s']:.2f}",
            f"{size['replay_process_s']:.2f}",
        ]
        for cycles, side, size in _sizes(found)
    ]
    return [*head, "cold replay, s", "replay process, s"], rows


def kills(found: Found) -> Table:
    """Return how soon a run resumes after its worker was killed."""
    head = ["side", "cycles", "killed in", "next step, s", "the step after it, s", "steps"]
    rows = [
        [
            LABELS[side],
            f"{int(cycles):,}",
            kill["killed_in"],
            f"{kill['first_step_s']:.1f}",
            f"{kill['second_step_s']:.1f}",
            f"{kill['first_step']}, {kill['second_step']}",
        ]
        for cycles, side, size in _sizes(found)
        for kill in size["kills"].values()
    ]
    return head, rows


def timeouts(found: Found) -> Table:
    """Return the timeouts of each kind of task, as recorded in the histories."""
    head = ["side", "task", "at most, s", "heartbeat, s", "attempts", "retry after, s"]
    rows = []
    for side, sizes in found["sides"].items():
        by_task: Found = {task: values for size in sizes.values() for task, values in size["timeouts"].items()}
        for task, values in by_task.items():
            attempts = "" if "attempts" not in values else f"{values['attempts'] or 'any number'}"
            numbers = [_seconds(values.get(name)) for name in ("start_to_close_s", "heartbeat_s", "retry_after_s")]
            rows.append([LABELS[side], f"`{task}`", *numbers[:2], attempts, numbers[2]])
    return head, rows


def weight(found: Found) -> Table:
    """Return what the engine costs before anything runs on it."""
    weighed, seconds = found["weight"], found["plan"]["idle_seconds"]
    rows = [
        ["the server starts in", f"{weighed['start_s']:.2f} s"],
        ["memory of the idle server", f"{weighed['server']['memory_mb']:.0f} MB"],
        [f"CPU of the idle server, over {seconds:g} s", f"{weighed['server']['cpu_percent']:.1f} % of a core"],
    ]
    for side, worker in weighed["workers"].items():
        rows += [
            [f"memory of an idle worker, {LABELS[side]}", f"{worker['memory_mb']:.0f} MB"],
            [f"CPU of an idle worker, {LABELS[side]}", f"{worker['cpu_percent']:.1f} % of a core"],
            [f"CPU of the server meanwhile, {LABELS[side]}", f"{worker['server_cpu_percent']:.1f} % of a core"],
        ]
    return ["the engine", "measured"], rows


ALL = {"history": history, "pace": pace, "memory": memory, "kills": kills, "timeouts": timeouts, "weight": weight}


def show(found: Found) -> None:
    """Print all of them."""
    for make in ALL.values():
        head, rows = make(found)
        grid = Grid()
        for at, column in enumerate(head):
            grid.add_column(column, justify="left" if at == 0 else "right")
        for row in rows:
            grid.add_row(*row)
        console.print(grid)


def _sizes(found: Found) -> list[tuple[str, str, Found]]:
    """Return the findings by size, the sides next to each other."""
    pairs = [(cycles, side, size) for side, sizes in found["sides"].items() for cycles, size in sizes.items()]
    return sorted(pairs, key=lambda pair: int(pair[0]))


def _ended(size: Found) -> str:
    if size["status"] == "COMPLETED":
        return "completed"
    why = f" ({size['reason']})" if size["reason"] else ""
    return f"{size['status'].lower()} at {size['cycles_done']:g} cycles{why}"


def _seconds(value: float | None) -> str:
    if not value:
        return ""
    return f"{value:g}" if value < _DAY else f"{value / _DAY:,.0f} days"
