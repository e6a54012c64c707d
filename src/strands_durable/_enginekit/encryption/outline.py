"""What stays readable of an encrypted execution where a log is kept: its agent, status, owner and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._journal.owner import Owner
from ..._records.change_sets import ChangeSet, rows_of
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ...errors import CipherError


def facts_of(changes: ChangeSet) -> dict[str, Any]:
    """Return what a change set changes of status, owner, times and agent."""
    found: dict[str, Any] = {}
    for row in rows_of(changes, "executions"):
        found |= {name: row.get(name) for name in ("status", "owner", "created_at", "updated_at")}
    for row in rows_of(changes, "dispatches"):
        found |= {"agent": row["agent"], "not_before": row.get("not_before", 0.0)}
    return found


def outline(execution_id: str, facts: Mapping[str, Any], why: CipherError) -> ExecutionRecord:
    """Return an execution as a list shows it to a reader who lacks its key."""
    owner = facts.get("owner")
    return ExecutionRecord(
        execution_id=execution_id,
        kind="dispatched",
        status=ExecutionStatus(facts["status"]),
        run=0,
        calls=0,
        steps=0,
        owner=None if owner is None else str(Owner.parse(owner)),
        created_at=facts["created_at"],
        updated_at=facts["updated_at"],
        agent=facts.get("agent"),
        note=why.reason,
    )
