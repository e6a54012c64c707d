"""Hosting the workflow under executions, which needs no agent: any process can, for as long as nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from temporalio.client import Client

if TYPE_CHECKING:
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

HOST = "strands-durable: hosts the workflow for a moment, runs no agent"
"""What such a process calls itself, so that it is not taken for a worker."""


def sandbox() -> SandboxedWorkflowRunner:
    """Return Temporal's sandbox with this package passed through, and nothing else: the workflow runs no other code."""
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

    restrictions = SandboxRestrictions.default.with_passthrough_modules("strands_durable")
    return SandboxedWorkflowRunner(restrictions=restrictions)


@asynccontextmanager
async def workflow_worker(client: Client, task_queue: str) -> AsyncIterator[None]:
    """Have this process take part in the workflows of a task queue, and run no agent."""
    from temporalio.worker import Worker

    from ._workflow import ExecutionWorkflow

    async with Worker(
        client, task_queue=task_queue, workflows=[ExecutionWorkflow], workflow_runner=sandbox(), identity=HOST
    ):
        yield
