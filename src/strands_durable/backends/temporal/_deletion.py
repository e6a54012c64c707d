"""Deletes an execution: every run of its workflow, with all that was recorded."""

from __future__ import annotations

import asyncio

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from ..._enginekit.payloads import PayloadStore
from ..._records.deadline import limited
from ._errors import is_unknown
from ._history import runs_of

_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0
"""Temporal deletes a workflow that has just ended only after its other background tasks, about half a minute later."""


async def remove(client: Client, payload_store: PayloadStore, workflow_id: str, run_id: str) -> None:
    """Delete a workflow that has ended, its last run first; return when Temporal neither describes nor lists it."""
    for each in await runs_of(client, payload_store, workflow_id, run_id):
        await _delete(client, workflow_id, each)
    try:
        await limited(_forgotten(client, workflow_id), _PATIENCE_SECONDS)
    except TimeoutError:
        return  # Temporal has accepted the request and completes it later


async def _delete(client: Client, workflow_id: str, run_id: str) -> None:
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request, retry=True)
    except RPCError as error:
        if not is_unknown(error):
            raise


async def _forgotten(client: Client, workflow_id: str) -> None:
    """Return when a deleted workflow is gone: Temporal deletes asynchronously."""
    while await _is_known(client, workflow_id):  # noqa: ASYNC110, Temporal sends no event
        await asyncio.sleep(_POLL_SECONDS)


async def _is_known(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if not is_unknown(error):
            raise
        return (await client.count_workflows(f"WorkflowId = '{workflow_id}'")).count > 0
    return True
