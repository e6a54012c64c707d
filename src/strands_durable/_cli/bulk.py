"""One change to many executions: shown, confirmed once, made one by one, and reported one by one.

An error of one execution does not keep the others from being changed. Between the list and its turn an execution may change:
it is read again, and left alone if the filters no longer match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import click

from .._dispatch.handles import ExecutionHandle
from .._dispatch.ports import DurableBackend
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import masked_text, one_line
from ..errors import DurableError, ExecutionNotFoundError
from .exit_codes import ERROR, code_of, leave, print_error
from .filters import Filters
from .json_view import execution_json, print_json
from .options import BackendTarget
from .prompts import is_terminal

_SHOWN = 50
"""How many executions a question lists; a dry run lists all."""


class SkippedError(DurableError):
    """There is nothing to do for an execution, by its own rule; ``args[0]`` says why."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a command does to each execution."""

    verb: str
    """``resume``."""
    done: str
    """For the sums, and the key in JSON: ``resumed``."""
    question: str
    """What is asked before: ``Resume {what}?``."""
    make: Callable[[DurableBackend, ExecutionRecord], Awaitable[str]]
    """Makes the change and returns the line that reports it; raises `SkippedError` if there is nothing to do."""


@dataclass(kw_only=True)
class Report:
    """What became of each execution."""

    done: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, Exception]] = field(default_factory=list)

    def to_json(self, done: str) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            done: self.done,
            "skipped": [{"execution_id": each, "reason": reason} for each, reason in self.skipped],
            "failed": [{"execution_id": each, "error": masked_text(str(error))} for each, error in self.failed],
        }

    @property
    def exit_code(self) -> int:
        """0 if nothing failed; the code of the error if all failed alike."""
        codes = {code_of(error) for _, error in self.failed}
        return 0 if not codes else codes.pop() if len(codes) == 1 else ERROR


def change_matching(
    place: BackendTarget, filters: Filters, change: Change, *, is_dry: bool, yes: bool, as_json: bool
) -> None:
    """Change every execution that the filters match."""
    asyncio.run(_change_matching(place, filters, change, is_dry, yes, as_json))


async def _change_matching(
    place: BackendTarget, filters: Filters, change: Change, is_dry: bool, yes: bool, as_json: bool
) -> None:
    backend = place.visited()
    records = await filters.found(backend)
    if is_dry:
        show(records, change, as_json=as_json)
        return
    if records and not yes:
        confirm(records, change)
    await make(backend, records, change, as_json=as_json, still=filters.takes)


def show(records: list[ExecutionRecord], change: Change, *, as_json: bool) -> None:
    """Print what would be changed."""
    if as_json:
        print_json([execution_json(record) for record in records])
        return
    if records:
        print_table(records)
    click.echo(f"Would {change.verb} {_number(len(records))}." if records else _nothing(change))


def confirm(records: list[ExecutionRecord], change: Change) -> None:
    """Ask once before anything is changed."""
    if not is_terminal():
        raise click.UsageError(
            f"stdin is not a terminal. Pass --yes to {change.verb} without confirmation, or --dry-run to see what."
        )
    print_table(records[:_SHOWN], err=True)
    if len(records) > _SHOWN:
        click.echo(f"... and {len(records) - _SHOWN} more; --dry-run lists all.", err=True)
    what = "this execution" if len(records) == 1 else f"these {len(records)} executions"
    click.confirm(change.question.format(what=what), abort=True, err=True)


def print_table(records: list[ExecutionRecord], *, err: bool = False) -> None:
    """Print executions as ``ls`` does."""
    from .tables import console, execution_table

    out = console(err=err)
    out.print(execution_table(records, out.width))


async def make(
    backend: DurableBackend,
    records: Collection[ExecutionRecord],
    change: Change,
    *,
    as_json: bool,
    still: Callable[[ExecutionRecord], bool] | None = None,
) -> None:
    """Change executions one after the other and report each; end with a code other than 0 if one could not be changed.

    Args:
        backend: Where they are.
        records: As they were listed.
        change: What to do.
        as_json: Print one object at the end.
        still: Whether an execution, read again, is to be changed; None to change it whatever it is now.
    """
    report = Report()
    for record in records:
        await _make_one(backend, record, change, report, still, as_json)
    if as_json:
        print_json(report.to_json(change.done))
    elif not records:
        click.echo(_nothing(change))
    elif len(records) > 1:
        _print_sums(report, change)
    if report.exit_code:
        leave(report.exit_code)


async def _make_one(
    backend: DurableBackend,
    record: ExecutionRecord,
    change: Change,
    report: Report,
    still: Callable[[ExecutionRecord], bool] | None,
    as_json: bool,
) -> None:
    execution_id = record.execution_id
    try:
        if still is not None:
            record = await _unchanged(backend, record, still)
        line = await change.make(backend, record)
    except (SkippedError, ExecutionNotFoundError) as error:
        if still is None and not isinstance(error, SkippedError):
            _failed(report, execution_id, error)
            return
        reason = str(error) if isinstance(error, SkippedError) else "it was removed in the meantime"
        report.skipped.append((execution_id, reason))
        line = f"Skipped {one_line(execution_id)}: {one_line(reason)}."
    except Exception as error:  # the others are changed all the same
        _failed(report, execution_id, error)
        return
    else:
        report.done.append(execution_id)
    if not as_json:
        click.echo(line)


def _failed(report: Report, execution_id: str, error: Exception) -> None:
    report.failed.append((execution_id, error))
    print_error(error)


async def _unchanged(
    backend: DurableBackend, listed: ExecutionRecord, still: Callable[[ExecutionRecord], bool]
) -> ExecutionRecord:
    """Read an execution again, or raise if it is no longer one that was asked for."""
    record = (await (await backend.get(listed.execution_id)).detail()).execution
    if record.unreadable is None and not still(record):
        raise SkippedError(f"it has changed since it was listed, and is {record.status.value} now")
    return record


def _print_sums(report: Report, change: Change) -> None:
    parts = [f"{change.done.capitalize()} {len(report.done)}"]
    parts += [
        f"{name} {len(found)}" for name, found in (("skipped", report.skipped), ("failed", report.failed)) if found
    ]
    click.echo(", ".join(parts) + ".")


def _number(count: int) -> str:
    return "1 execution" if count == 1 else f"{count} executions"


def _nothing(change: Change) -> str:
    return f"Nothing to {change.verb}."


async def record_of(handle: ExecutionHandle) -> ExecutionRecord:
    """Return what ``ls`` shows of an execution."""
    return (await handle.detail()).execution


def refuse_both(execution_id: object, filters: Filters | None) -> None:
    """Refuse a command that has both an id and filters, or neither."""
    if bool(execution_id) == (filters is not None):
        raise click.UsageError("Pass either an id, or filters such as --status, --since or --tag.")


OPEN = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.SUSPENDED)
ENDED = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
