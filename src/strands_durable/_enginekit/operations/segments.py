"""Continues an execution whose log is full in further logs: the first one stays, and the others run one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from ..._records.change_sets import ChangeSet
from .run import OperationRun

CONTINUE = "CONTINUE"
"""The status of a log that is full: the next one continues from its rows."""


class SegmentEnd(TypedDict, total=False):
    """How one log of an execution has ended."""

    status: str
    error: str
    rows: ChangeSet


def run_segment(run: OperationRun) -> SegmentEnd:
    """Run the execution until it ends, or until its log is full."""
    message = run.run()
    if "segment" in message:
        return {"status": CONTINUE, "rows": run.handed_over()}
    return {"status": message["status"], "error": message.get("error", "")}


def run_chain(run: OperationRun, invoke: Callable[[int, ChangeSet], SegmentEnd]) -> SegmentEnd:
    """Run the execution to its end: here, and in as many further logs as it takes.

    ``invoke`` runs `run_segment` with some rows elsewhere, as an operation of this log; it gets the number of the segment.
    """
    end, number = run_segment(run), 0
    while end["status"] == CONTINUE:
        number += 1
        end = invoke(number, end["rows"])
    return end
