"""Which executions a command is about: the filters of ``ls``, and the same ones in place of an id."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from .._dispatch.ports import DurableBackend
from .._records.executions import ExecutionRecord, ExecutionStatus
from .options import moment_of, tags_option

F = TypeVar("F", bound=Callable[..., Any])

_PAGE = 500
_ANY_ID = "~"
"""Stands for the id in a cursor that is made of a time alone; it only has to be there."""
_NAMES = ("statuses", "agent", "since", "tags", "search", "with_errors", "older_than")


def filter_options(command: F) -> F:
    """Let a command take the filters of ``ls``."""
    options = (
        click.option(
            "--status",
            "statuses",
            type=click.Choice([status.value for status in ExecutionStatus], case_sensitive=False),
            multiple=True,
            help="Only executions with this status. Can be repeated.",
        ),
        click.option("--agent", metavar="NAME", help="Only executions of this agent."),
        click.option(
            "--since",
            callback=moment_of,
            metavar="WHEN",
            help="Only executions that changed in the last 30m, 2h, 3d, ..., or since an ISO time.",
        ),
        tags_option("Only executions that have this tag. Can be repeated: all must match."),
        click.option("--search", metavar="TEXT", help="Only executions whose id begins with TEXT."),
        click.option(
            "--with-errors",
            is_flag=True,
            help="Only executions with a tool call that ended in an error; ls lists COMPLETED ones, unless --status is given.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def bulk_options(command: F) -> F:
    """Let a command that changes executions take filters in place of an id, and say first what it would do."""
    options = (
        filter_options,
        click.option(
            "--older-than",
            callback=moment_of,
            metavar="WHEN",
            help="Only executions that have not changed for 12h, 30d, ..., or since an ISO time.",
        ),
        click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be done, and do nothing."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which executions are asked for."""

    statuses: frozenset[ExecutionStatus]
    others: dict[str, Any]
    """Further arguments of `DurableBackend.list`."""
    older_than: float | None
    """Only those that have not changed after this time, in seconds since the epoch."""
    is_wanted: Callable[[ExecutionRecord], bool] = lambda record: True
    """Whether one that matches all else is asked for."""

    @classmethod
    def of(cls, options: dict[str, Any], default: Iterable[ExecutionStatus]) -> Filters | None:
        """Return what the options of `bulk_options` ask for, without a status those of ``default``; None without filters."""
        given = {name: options[name] for name in _NAMES}
        if not any(value not in (None, (), {}, False) for value in given.values()):
            return None
        return cls(
            statuses=frozenset(map(ExecutionStatus, given["statuses"])) or frozenset(default),
            others={name: given[name] for name in ("agent", "since", "tags", "search", "with_errors")},
            older_than=given["older_than"],
        )

    async def found(self, backend: DurableBackend) -> list[ExecutionRecord]:
        """Return every execution that is asked for, the most recently changed first."""
        records: dict[str, ExecutionRecord] = {}
        async for page in self._pages(backend):
            for record in page:
                records.setdefault(record.execution_id, record)  # one that changes meanwhile may appear again
        return [record for record in records.values() if self.takes(record)]

    def takes(self, record: ExecutionRecord) -> bool:
        """Return whether an execution has a status that is asked for, and has not changed for as long as is asked for."""
        is_old = self.older_than is None or record.updated_at <= self.older_than
        return is_old and record.status in self.statuses and self.is_wanted(record)

    async def _pages(self, backend: DurableBackend) -> AsyncIterator[list[ExecutionRecord]]:
        cursor = None if self.older_than is None else f"{math.nextafter(self.older_than, math.inf)!r}@{_ANY_ID}"
        while True:
            page = await backend.list(status=self.statuses, **self.others, before=cursor, limit=_PAGE)
            yield page
            if len(page) < _PAGE:
                return
            cursor = page[-1].cursor
