"""examples/temporal: a worker is killed inside a booking and another goes on; and what one activity for all would do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.commands import COMMAND
from tests.examples.processes import EXAMPLES, entries, python
from tests.waiting import until

AGENTS = EXAMPLES / "temporal" / "agents.py"


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with open("worker.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()  # `env` has become the worker: there is no process between
        process.wait()


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.wait() == -signal.SIGKILL


@pytest.fixture
def url(temporal: TemporalServer) -> str:
    return f"{temporal.url}?task_queue={uuid.uuid4().hex}&prefix={uuid.uuid4().hex}-&heartbeat_seconds=2"


def test_a_worker_is_killed_inside_a_booking_and_another_one_goes_on(url: str) -> None:
    def command(*words: str, ends_with: int = 0) -> str:
        environment = {**os.environ, "STRANDS_DURABLE_BACKEND": url}
        ended = subprocess.run([*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == ends_with, ended.stdout + ended.stderr
        return ended.stdout

    def worker(**environment: str) -> list[str]:
        return python("-m", "strands_durable", "worker", AGENTS, STRANDS_DURABLE_BACKEND=url, **environment)

    with started(worker(BOOKING_SECONDS="600")) as first:
        words = ["run", f"{AGENTS}:trip_planner", "Book a trip to Paris", "--id", "trip-1", "--detach"]
        assert command(*words) == "trip-1\n"
        until(lambda: entries("bookings.txt"))
        killed(first)
    with started(worker()):
        asked = command("watch", "trip-1", ends_with=5)
        assert "1.0 book_flight        done        attempt 2  flight to Paris booked" in asked
        assert "approval: A hotel in Paris for 420 euros?" in asked
        command("respond", "trip-1", "--answer", '"yes"')
        assert command("watch", "trip-1").splitlines()[-1] == "trip-1 is COMPLETED."
    assert entries("bookings.txt") == ["flight to Paris", "hotel in Paris"]


def test_one_activity_for_all_books_everything_again(temporal: TemporalServer) -> None:
    def worker(**environment: str) -> list[str]:
        return python(EXAMPLES / "temporal" / "one_activity.py", TEMPORAL_ADDRESS=temporal.address, **environment)

    def cli(*words: str) -> str:
        found = shutil.which("temporal") or str(Path(sys.executable).with_name("temporal"))
        command = [found, "workflow", *words, "--workflow-id", "plan-1", "--address", temporal.address]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    with started(worker(BOOKING_SECONDS="600")) as first:
        cli("start", "--type", "PlanTrip", "--task-queue", "one-activity", "--input", '"Book a trip to Paris"')
        until(lambda: Path("bookings.txt").exists() and "hotel" in Path("bookings.txt").read_text())
        killed(first)
    with started(worker()):
        assert "Have a good trip!" in cli("result")
    assert Path("bookings.txt").read_text().splitlines() == ["flight to Paris", "hotel in Paris"] * 2


def test_its_agents_are_those_of_the_script() -> None:
    ours, theirs = (path.read_text().splitlines()[1:] for path in (AGENTS, EXAMPLES / "script" / "agents.py"))
    assert ours == theirs
