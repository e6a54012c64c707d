"""What Temporal bills: an execution shows as few signs of life as it can, and hears of a cancel without them."""

from __future__ import annotations

import asyncio
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from strands_durable import errors
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing import agents
from strands_durable.testing.contract._bench import BOOK, WAIT
from strands_durable.testing.temporal import TemporalServer
from tests.temporal.running import kinds, url_of, working
from tests.waiting import until_async

HEARTBEAT_SECONDS = 8


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def heartbeats(port: int) -> int:
    """Return how many signs of life a server has heard."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    found = re.findall(
        r'^service_requests\{.*operation="RecordActivityTaskHeartbeat".*service_name="frontend".*\} (\d+)$', text, re.M
    )
    return sum(int(number) for number in found)


def test_a_long_step_costs_few_actions_and_sees_a_cancel_within_seconds(tmp_path: Path) -> None:
    port = free_port()

    async def main(url: str) -> None:
        backend = TemporalBackend(url)
        spec = agents.contract_agent.spec_with(folder=str(tmp_path), script=[BOOK, WAIT, "Done."])
        handle = await backend.dispatch(spec, "Go", execution_id="run")
        await until_async(lambda: has(tmp_path, "wait"))
        await asyncio.sleep(1.2 * HEARTBEAT_SECONDS)  # what is counted is what time costs
        assert 1 <= heartbeats(port) <= 3, "for the execution and its step together"
        begun = time.monotonic()
        await handle.cancel()
        await until_async(lambda: has(tmp_path, "cancel seen"))
        assert time.monotonic() - begun < 5
        with pytest.raises(errors.ExecutionCancelledError):
            await handle.result(30)
        workflow = await backend.workflow("run")
        found = kinds([event async for event in workflow.fetch_history_events()])
        names = ("WORKFLOW_EXECUTION_STARTED", "WORKFLOW_EXECUTION_SIGNALED", "ACTIVITY_TASK_STARTED", "TIMER_STARTED")
        assert {name: found[name] for name in names} == dict(zip(names, (1, 1, 6, 1), strict=True))

    with TemporalServer(options=["--metrics-port", str(port)]) as server:
        url = url_of(server, heartbeat_seconds=HEARTBEAT_SECONDS)
        with working(url):
            asyncio.run(main(url))


async def has(folder: Path, kind: str) -> bool:
    return any(mark["kind"] == kind for mark in agents.marks(folder))
