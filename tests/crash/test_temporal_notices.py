"""C37 on Temporal under kills: what a worker has recorded is reported, wherever it dies. Workers are processes."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from strands_durable import Webhook
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing import CrashPoints
from strands_durable.testing.temporal import TemporalServer
from tests import reported
from tests.processes import Child
from tests.receiver import SECRET, Receiver, receiving
from tests.temporal.running import url_of
from tests.waiting import until

HEARTBEAT_SECONDS = 2
PATIENCE_SECONDS = 60


def work(url: str, receiver: str, stop_file: str, point: str | None = None) -> list[str]:
    """Be a worker that reports to a URL, until a file exists; crash at a point, or return those reached."""
    points = CrashPoints()

    async def until_stopped() -> None:
        backend, stop = TemporalBackend(url), asyncio.Event()
        backend.notify(webhooks=[Webhook(receiver, SECRET)])
        working = asyncio.ensure_future(backend.work(stop=stop, drain_seconds=5))
        while not Path(stop_file).exists():
            await asyncio.sleep(0.02)
        stop.set()
        await working

    with points.recording() if point is None else points.crashing(point):
        asyncio.run(until_stopped())
    return points.reached


def asked_and_answered(url: str, receiver: Receiver) -> None:
    """Run an execution that asks, is answered, and completes, as far as workers run it."""

    async def main() -> None:
        handle = await TemporalBackend(url).dispatch(reported.asker.spec, "Go", execution_id="asker")
        result: Any = await handle.result(PATIENCE_SECONDS)
        await handle.respond({result.interrupts[0].id: "yes"})
        assert str(await handle.result(PATIENCE_SECONDS)) == "Approved.\n"
        await asyncio.to_thread(until, lambda: len(events(receiver)) == 2, PATIENCE_SECONDS)

    asyncio.run(main())


def events(receiver: Receiver) -> dict[str, set[str]]:
    """Return the ids with which each event was reported."""
    found: dict[str, set[str]] = {}
    for body in receiver.bodies:
        found.setdefault(body["event"], set()).add(body["id"])
    return found


def test_c37_a_worker_killed_between_commit_and_delivery_loses_no_notification(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    """Kill it at every boundary of two deliveries, and at those of the batches before them."""
    stop = str(tmp_path / "stop")
    with receiving() as receiver:
        url = url_of(temporal, heartbeat_seconds=HEARTBEAT_SECONDS)
        child = Child(work, url, receiver.url, stop)
        asked_and_answered(url, receiver)
        Path(stop).touch()
        reached: list[str] = child.join().checked()
    deliveries = [point for point in reached if point.startswith("notify:")]
    assert deliveries == ["notify:before@1", "notify:after@1", "notify:before@2", "notify:after@2"]
    reports = [point for point in reached if point.startswith("report:")]
    for point in (*deliveries, *reports[-2:]):
        Path(stop).unlink()
        url = url_of(temporal, heartbeat_seconds=HEARTBEAT_SECONDS)
        with receiving() as receiver:
            killed = Child(work, url, receiver.url, stop, point)
            try:
                other = start_after(killed, url, receiver, stop)
            finally:
                Path(stop).touch()
            assert killed.join().exitcode == -signal.SIGKILL, point
            other.join().checked()
        assert {event: len(ids) for event, ids in events(receiver).items()} == {"suspended": 1, "completed": 1}, point


def start_after(killed: Child, url: str, receiver: Receiver, stop: str) -> Child:
    """Start another worker as soon as one is dead, while an execution is asked for, answered and awaited."""
    with ThreadPoolExecutor() as pool:
        running = pool.submit(asked_and_answered, url, receiver)
        until(lambda: not killed.process.is_alive() or running.done(), PATIENCE_SECONDS)
        other = Child(work, url, receiver.url, stop)
        running.result()
    return other
