"""Continues an execution whose log is full in further logs: the first one stays, and the others run one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict

from ..._records.change_sets import ChangeSet
from ..._records.executions import ExecutionStatus
from ...errors import CipherError, ExecutionFailedError
from .port import Message
from .row_store import text_of
from .run import OperationRun

CONTINUE = "CONTINUE"
"""The status of a log that is full: the next one continues from its rows."""


class SegmentEnd(TypedDict, total=False):
    """How one log of an execution has ended."""

    status: str
    error: Any
    rows: ChangeSet


def run_segment(run: OperationRun) -> SegmentEnd:
    """Run the execution until it ends, or until its log is full."""
    message = run.run()
    if "segment" in message:
        run.settle()
        return {"status": CONTINUE, "rows": run.handed_over()}
    return _end_of(message)


def returned(run: OperationRun, end: SegmentEnd, most_bytes: int) -> dict[str, Any]:
    """Return what the function returns at the end of an execution, with its result unless that is large.

    Raises:
        ExecutionFailedError: It has failed; encrypted errors are left out, since the engine shows this one.
    """
    execution_id, contents = run.execution_id, run.contents
    if end["status"] == ExecutionStatus.FAILED.value:
        error = "its error is encrypted" if contents.is_sealing else end.get("error", "")
        raise ExecutionFailedError(execution_id, error, "Its handle's resume() retries it.")
    found, result = {"execution_id": execution_id, "status": end["status"]}, run.returned()
    if result is None or len(json.dumps(result)) > most_bytes:
        return found
    return {**found, "result": contents.seal_value(result, text_of(execution_id, "the result"))}


def run_chain(run: OperationRun, invoke: Callable[[int, ChangeSet | CipherError], SegmentEnd]) -> SegmentEnd:
    """Run the execution to its end: here, and in as many further logs as it takes.

    ``invoke`` runs `run_segment` with some rows elsewhere, as an operation of this log; it gets the number of the segment. A
    process that lacks the key has an error in place of the rows, which does no harm if that operation is on record.
    """
    message, number = run.run(), 0
    if "segment" not in message:
        return _end_of(message)
    end: SegmentEnd = {"status": CONTINUE, "rows": {}}
    while end["status"] == CONTINUE:
        number += 1
        end = invoke(number, _handed_over(run) if number == 1 else end["rows"])
    return end


def _handed_over(run: OperationRun) -> ChangeSet | CipherError:
    try:
        return run.handed_over()
    except CipherError as error:
        return error


def _end_of(message: Message) -> SegmentEnd:
    return {"status": message["status"], "error": message.get("error", "")}
