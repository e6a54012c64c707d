"""What a worker tells of a batch, a step and an end, in forms that Temporal takes and people read."""

from __future__ import annotations

import json
from typing import Any

from ..._enginekit.change_sets import ChangeSet, rows_of
from ..._enginekit.driver import Driver
from ..._enginekit.payloads import PayloadStore
from ..._records.step_gate import StepTicket
from ._protocol import OMITTED

_SUMMARY_LENGTH = 100
_TEXT_LENGTH = 10_000


def ended(driver: Driver, beside: int) -> dict[str, Any]:
    """Return how far an execution has come, in a form that Temporal takes with so many bytes beside it."""
    end = driver.ended()
    result, error = end.result, end.error
    if len(json.dumps(result)) + beside > PayloadStore.limits.max_bytes:
        result = {OMITTED: "its result is too large for Temporal, with what was recorded last"}
    if error is not None:
        error = {**error, "text": error["text"][:_TEXT_LENGTH]}
    return {
        "status": end.status.value,
        "result": result,
        "error": error,
        "steps": end.steps,
        "not_before": end.not_before,
    }


def what(rows: ChangeSet, workflow_id: str | None) -> str:
    """Return what a batch is, for an error."""
    names = sorted({row["name"] for row in rows_of(rows, "steps") if row["kind"] == "tool"})
    of_tools = f", of {', '.join(names)}" if names else ""
    return f"Execution {workflow_id!r}: what is recorded at once{of_tools}"


def asked(ticket_id: str, ticket: StepTicket, is_inner: bool) -> dict[str, Any]:
    """Return what the workflow is to know of a step that waits."""
    asked: dict[str, Any] = {"id": ticket_id, "kind": ticket.kind, "step": [ticket.call_id, ticket.key, ticket.attempt]}
    asked["summary"] = ""
    if is_inner:
        asked["is_inner"] = True
    if ticket.kind != "model":
        asked["summary"] = f"{ticket.name} {ticket.title}"[:_SUMMARY_LENGTH]
    return {**asked, "until": ticket.until} if ticket.until else asked
