"""Who is at work on an execution, or why nobody is: by the activity with which a worker holds it."""

from __future__ import annotations

import re

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from ..._enginekit.log import Presence
from ._protocol import DRIVE, NOT_HERE

_AT_WORK = (
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
)


async def pending_activity_of(client: Client, description: WorkflowExecutionDescription) -> Presence:
    """Return who holds an execution; nobody, if it has ended."""
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return Presence()
    is_cancelling = description.raw_description.workflow_extended_info.cancel_requested
    for pending in description.raw_description.pending_activities:
        if pending.activity_type.name == DRIVE:
            if pending.state in _AT_WORK:
                return Presence(owner=_named(pending.last_worker_identity), is_cancelling=is_cancelling)
            return Presence(note=await _refusal(client, pending), is_left=True, is_cancelling=is_cancelling)
    return Presence(is_cancelling=is_cancelling)


def _named(identity: str) -> str:
    """Return a worker's identity in the words that owners have elsewhere."""
    found = re.fullmatch(r"(\d+)@(.+)", identity)
    return f"process {found[1]} on {found[2]}" if found else identity


async def _refusal(client: Client, pending: PendingActivityInfo) -> str | None:
    if not pending.HasField("last_failure"):
        return None
    error = await client.data_converter.decode_failure(pending.last_failure)
    return error.message if isinstance(error, ApplicationError) and error.type == NOT_HERE else None
