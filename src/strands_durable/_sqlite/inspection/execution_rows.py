"""The record of an execution from a row of the store, and from what is left of a damaged one. Knows no Strands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ..._journal.owner import Owner, seems_alive
from ..._journal.unreadable import reading
from ..._records.codec import peek
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.origins import IMPORTED, PART, ImportOrigin, Origin
from ..._records.spec import AgentSpec
from ..._records.views import ERROR_LENGTH, short
from ...errors import UnreadableError
from ..blobs import shown
from .totals import Totals


def execution_of(row: Any, totals: Totals | None, *, is_alive: bool = False) -> ExecutionRecord:
    """Return what ``ls`` shows of an execution; what cannot be read of it is said, and is no reason to show nothing."""
    damage: list[str] = []
    with judging(damage):
        return _readable(row, totals or Totals(), is_alive)
    execution_id, kind, status, run, created_at, updated_at = row[1:7]
    return ExecutionRecord(
        execution_id=words(execution_id),
        kind=words(kind),
        status=ExecutionStatus(status) if status in list(ExecutionStatus) else ExecutionStatus.FAILED,
        run=run if isinstance(run, int) else 0,
        calls=row[9],
        steps=row[10],
        owner=None,
        created_at=_number(created_at),
        updated_at=_number(updated_at),
        agent=None if row[12] is None else words(row[12]),
        unreadable=damage[0],
    )


@contextmanager
def judging(reasons: list[str]) -> Iterator[None]:
    """Read something that may be damaged; then the reason is added to the list."""
    try:
        with reading():
            yield
    except UnreadableError as error:
        reasons.append(short(error.reason, ERROR_LENGTH))


def words(found: Any) -> str:
    """Return a text that may be damaged."""
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def _number(found: Any) -> float:
    return float(found) if isinstance(found, (int, float)) else 0.0


@lru_cache(maxsize=64)
def _read_spec(text: str) -> AgentSpec:
    """Executions of one agent have one spec: it is read once."""
    return AgentSpec.from_json(peek(shown(text)))


def _readable(row: Any, totals: Totals, is_alive: bool) -> ExecutionRecord:
    _, execution_id, kind, status, run, created_at, updated_at, owner, lease_until, calls, steps, last, *rest = row
    agent, note, is_cancelling, spec, given, prompt, tags, is_held, contents_removed_at, origins, damage = rest
    if damage is not None:
        raise UnreadableError(damage)
    if spec is not None:
        _read_spec(spec)
    for text in (given, prompt):
        if text is not None:
            peek(shown(text))
    # A clock that is set back: the list is in the order of its index, and a cursor names a place in that order.
    changed_at = max(updated_at, last) if status == ExecutionStatus.RUNNING.value else updated_at
    comes_from = json.loads(origins)
    origin = Origin.from_text(comes_from[PART]) if PART in comes_from else None
    since = 0.0 if origin is None else origin.forked_at  # what a fork has copied took no time of its own
    return ExecutionRecord(
        execution_id=execution_id,
        kind=kind,
        status=ExecutionStatus(status),
        run=run,
        calls=calls,
        steps=steps,
        owner=_living(owner, lease_until, is_alive),
        created_at=created_at,
        updated_at=changed_at,
        agent=agent,
        note=note,
        is_cancelling=bool(is_cancelling),
        tags=dict(sorted(json.loads(tags).items())),
        is_held=bool(is_held),
        contents_removed_at=contents_removed_at,
        tokens=totals.tokens,
        duration_seconds=totals.seconds_until(changed_at, since),
        waited_seconds=totals.waited_seconds(since),
        tool_errors=totals.tool_errors,
        origin=origin,
        imported=ImportOrigin.from_text(comes_from[IMPORTED]) if IMPORTED in comes_from else None,
    )


def _living(owner: str | None, lease_until: object, is_alive: bool) -> str | None:
    """Return the owner if it is or seems to be alive."""
    found = None if owner is None else Owner.parse(words(owner))
    return str(found) if found is not None and (is_alive or seems_alive(found, lease_until)) else None
