"""All of an export, read as those read it who show and resume it: the last check before it is written."""

from __future__ import annotations

from .._journal.rows import STEP
from .._sqlite.lease import look
from ..errors import InvalidExportError
from .replica import Replica


def refuse_unreadable(replica: Replica, name: str) -> None:
    """Raise unless everything that is shown of an execution, and where its calls stand, can be read."""
    record = replica.record()
    for run in [None, *(found.run for found in replica.detail().runs)]:
        detail = replica.detail(run)
        if detail.execution.unreadable is not None:
            raise InvalidExportError(name, f"it could not be shown: {detail.execution.unreadable}")
    journal = look(replica, record.execution_id).journal()
    journal.origin()
    for call_id, kind, lineage in replica.rows("calls", "id, kind, lineage", "1"):
        if lineage:
            journal.closing(call_id)
        if kind == "agent":
            journal.usages(call_id)
            journal.tool_counts(call_id)
        replica.rows("steps", STEP, "call = ?", call_id)
