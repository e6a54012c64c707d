"""The command that removes executions: rm."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from .._dispatch.ports import DurableBackend
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import one_line
from ..errors import ExecutionHeldError
from .bulk import ENDED, Change, SkippedError, change_matching, confirm, make, record_of, refuse_both, show
from .filters import Filters, bulk_options
from .options import BackendTarget, backend_option, json_option

_QUESTION = "Remove {what} and everything recorded? This cannot be undone"


@click.command("rm")
@click.argument("execution_ids", metavar="[ID]...", nargs=-1)
@click.option("--all-completed", is_flag=True, help="Remove all COMPLETED executions: --status COMPLETED.")
@bulk_options
@backend_option
@json_option
def remove(
    execution_ids: tuple[str, ...], all_completed: bool, place: BackendTarget, as_json: bool, **options: Any
) -> None:
    """Remove executions and everything they recorded.

    This cannot be undone. The ids can be used again. An execution that a process is running is refused, and on Temporal one
    that has not ended: cancel it first. One that is held is refused: release it first. On Temporal, removing one that has just
    ended takes about half a minute.

    In place of ids, filters as in ls name the executions; without --status, those that have ended. They are listed, you are
    asked once, and each is reported. One that has changed in the meantime is skipped. If one cannot be removed, the others are,
    and the exit code is not 0.

    \b
    With --json: an object with
      removed     a list of ids
      skipped     a list of {execution_id, reason}
      failed      a list of {execution_id, error}
    With --json and --dry-run: a list as in ls --json.
    """
    if all_completed:
        options["statuses"] = (*options["statuses"], ExecutionStatus.COMPLETED.value)
    filters = Filters.of(options, ENDED)
    refuse_both(execution_ids, filters)
    make_change = _removed if filters is None else _removed_unchanged
    change = Change(verb="remove", done="removed", question=_QUESTION, make=make_change)
    how = {"is_dry": options["is_dry"], "yes": options["yes"], "as_json": as_json}
    if filters is not None:
        change_matching(place, filters, change, **how)
    else:
        asyncio.run(_remove(place, execution_ids, change, **how))


async def _remove(
    place: BackendTarget, ids: tuple[str, ...], change: Change, *, is_dry: bool, yes: bool, as_json: bool
) -> None:
    backend = place.visited()
    records = [await record_of(await backend.get(each)) for each in dict.fromkeys(ids)]
    if is_dry:
        show(records, change, as_json=as_json)
        return
    if not yes:
        confirm(records, change)
    await make(backend, records, change, as_json=as_json)


async def _removed(backend: DurableBackend, record: ExecutionRecord) -> str:
    if record.is_held:
        raise ExecutionHeldError(record.execution_id)
    await backend.remove(record.execution_id)
    return _line(record)


async def _removed_unchanged(backend: DurableBackend, record: ExecutionRecord) -> str:
    """Remove an execution that the filters name, unless it was resumed a moment ago."""
    if record.is_held:
        raise ExecutionHeldError(record.execution_id)
    if not await backend._remove_unchanged(record):
        raise SkippedError("it has changed since it was listed")
    return _line(record)


def _line(record: ExecutionRecord) -> str:
    return f"Removed {one_line(record.execution_id)}."
