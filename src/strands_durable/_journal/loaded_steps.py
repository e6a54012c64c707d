"""The steps of a call that resumes, read once: its messages, its metrics and its tools are all found in them."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from typing import Any

from .rows import STEP, span

Row = tuple[Any, ...]

WHOLE = "id, call, key, attempt, kind, name, title, status, config, started_at, ended_at, usage, result, error, number, loop"
"""All columns, in the order of the table: they are read as they are."""

_as_step = itemgetter(*map(WHOLE.split(", ").index, STEP.split(", ")))


class LoadedSteps:
    """The steps of one call, in the order of their keys and attempts."""

    def __init__(self, call_id: int, rows: list[Row]) -> None:
        self.call_id, self.rows = call_id, rows

    def results(self, step_ids: list[int]) -> dict[int, str]:
        """Return the results of those of these steps that are here."""
        known = {row[0]: row[12] for row in self.rows}
        return {step_id: known[step_id] for step_id in step_ids if step_id in known}

    def models(self) -> list[Row]:
        """Return the model calls of the loop; auxiliary ones have no config."""
        return [row for row in self.rows if row[4] == "model" and row[8] is not None]

    def latest(self, prefix: str) -> list[Row]:
        """Return the columns of `STEP` of the steps whose keys start with ``prefix``."""
        first, last = (bisect_left(self.rows, bound, key=itemgetter(2)) for bound in span(prefix))
        return [_as_step(row) for row in self.rows[first:last]]
