"""How a worker reports a batch, a step and an end: within Temporal's limits, and readable."""

from __future__ import annotations

import json
from typing import Any

from ..._enginekit.driver import Driver
from ..._enginekit.payloads import PayloadStore
from ..._records.change_sets import ChangeSet, rows_of
from ..._records.step_gate import StepTicket
from ._memo import totals_memo
from ._protocol import OMITTED

_SUMMARY_LENGTH = 100
_TEXT_LENGTH = 10_000


def ended(driver: Driver, beside: int) -> dict[str, Any]:
    """Return the state of an execution, small enough for Temporal together with ``beside`` more bytes."""
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
        "totals": totals_memo(driver.record()),
    }


def what(rows: ChangeSet, workflow_id: str | None) -> str:
    """Describe a batch, for an error message."""
    names = sorted({row["name"] for row in rows_of(rows, "steps") if row["kind"] == "tool"})
    of_tools = f", of {', '.join(names)}" if names else ""
    return f"Execution {workflow_id!r}: what is recorded at once{of_tools}"


def asked(ticket_id: str, ticket: StepTicket, is_inner: bool) -> dict[str, Any]:
    """Return what the workflow needs to know about a waiting step."""
    asked: dict[str, Any] = {"id": ticket_id, "kind": ticket.kind, "step": [ticket.call_id, ticket.key, ticket.attempt]}
    asked["summary"] = ""
    if is_inner:
        asked["is_inner"] = True
    if ticket.kind != "model":
        asked["summary"] = f"{ticket.name} {ticket.title}"[:_SUMMARY_LENGTH]
    return {**asked, "until": ticket.until} if ticket.until else asked
