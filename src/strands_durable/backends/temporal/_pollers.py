"""Detects a task queue without workers. An execution that no worker takes would otherwise wait silently."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from ..._records.logs import safe_logger
from ...errors import DurableError
from ._protocol import DEFAULT_QUEUE
from ._url import TemporalConfig
from ._workflow_worker import HOST

logger = safe_logger(__name__)

_FIRST_SECONDS, _AGAIN_SECONDS = 4.0, 5.0
_POLL_SECONDS = 70.0
"""How long a worker's poll stays open: Temporal lists all pollers of the last five minutes, including those that are gone."""
_KINDS = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)


async def unattended(client: Client, config: TemporalConfig) -> str | None:
    """Return a message with the command to start a worker if none polls the task queue; None if one does."""
    for kind in _KINDS:
        queue = TaskQueue(name=config.task_queue)
        asked = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=queue, task_queue_type=kind)
        found = (await client.workflow_service.describe_task_queue(asked)).pollers
        since = time.time() - _POLL_SECONDS
        if any(each.identity != HOST and each.last_access_time.seconds > since for each in found):
            return None
    where = f"task queue {config.task_queue!r} in namespace {client.namespace!r}"
    return f"no worker polls {where}. Start one: {worker_command(config)}"


def worker_command(config: TemporalConfig) -> str:
    """Return the command that starts a worker, without anything that may contain a password."""
    given = {
        "namespace": config.namespace,
        "task_queue": config.task_queue if config.task_queue != DEFAULT_QUEUE else None,
    }
    if config.payloads is not None:
        given["payloads"] = "..."
    options = urlencode({name: value for name, value in given.items() if value is not None}, safe="./:")
    url = f"temporal://{config.address or ''}" + (f"?{options}" if options else "")
    return f"strands-durable worker FILE --backend {shlex.quote(url)}"


@asynccontextmanager
async def watched(execution_id: str, look: Callable[[], Awaitable[str | None]]) -> AsyncIterator[None]:
    """Log once, while the caller waits, that no worker runs the execution."""
    watching = asyncio.ensure_future(_watch(execution_id, look))
    try:
        yield
    finally:
        watching.cancel()


async def _watch(execution_id: str, look: Callable[[], Awaitable[str | None]]) -> None:
    seconds = _FIRST_SECONDS
    while True:
        await asyncio.sleep(seconds)
        try:
            said = await look()
        except (RPCError, DurableError) as error:
            logger.debug("execution_id=<%s>, error=<%s> | pollers unknown", execution_id, error)
            said = None
        if said is not None:
            logger.warning("execution_id=<%s> | waiting: %s", execution_id, said)
            return
        seconds = _AGAIN_SECONDS
