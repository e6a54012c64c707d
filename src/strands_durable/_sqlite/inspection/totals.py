"""What an execution has used so far: tokens and time, summed over the rows of its current run."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..._records.executions import TokenUsage

_USAGE = """
SELECT c.execution, s.usage FROM calls c JOIN executions e ON e.id = c.execution JOIN verified_steps s ON s.call = c.id
WHERE e.id IN (SELECT value FROM json_each(?)) AND c.run = e.run AND s.usage IS NOT NULL
"""
_TIMES = """
SELECT c.execution, c.started_at, c.ended_at FROM executions e JOIN calls c ON c.execution = e.id AND c.run = e.run
WHERE e.id IN (SELECT value FROM json_each(?)) AND +c.parent = 0 AND c.status <> 'PENDING'
"""
_NAMES = ("inputTokens", "outputTokens", "totalTokens")


@dataclass(kw_only=True)
class Totals:
    """What one execution has used."""

    usages: list[dict[str, int]] = field(default_factory=list)
    times: list[tuple[float, float | None]] = field(default_factory=list)
    """When each root call began, and when it ended."""

    @property
    def tokens(self) -> TokenUsage | None:
        """The tokens of all model calls; None if none has said."""
        if not self.usages:
            return None
        sums = (sum(_number(usage, name) for usage in self.usages) for name in _NAMES)
        return TokenUsage(**dict(zip(("input", "output", "total"), sums, strict=True)))

    def seconds_until(self, changed_at: float) -> float | None:
        """The time that all root calls took; one that has not ended, until the execution changed last."""
        ends = [max(0.0, (changed_at if ended is None else ended) - began) for began, ended in self.times]
        return sum(ends) if ends else None


def _number(usage: Any, name: str) -> int:
    """Return a count of a model's usage; a model of the user's own may report anything, which is no damage."""
    found = usage.get(name) if isinstance(usage, dict) else None
    return found if isinstance(found, int) else 0


def totals_of(connection: sqlite3.Connection, row_ids: Iterable[int]) -> dict[int, Totals]:
    """Return what these executions have used; nothing of one whose rows are damaged."""
    ids, found = list(row_ids), defaultdict[int, Totals](Totals)
    try:
        given = json.dumps(ids)
        for row_id, usage in connection.execute(_USAGE, (given,)):
            found[row_id].usages.append(json.loads(usage))
        for row_id, *times in connection.execute(_TIMES, (given,)):
            began, ended = times
            found[row_id].times.append((began, ended))
    except (sqlite3.OperationalError, ValueError):
        if len(ids) < 2:
            return {}
        return {row_id: totals for each in ids for row_id, totals in totals_of(connection, [each]).items()}
    return found
