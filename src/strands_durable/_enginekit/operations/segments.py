"""Continues an execution whose log is full in further logs: the first one stays, and the others run one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict

from ..._records.change_sets import ChangeSet
from ..._records.executions import ExecutionStatus
from ...errors import ExecutionFailedError
from ..progress import end_of
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
        return {"status": CONTINUE, "rows": run.handed_over()}
    return {"status": message["status"], "error": message.get("error", "")}


def returned(run: OperationRun, end: SegmentEnd, most_bytes: int) -> dict[str, Any]:
    """Return what the function returns at the end of an execution, with its result unless that is large.

    Raises:
        ExecutionFailedError: It has failed; encrypted errors are left out, since the engine shows this one.
    """
    execution_id, contents = run.execution_id, run.contents
    if end["status"] == ExecutionStatus.FAILED.value:
        error = "its error is encrypted" if contents.is_sealing else end.get("error", "")
        raise ExecutionFailedError(execution_id, error, "Its handle's resume() retries it.")
    found, result = {"execution_id": execution_id, "status": end["status"]}, end_of(run.replica).result
    if result is None or len(json.dumps(result)) > most_bytes:
        return found
    return {**found, "result": contents.seal_value(result, text_of(execution_id, "the result"))}


def run_chain(run: OperationRun, invoke: Callable[[int, ChangeSet], SegmentEnd]) -> SegmentEnd:
    """Run the execution to its end: here, and in as many further logs as it takes.

    ``invoke`` runs `run_segment` with some rows elsewhere, as an operation of this log; it gets the number of the segment.
    """
    end, number = run_segment(run), 0
    while end["status"] == CONTINUE:
        number += 1
        end = invoke(number, end["rows"])
    return end
