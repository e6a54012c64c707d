"""A fork at every finished step of a program, run to its end: it ends like its origin, and what was before is not run."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from strands_durable import connect
from tests.crash.scenarios import Ledger
from tests.features import harness
from tests.features.harness import Feature, play
from tests.processes import run

FORK = "fork"
ASKS_AGAIN = {"a swarm in a graph that asks a person": 8}
"""Steps after which a call inside another waits for a person, and the outer one does not know yet. What the inner one asked is
no longer on record once it was answered: it asks again, and the usage of its orchestrator counts that visit, too."""


def fork_everywhere(found: Feature, folder: Path) -> int:
    """Fork the program at each of its finished steps; return their number."""
    with nullcontext() if found.around is None else found.around(folder):
        whole, origin = folder / "whole", folder / "origin"
        whole.mkdir()
        expected = run(play, found.module, found.name, str(whole)).checked()["found"]
        numbers = _numbers(whole)
        shutil.copytree(whole, origin)
        for number in numbers:
            shutil.rmtree(whole)  # servers know the program by the name of its folder
            shutil.copytree(origin, whole)
            ended = run(play_fork, found.module, found.name, str(whole), number).checked()
            assert ended == expected or ASKS_AGAIN.get(found.name) == number, f"forked at {number}"
            if not found.lossy:
                _audit(whole, number)
        return len(numbers)


def play_fork(module: str, name: str, folder: str, number: int) -> Any:
    """Fork the execution of a program that has run in a folder, and run the program as the fork."""
    os.chdir(folder)
    asyncio.run(_fork(number))
    harness.execution_id = FORK
    return play(module, name, folder)["found"]


async def _fork(number: int) -> None:
    handle = await connect("sqlite:///runs.db?worker=off").get("trip")
    await handle.fork(at=number, execution_id=FORK)


def _numbers(folder: Path) -> list[int]:
    return [0, *sorted(number for _, _, number in _steps(folder, "trip") if number is not None)]


def _steps(folder: Path, execution_id: str) -> list[tuple[str, str, int | None]]:
    """Return full key, status and number of each attempt of each step of the current run."""
    query = (
        "SELECT c.scope || '#' || c.position || '/' || s.key, s.status, s.number FROM steps s JOIN calls c ON c.id = s.call"
        " JOIN executions e ON e.id = c.execution AND e.run = c.run WHERE e.execution_id = ?"
    )
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        return connection.execute(query, (execution_id,)).fetchall()


def _audit(folder: Path, number: int) -> None:
    """Fail if a step that had finished was done again, one that had not is missing, or a key of the origin was used again."""
    entries = Ledger(folder / "ledger.jsonl").read()
    made: dict[str, set[str]] = {"trip": set(), FORK: set()}
    keys: dict[str, set[str]] = {"trip": set(), FORK: set()}
    for entry in entries:
        made[entry["execution_id"]].add(entry["key"])
        keys[entry["execution_id"]].add(entry.get("idempotency_key", f"none of {entry['execution_id']}"))
    steps = _steps(folder, "trip")
    finished = {key for key, status, ended in steps if status == "done" and ended is not None and ended <= number}
    assert not made[FORK] & finished, f"forked at {number}: done again"
    left = made["trip"] - finished - {key for key, status, _ in steps if status == "unstorable"}
    assert made[FORK] >= left, f"forked at {number}: lost {left - made[FORK]}"
    assert not keys["trip"] & keys[FORK], f"forked at {number}: idempotency keys of the origin"
