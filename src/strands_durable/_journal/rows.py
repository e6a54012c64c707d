"""Rows of the journal as records, and the other way round."""

from __future__ import annotations

import json
import time
from typing import Any

from .._records.calls import CallRecord
from .._records.codec import decode, encode
from .._records.executions import ExecutionStatus
from .._records.json_text import writer
from .._records.steps import StepEnd, StepRecord
from .unreadable import reading

CALL = (
    "id, lineage, run, position, scope, status, attempt, input, input_hash, base, config, result, started_at, ended_at,"
    " parent, place, kind, member"
)
STEP = "id, key, attempt, kind, name, status, title, result, error, usage, config, started_at, ended_at"


_dump = writer()


def span(prefix: str) -> tuple[str, str]:
    """Return the bounds between which a key that starts with ``prefix`` sorts."""
    return prefix, prefix + "\U0010ffff"


def columns_of(end: StepEnd) -> dict[str, Any]:
    """Return the columns that the end of a step fills, but for the number."""
    return {
        "status": end.status,
        "ended_at": time.time(),
        "usage": _compact(end.usage),
        "loop": _compact(end.loop),
        "result": end.result,
        "error": None if end.error is None else encode(end.error),
    }


def _compact(counts: dict[str, int] | None) -> str | None:
    return None if counts is None else _dump(counts)


@reading()
def call_of(row: Any) -> CallRecord:
    """Return the call of a row of `CALL`."""
    return CallRecord(
        call_id=row[0],
        lineage=row[1],
        run=row[2],
        position=row[3],
        scope=row[4],
        status=ExecutionStatus(row[5]),
        attempt=row[6],
        input=None if row[7] is None else decode(row[7]),
        input_hash=row[8],
        redacted=row[7] is None,
        base=json.loads(row[9]),
        config_id=row[10],
        result=None if row[11] is None else decode(row[11]),
        started_at=row[12],
        ended_at=row[13],
        parent=row[14],
        place=row[15],
        kind=row[16],
        member=row[17],
    )


@reading()
def step_of(row: Any) -> StepRecord:
    """Return the step of a row of `STEP`."""
    return StepRecord(
        step_id=row[0],
        key=row[1],
        attempt=row[2],
        kind=row[3],
        name=row[4],
        status=row[5],
        title=row[6],
        result=None if row[7] is None else decode(row[7]),
        error=None if row[8] is None else decode(row[8]),
        usage=None if row[9] is None else json.loads(row[9]),
        config_id=row[10],
        started_at=row[11],
        ended_at=row[12],
    )
