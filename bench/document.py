"""Copy measured numbers into the documents: `python -m bench.document`. No figure there is written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench import transfer
from bench.aws_lambda import tables as lambda_tables
from bench.dapr import tables as dapr_tables
from bench.dispatch import lines
from bench.encryption import rows_of
from bench.temporal import tables

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
_DOCUMENTS = ("benchmarks", "comparison", "engines", "export", "operating", "production", "ui")
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in _DOCUMENTS),
)
_BLOCK = re.compile(r"<!-- bench (\w+) -->\n.*?<!-- /bench -->", re.DOTALL)
_SYSTEMS = {
    "step": "ours, `durable.step`",
    "agent": "ours, steps of an agent",
    "dbos": "DBOS on SQLite",
    "langgraph": "LangGraph SqliteSaver, sync",
}


def _load(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _goals() -> str:
    rows = [
        [
            row["goal"].strip(),
            f"{row['value']:.2f} {row['unit']}",
            f"{row['limit']:g} {row['unit']}",
            "yes" if row["reached"] else "no",
        ]
        for row in _load("last")["goals"]
    ]
    return _table(["what", "measured", "at most", "reached"], rows)


def _steps() -> str:
    found, rows = _load("last")["steps"], []
    names = {"plain": "plain Strands", "quickened": "plain, our speed-ups", "durable": "with Durability"}
    for variant, name in names.items():
        cells = [f"{found[variant][str(n)]['cpu_ms'] / (2 * n + 1):.2f}" for n in (10, 100, 1000)]
        rows.append([name, *cells, f"{found[variant]['1000']['wall_ms'] / 1000:.0f} s"])
    return _table(["CPU ms per step", "10 cycles", "100", "1000", "1000 cycles take"], rows)


def _commits() -> str:
    found = _load("last")
    commits, cost = found["commits"], found["cost"]
    rows = [
        ["one bare SQLite commit with fsync, in a tight loop", f"{commits['tight']['cpu_ms']:.2f}"],
        ["the same, with the pauses of a real run between them", f"{commits['spaced']['cpu_ms']:.2f}"],
        ["a step over plain Strands, in calls of 10 cycles", f"{cost['cpu_ms']['step']:.2f}"],
        ["a call over plain Strands: lease, begin, end", f"{cost['cpu_ms']['call']:.2f}"],
    ]
    return _table(["CPU", "ms"], rows)


def _peers() -> str:
    found, rows = _load("peers")["systems"], []
    for system, name in _SYSTEMS.items():
        sizes = found[system]
        costs = [f"{sizes[n]['cpu_ms_per_step']:.2f}" for n in ("10", "100", "1000")]
        rows.append([name, *costs, f"{sizes['1000']['kb_per_step_of_2_kb']:.1f}", f"{sizes['1000']['resume_ms']:.0f}"])
    head = [
        "system",
        "CPU ms per step, 10",
        "100",
        "1000",
        "KB stored per 2 KB, 1000",
        "ms to the first new step, 1000",
    ]
    return _table(head, rows)


def _soak() -> str:
    found = _load("soak")
    return (
        f"{found['kills']} kills in {found['seconds']} s, {found['executions']} executions completed, "
        f"{found['effects']} effects audited: nothing lost, no finished step repeated. Then {found['fleet']['kills']} workers "
        f"killed under {found['fleet']['executions']} dispatched executions, audited the same way; "
        f"{found['fleet']['recoveries']}."
    )


def _chaos() -> str:
    found = _load("chaos")
    file, temporal = found["sqlite"], found["temporal"]
    median, most, longest = (f"{file[f'probe_{name}'] * 1000:.0f} ms" for name in ("median", "99", "longest"))
    return (
        f"SQLite: {file['executions']} executions in {file['seconds']} s under {_counted(file['strikes'])}. "
        f"A script beside them made {file['probe_steps']} steps: {median} between two steps in the median, "
        f"{most} at the 99th percentile, {longest} at most. {_frozen_writers(file)}\n\n"
        f"Temporal: {temporal['executions']} executions in {temporal['seconds']} s under {_counted(temporal['strikes'])}."
        + "".join(
            f"\n\nDapr on {name}: {dapr['executions']} executions in {dapr['seconds']} s under {_counted(dapr['strikes'])}; "
            f"{dapr['recoveries']}."
            for name, dapr in (("SQLite", found.get("dapr-sqlite")), ("PostgreSQL", found.get("dapr-postgres")))
            if dapr is not None
        )
    )


def _frozen_writers(file: dict[str, Any]) -> str:
    if not (number := file["frozen_writers"]):
        return "No worker was frozen inside a commit."
    longest = f"{file['probe_longest_behind_frozen_writer'] * 1000:.0f} ms"
    return (
        f"Workers that were frozen inside a commit, and held SQLite's lock until they thawed: {number}; "
        f"behind them it waited {longest} at most."
    )


def _counted(strikes: dict[str, int]) -> str:
    return ", ".join(f"{number} x {name}" for name, number in sorted(strikes.items()))


def _transfer() -> str:
    found = _load("transfer")
    return _table(
        [f"an execution of {found['steps']:,} steps", "measured"], [list(row) for row in transfer.lines(found)]
    )


def _dispatch() -> str:
    return _table(
        ["dispatch, executions of 11 steps", "measured"], [list(row) for row in lines(_load("last")["dispatch"])]
    )


def _encryption() -> str:
    return _table(["per step", "CPU ms", "wall ms", "size of the file"], rows_of(_load("encryption")))


def _prune() -> str:
    found = _load("prune")
    return (
        f"A pass of retention over {found['executions']:,} executions of 7 steps took {found['cpu_seconds']:.0f} s of CPU and "
        f"{found['seconds']:.0f} s, half of which it slept to let others write. Commits of a process beside it took "
        f"{found['commit_ms_median']:.1f} ms in the median and {found['commit_ms_longest']:.0f} ms at most. "
        f"The file had {found['mb_before']:,.0f} MB before and {found['mb_after']:.1f} MB after it."
    )


def _temporal(name: str) -> str:
    found = _load("temporal")
    missing = [label for side, label in tables.LABELS.items() if side not in found["sides"]]
    return _table(*tables.ALL[name](found)) + (
        f"\n\nNot measured in this run: {', '.join(missing)}." if missing else ""
    )


def _lambda(name: str) -> str:
    return _table(*lambda_tables.ALL[name](_load("lambda")))


def _dapr(name: str) -> str:
    return _table(*dapr_tables.ALL[name](_load("dapr")))


def _engines_weight() -> str:
    """Return the footprint of each engine; start-up is that of the server an engine needs besides the worker."""
    file, temporal = _load("last")["dispatch"], _load("temporal")["weight"]
    ours = temporal["workers"].get("ours", {})
    head = ["engine", "processes", "memory, MB", "start-up, s", "idle CPU, % of a core"]
    rows = [
        ["SQLite: a worker", "1", f"{file['memory']['worker_mb']:.0f}", "", f"{file['idle']['worker_percent']:.2f}"],
        [
            "Temporal: a worker",
            "1",
            *([f"{ours['memory_mb']:.0f}", "", f"{ours['cpu_percent']:.2f}"] if ours else [""] * 3),
        ],
        [
            "Temporal: a development server",
            "1",
            f"{temporal['server']['memory_mb']:.0f}",
            f"{temporal['start_s']:.1f}",
            f"{temporal['server']['cpu_percent']:.2f}",
        ],
    ]
    return _table(head, rows)


def _page() -> str:
    found = _load("page")
    rows = [
        [f"a bare `SELECT count(*)` of {found['executions']:,} executions", f"{found['bare_count_ms']:.0f}", ""],
        ["the first page of their list", f"{found['list_ms']:.0f}", f"{found['browser_ms']['list']:.0f}"],
        ["the same, by agent, status and the beginning of the id", f"{found['filtered_ms']:.0f}", ""],
        ["the inbox", f"{found['inbox_ms']:.0f}", ""],
        [
            f"the page of a run with {found['steps']:,} steps, {found['long_run_kb']} KB",
            f"{found['long_run_ms']:.0f}",
            f"{found['browser_ms']['long_run']:.0f}",
        ],
        ["its conversation", f"{found['conversation_ms']:.0f}", ""],
    ]
    return _table(["what", "ms", "until Chromium has drawn it, ms"], rows)


_MAKERS: dict[str, Callable[[], str]] = {
    "dispatch": _dispatch,
    "transfer": _transfer,
    "encryption": _encryption,
    "prune": _prune,
    "engines_weight": _engines_weight,
    "soak": _soak,
    "chaos": _chaos,
    "goals": _goals,
    "steps": _steps,
    "commits": _commits,
    "peers": _peers,
    "page": _page,
}
_MAKERS |= {f"temporal_{name}": partial(_temporal, name) for name in tables.ALL}
_MAKERS |= {f"lambda_{name}": partial(_lambda, name) for name in lambda_tables.ALL}
_MAKERS |= {f"dapr_{name}": partial(_dapr, name) for name in dapr_tables.ALL}


def filled(text: str) -> str:
    """Return a page with its tables brought up to date."""
    return _BLOCK.sub(lambda found: f"<!-- bench {found[1]} -->\n{_MAKERS[found[1]]()}\n<!-- /bench -->", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
