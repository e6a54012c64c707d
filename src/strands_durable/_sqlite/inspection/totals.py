"""What an execution has used so far, summed over the rows of its current run: tokens, time, and how long people took."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..._records.executions import TokenUsage
from ..._records.waits import Span, seconds_in, spans_of

_USAGE = """
SELECT c.execution, s.usage FROM calls c JOIN executions e ON e.id = c.execution JOIN verified_steps s ON s.call = c.id
WHERE e.id IN (SELECT value FROM json_each(?)) AND c.run = e.run AND s.usage IS NOT NULL
"""
_TIMES = """
SELECT c.execution, c.started_at, c.ended_at FROM executions e JOIN calls c ON c.execution = e.id AND c.run = e.run
WHERE e.id IN (SELECT value FROM json_each(?)) AND +c.parent = 0 AND c.status <> 'PENDING'
"""
_OF_RUN = "executions e CROSS JOIN calls c ON c.execution = e.id AND c.run = e.run"
_ASKED = "e.id IN (SELECT value FROM json_each(?))"
_ANSWERED = " UNION ".join(
    f"SELECT c.execution, c.started_at, a.at FROM {_OF_RUN} CROSS JOIN {table} a ON a.call = c.id"
    f" WHERE {_ASKED} AND +c.parent = 0"
    for table in ("answers", "replies")
)
_ENDS = f"""
SELECT c.execution, s.ended_at FROM {_OF_RUN} CROSS JOIN steps s ON s.call = c.id WHERE {_ASKED} AND s.ended_at IS NOT NULL
"""
FAILED_TOOL = "s.kind = 'tool' AND s.status = 'done' AND s.error IS NOT NULL"
"""The condition for a step ``s`` that is a tool call which ended in an error."""
_ERRORS = f"""
SELECT c.execution, count(*) FROM {_OF_RUN} CROSS JOIN steps s ON s.call = c.id WHERE {_ASKED} AND {FAILED_TOOL}
GROUP BY c.execution
"""
_NAMES = ("inputTokens", "outputTokens", "totalTokens")


@dataclass(kw_only=True)
class Totals:
    """What one execution has used."""

    usages: list[dict[str, int]] = field(default_factory=list)
    times: list[tuple[float, float | None]] = field(default_factory=list)
    """When each root call began, and when it ended."""
    waits: list[Span] = field(default_factory=list)
    """From when to when it waited for answers, in order and without overlaps."""
    tool_errors: int = 0

    @property
    def tokens(self) -> TokenUsage | None:
        """The tokens of all model calls; None if none has said."""
        if not self.usages:
            return None
        sums = (sum(_number(usage, name) for usage in self.usages) for name in _NAMES)
        return TokenUsage(**dict(zip(("input", "output", "total"), sums, strict=True)))

    def waited_seconds(self, since: float = 0.0) -> float:
        """How long it has waited ``since`` then for the answers that it got."""
        return seconds_in(self.waits, since, math.inf)

    def seconds_until(self, changed_at: float, since: float = 0.0) -> float | None:
        """The time that all root calls took ``since`` then, without waits; one that has not ended, until the last change."""
        spans = [(max(began, since), changed_at if ended is None else ended) for began, ended in self.times]
        return (
            sum(max(0.0, ended - began - seconds_in(self.waits, began, ended)) for began, ended in spans)
            if spans
            else None
        )


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
        for row_id, number in connection.execute(_ERRORS, (given,)):
            found[row_id].tool_errors = number
        for row_id, waits in _waits(connection, given).items():
            found[row_id].waits = waits
    except (sqlite3.OperationalError, ValueError):
        if len(ids) < 2:
            return {}
        return {row_id: totals for each in ids for row_id, totals in totals_of(connection, [each]).items()}
    return found


def _waits(connection: sqlite3.Connection, given: str) -> dict[int, list[Span]]:
    """Return from when to when executions have waited for answers."""
    answered, ends = defaultdict[int, list[Any]](list), defaultdict[int, list[float]](list)
    for row_id, began, at in connection.execute(_ANSWERED, (given, given)):
        answered[row_id].append((at, began))
    if not answered:  # most never ask
        return {}
    for row_id, ended in connection.execute(_ENDS, (json.dumps(list(answered)),)):
        ends[row_id].append(ended)
    return {row_id: spans_of(found, ends[row_id]) for row_id, found in answered.items()}
