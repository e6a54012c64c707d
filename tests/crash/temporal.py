"""A task queue with workers in processes of their own, and what must be equal whether they are killed or not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from strands_durable import ExecutionHandle, ExecutionResult, connect
from strands_durable._journal import messages
from strands_durable._journal.sqlite.journal import Journal
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.backends.temporal._protocol import ALIVE, PROGRESS
from strands_durable.testing.temporal import TemporalServer
from tests.crash import crew
from tests.crash.scenarios import Ledger
from tests.processes import Child
from tests.waiting import until

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
HEARTBEAT_SECONDS = 2
PATIENCE_SECONDS = 90


class Site:
    """A task queue of its own, its workers, and the folder that is the outside world to them."""

    def __init__(self, server: TemporalServer, folder: Path, **options: Any) -> None:
        name = uuid.uuid4().hex[:8]
        given = {"task_queue": name, "prefix": f"{name}-", "heartbeat_seconds": HEARTBEAT_SECONDS, **options}
        self.url = f"{server.url}?" + "&".join(f"{key}={value}" for key, value in given.items())
        self.folder = folder
        self._loop = asyncio.new_event_loop()
        backend = connect(self.url)
        assert isinstance(backend, TemporalBackend)
        self.backend = backend
        self._pids: set[int] = set()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # with the process that tries alone what may have killed a worker
        self.run(self.backend.close())
        self._loop.close()

    def run(self, asking: Coroutine[Any, Any, T]) -> T:
        """Ask something of the backend."""
        return self._loop.run_until_complete(asking)

    # Workers

    def worker(self, *args: Any, target: Callable[..., Any] = crew.serve, url: str = "") -> Child:
        """Start a worker, forked from a process that has the imports behind it."""
        child = Child(_lead, target, url or self.url, str(self.folder), *args)
        self._pids.add(child.pid)
        return child

    def typed(self, cwd: Path, *options: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a worker as one types it, in a folder of its own."""
        command = [sys.executable, "-m", "strands_durable", "worker", crew.__file__, "--backend", self.url, *options]
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
                "LEDGER": str(self.folder / "ledger.jsonl"),
                **env,
            },
            start_new_session=True,
        )
        self._pids.add(child.pid)
        return child

    # Executions

    def dispatch(self, execution_id: str, *script: Any, agent: Any = crew.scripted, **given: Any) -> ExecutionHandle:
        """Dispatch an agent with what its model is to say."""
        spec = agent.spec_with(**({"script": list(script)} if script else {}), **given)
        return self.run(self.backend.dispatch(spec, "Go", execution_id=execution_id))

    def result(self, handle: ExecutionHandle, seconds: float = PATIENCE_SECONDS) -> ExecutionResult:
        """Wait for the end of an execution, or for its questions."""
        return self.run(handle.result(seconds))

    def status(self, handle: ExecutionHandle) -> str:
        """Return what an execution is doing."""
        return self.run(handle.status()).value

    def given_out(self, handle: ExecutionHandle) -> list[str]:
        """Return the names of the activities that an execution has had so far, begun or not."""
        return [*self._activities(handle)[0].values()]

    def completed(self, handle: ExecutionHandle) -> list[str]:
        """Return the names of the activities of an execution that have completed."""
        names, ended = self._activities(handle)
        return [names[event_id] for event_id in ended]

    def pardon(self, handle: ExecutionHandle, epoch: int) -> None:
        """Say that a worker that is lost lives."""

        async def say() -> None:
            await (await self.backend.workflow(handle.execution_id)).signal(ALIVE, {"epoch": epoch})

        self.run(say())

    def signal_late(self, handle: ExecutionHandle, epoch: int) -> None:
        """Signal the first batch of a later worker again, as an earlier one that was given up before its signal would."""

        async def send() -> None:
            workflow = await self.backend.workflow(handle.execution_id)
            async for event in workflow.fetch_history_events():
                signaled = event.workflow_execution_signaled_event_attributes
                if signaled.signal_name == PROGRESS:
                    converter = (await self.backend.client()).data_converter
                    (batch,) = await converter.decode(signaled.input.payloads)
                    await workflow.signal(PROGRESS, {**batch, "epoch": epoch})

        self.run(send())

    def _activities(self, handle: ExecutionHandle) -> tuple[dict[int, str], list[int]]:
        async def read() -> tuple[dict[int, str], list[int]]:
            names: dict[int, str] = {}
            ended: list[int] = []
            found = await self.backend.workflow(handle.execution_id)
            async for event in found.fetch_history_events():
                if event.HasField("activity_task_scheduled_event_attributes"):
                    names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
                elif event.HasField("activity_task_completed_event_attributes"):
                    ended.append(event.activity_task_completed_event_attributes.scheduled_event_id)
            return names, ended

        return self.run(read())

    # The outside world

    def ledger(self, **facts: Any) -> list[dict[str, Any]]:
        """Return what was really done, as far as it is like ``facts``."""
        return [
            entry
            for entry in Ledger(self.folder / "ledger.jsonl").read()
            if all(entry.get(name) == value for name, value in facts.items())
        ]

    def until_logged(self, times: int = 1, **facts: Any) -> dict[str, Any]:
        """Wait until something was done so many times; return the last of them."""
        until(lambda: len(self.ledger(**facts)) >= times, PATIENCE_SECONDS)
        return self.ledger(**facts)[times - 1]

    def touch(self, name: str) -> None:
        """Let a file appear that a tool or a model waits for."""
        (self.folder / name).touch()

    # What must be equal

    def seen(self, handle: ExecutionHandle) -> dict[str, Any]:
        """Wait for the end of an execution, and return all of it that a kill may not change: not ids, clocks, attempts."""
        result = self.result(handle).to_json()
        story = self.run(self.backend.history(handle.execution_id))
        journal = story.journal()
        detail = self.run(handle.detail())
        result.pop("execution_id")
        result["message"] = _plain(result["message"])
        return {
            "result": result,
            "calls": [_conversation(journal, row) for row in _calls(story.replica)],
            "steps": [
                (call.scope, step.kind, step.name, step.number, step.state)
                for call in detail.calls
                for step in call.steps
                if step.state == "done"
            ],
        }


def _lead(target: Callable[..., Any], *args: Any) -> None:
    """Run something in a session of its own, so that it can be ended with all that it has started."""
    os.setsid()
    target(*args)


def _calls(replica: Any) -> list[Any]:
    found: list[Any] = replica.read(
        "SELECT calls.scope, calls.lineage, calls.status, json_extract(heads.data, '$.ranges') FROM calls"
        " LEFT JOIN heads ON heads.call = calls.id AND heads.part = 'progress' ORDER BY calls.scope, calls.position"
    )
    return found


def _conversation(journal: Journal, row: Any) -> Any:
    scope, lineage, status, ranges = row
    found = messages.read(journal, lineage, json.loads(ranges)) if ranges else []
    return scope, status, [_plain(message) for message in found]


def _plain(message: Any) -> Any:
    """Return a message without what is random, or a time."""
    return {
        name: {key: part for key, part in value.items() if key != "metrics"} if name == "metadata" else value
        for name, value in message.items()
        if name != "tracking_id"
    }
