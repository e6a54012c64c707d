"""Which executions a list has, in which order, and where its next page begins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .executions import ExecutionRecord, ExecutionStatus
from .tags import checked_tags, has_tags

ALL = frozenset(ExecutionStatus)
_MOMENT = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_LATEST = 253_402_300_799.0
"""The last second of the year 9999: no engine can be asked for what is later."""


class Cursor(NamedTuple):
    """A place in the list of executions, which are ordered by their last change: that of one of them."""

    updated_at: float
    execution_id: str

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Return the place that a cursor names."""
        moment, _, execution_id = text.partition("@")
        if not _MOMENT.fullmatch(moment) or float(moment) > _LATEST or not execution_id:
            raise ValueError(f"before={text!r} is not a cursor: pass the cursor of a listed execution")
        return cls(float(moment), execution_id)

    @property
    def rank(self) -> tuple[float, str]:
        """What executions are sorted by: the one that changed last is first, and of two at a time the lower id."""
        return -self.updated_at, self.execution_id


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which executions are asked for, and how many."""

    statuses: frozenset[ExecutionStatus] = ALL
    agent: str | None = None
    since: float | None = None
    """Only those that changed at this time or later, in seconds since the epoch."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Only those that have all of these."""
    search: str | None = None
    """Only those whose id begins with this."""
    with_errors: bool = False
    """Only those with a tool call that ended in an error."""
    before: Cursor | None = None
    """Only those that come after this place in the list."""
    limit: int | None = None

    @classmethod
    def of(
        cls,
        *,
        status: ExecutionStatus | Collection[ExecutionStatus] | None,
        tags: Mapping[str, str] | None,
        before: str | None,
        **others: object,
    ) -> Listing:
        """Return what the arguments of `DurableBackend.list` ask for."""
        wanted = ALL if status is None else frozenset({status} if isinstance(status, ExecutionStatus) else status)
        place = None if before is None else Cursor.of(before)
        return cls(statuses=wanted, tags=checked_tags(tags), before=place, **others)  # type: ignore[arg-type]

    def takes(self, record: ExecutionRecord) -> bool:
        """Return whether an execution is among those that are asked for."""
        return (
            record.status in self.statuses
            and self.agent in (None, record.agent)
            and (self.since is None or record.updated_at >= self.since)
            and (self.before is None or _rank(record) > self.before.rank)
            and record.execution_id.startswith(self.search or "")
            and has_tags(record.tags, self.tags)
            and (record.tool_errors > 0 or not self.with_errors)
        )

    def chosen(self, records: Iterable[ExecutionRecord]) -> list[ExecutionRecord]:
        """Return those of the records that are asked for, the most recently changed first."""
        return sorted(filter(self.takes, records), key=_rank)[: self.limit]


def _rank(record: ExecutionRecord) -> tuple[float, str]:
    return Cursor(record.updated_at, record.execution_id).rank
