"""Workers on Temporal that die once at a given point of an execution.

A point belongs to an execution, not to a process: several executions may run in one, and each resumes in another.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from temporalio import activity

from strands_durable import connect
from strands_durable._dispatch.quarantine import QuarantineProcess
from strands_durable._records import crash_points
from strands_durable.backends.temporal import TemporalBackend
from tests.crash import crew

_counts: Counter[tuple[str, str]] = Counter()


class NoQuarantine(QuarantineProcess):
    """Runs no suspected executions: that is left to other workers."""

    def begin(self) -> None: ...


def lay(folder: Path, execution_id: str, point: str) -> None:
    """Make the worker that runs an execution die at a point of it."""
    (folder / f"{execution_id}.mine").write_text(point)


def has_blown(folder: Path, execution_id: str) -> bool:
    """Return True if a worker has died at the point of an execution."""
    return (folder / f"{execution_id}.blown").exists()


def reached(folder: Path, execution_id: str) -> list[str]:
    """Return the points that an execution has reached, in order."""
    path = folder / f"{execution_id}.points"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _listen(folder: Path, prefix: str, name: str) -> None:
    if not activity.in_activity():
        return
    pass_point(folder, (activity.info().workflow_id or "").removeprefix(prefix), name)


def pass_point(folder: Path, execution_id: str, name: str) -> None:
    """Note that an execution has reached a point, and die there if it was laid."""
    _counts[execution_id, name] += 1
    point = f"{name}@{_counts[execution_id, name]}"
    with (folder / f"{execution_id}.points").open("a") as file:
        file.write(json.dumps(point) + "\n")
    mine = folder / f"{execution_id}.mine"
    if not mine.exists() or mine.read_text() != point:
        return
    try:
        (folder / f"{execution_id}.blown").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def serve(url: str, folder: str, concurrency: int = 10, is_heir: bool = True) -> None:
    """Be a worker; an heir takes what others have left, too, and does so beside its other executions."""
    os.environ["LEDGER"] = str(Path(folder) / "ledger.jsonl")
    os.chdir(folder)
    backend = connect(url)
    assert isinstance(backend, TemporalBackend)
    assert crew.traveller

    def listener(name: str) -> None:
        _listen(Path(folder), backend.config.prefix, name)

    more: dict[str, Any] = {} if is_heir else {"quarantine": NoQuarantine([])}
    crash_points.listen(listener)
    asyncio.run(backend._work(concurrency, 25, asyncio.Event(), **more))
