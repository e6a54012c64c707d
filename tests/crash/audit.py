"""Compare the outside ledger with the journal: nothing finished was done again, and nothing was lost."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.crash.scenarios import Ledger


def audit(folder: Path, execution_id: str, expected_keys: set[str], entries: list[Any] | None = None) -> None:
    """Fail if an effect is missing, or was repeated after its step had finished."""
    if entries is None:
        entries = Ledger(folder / "ledger.jsonl").read()
    attempts = recorded_attempts(folder / "runs.db", execution_id)
    done_by_key: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        done_by_key[entry["key"]].append(entry["attempt"])
    assert set(done_by_key) >= expected_keys, f"lost: {expected_keys - set(done_by_key)}"
    for key, made in done_by_key.items():
        statuses = attempts[key]
        assert len(set(made)) == len(made), f"{key}: attempt made twice: {made}"
        finished = min((attempt for attempt, status in statuses.items() if status == "done"), default=None)
        assert finished is not None, f"{key}: no attempt finished: {statuses}"
        later = [attempt for attempt in made if attempt > finished]
        assert not later, f"{key}: done again after it had finished: attempts {made}, recorded {statuses}"


def recorded_attempts(path: Path, execution_id: str) -> dict[str, dict[int, str]]:
    """Return the status of each attempt, by full key."""
    connection = sqlite3.connect(path)
    rows: list[Any] = connection.execute(
        "SELECT calls.scope, calls.position, steps.key, steps.attempt, steps.status FROM steps"
        " JOIN calls ON calls.id = steps.call JOIN executions ON executions.id = calls.execution"
        " WHERE executions.execution_id = ?",
        (execution_id,),
    ).fetchall()
    connection.close()
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for scope, position, key, attempt, status in rows:
        found[f"{scope}#{position}/{key}"][attempt] = status
    return found
