"""Hosts the workflow of executions, which needs no agent: any process can do so while no worker does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from temporalio.client import Client

if TYPE_CHECKING:
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

HOST = "strands-durable: hosts the workflow for a moment, runs no agent"
"""The identity of such a process, so that it is not mistaken for a worker."""


def sandbox() -> SandboxedWorkflowRunner:
    """Return Temporal's sandbox with this package passed through, and nothing else: the workflow runs no other code."""
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

    restrictions = SandboxRestrictions.default.with_passthrough_modules("strands_durable")
    return SandboxedWorkflowRunner(restrictions=restrictions)


@asynccontextmanager
async def workflow_worker(client: Client, task_queue: str) -> AsyncIterator[None]:
    """Run the workflows of a task queue in this process, without running agents."""
    from temporalio.worker import Worker

    from ._notifications.notify_workflow import NotifyWorkflow
    from ._workflow import ExecutionWorkflow

    workflows = [ExecutionWorkflow, NotifyWorkflow]
    async with Worker(client, task_queue=task_queue, workflows=workflows, workflow_runner=sandbox(), identity=HOST):
        yield
