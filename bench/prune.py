"""Retention over a large file: `python -m bench.prune`.

100,000 finished executions of three cycles each, with their conversations, are removed in one pass, beside a process that makes
one small commit after the other: how long the pass takes, how long a commit waits at most, and how small the file becomes.
Figures are printed, and written to results/prune.json.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from strands_durable import Retention, connect
from strands_durable._sqlite.verification import verified

from . import page

RESULT = Path(__file__).parent / "results" / "prune.json"
_FAR = 1_000_000
"""What `page` adds to the ids of copies."""
_KEPT = "survivor"


async def _run(url: str) -> None:
    backend = connect(url)
    for execution_id in ("short", _KEPT):
        handle = await backend.dispatch(page.reader.spec_with(cycles=3), "Read", execution_id=execution_id)
        await handle.result()
    await (await backend.get(_KEPT)).hold()
    await backend.close()


def _fill(path: Path) -> None:
    """Make many finished executions of one, with everything that is recorded of it."""
    page._fill(path)
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT id FROM executions WHERE execution_id = 'short'").fetchone()
    calls = f"(SELECT id FROM calls WHERE execution = {found})"

    def of_call(column: str) -> Any:
        return lambda row, number: row.update({column: _FAR + number})

    page._copy(connection, "messages", f"lineage IN {calls}", of_call("lineage"))
    for table in ("heads", "past_heads"):
        page._copy(connection, table, f"call IN {calls}", of_call("call"))
    connection.execute(f"UPDATE calls SET lineage = id WHERE id > {_FAR}")
    connection.commit()
    connection.close()


def _commit_all_the_time(path: str, pipe: Connection) -> None:
    """Commit small changes until told to stop; send how long each took, in seconds."""
    took = []
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA synchronous = FULL")
    while not pipe.poll():
        began = time.perf_counter()
        connection.execute("UPDATE executions SET beat = beat + 1 WHERE execution_id = ?", (_KEPT,))
        took.append(time.perf_counter() - began)
        time.sleep(0.005)
    pipe.send(took)


def _measured(path: Path) -> dict[str, float]:
    ours, theirs = multiprocessing.Pipe()
    writer = multiprocessing.get_context("spawn").Process(target=_commit_all_the_time, args=(str(path), theirs))
    writer.start()
    time.sleep(2)
    before, cpu, began = path.stat().st_size, time.process_time(), time.perf_counter()
    found = connect(f"sqlite:///{path}?worker=off").sync.prune(Retention(completed=0))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    ours.send("stop")
    waits = ours.recv()
    writer.join()
    assert found.removed == page.EXECUTIONS
    assert found.held == 1
    return {
        "executions": found.removed,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "ms_per_execution": round(1000 * seconds / found.removed, 3),
        "commits_beside": len(waits),
        "commit_ms_median": round(1000 * statistics.median(waits), 2),
        "commit_ms_longest": round(1000 * max(waits), 1),
        "mb_before": round(before / (1 << 20), 1),
        "mb_after": round(path.stat().st_size / (1 << 20), 1),
    }


def main() -> None:
    """Measure, print and record."""
    page.EXECUTIONS = int(os.environ.get("EXECUTIONS", page.EXECUTIONS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        asyncio.run(_run(f"sqlite:///{path}"))
        _fill(path)
        found = _measured(path)
        assert [each.execution_id for each in connect(f"sqlite:///{path}?worker=off").sync.list()] == [_KEPT]
        assert not [each for each in verified(path).problems if each.check != "format"]  # ANALYZE has added tables
    for name, value in found.items():
        print(f"{name:20} {value:>12}")
    if page.EXECUTIONS == 100_000:
        RESULT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
