"""Workers of an engine in processes of their own, and what must be equal whether they are killed or not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from strands_durable import DurableBackend, ExecutionHandle, ExecutionResult
from strands_durable._enginekit.log import RecordedExecution
from strands_durable._journal import messages
from strands_durable._records.views import ExecutionDetail
from strands_durable._sqlite.journal import Journal
from tests.crash import crew
from tests.crash.scenarios import Ledger
from tests.processes import Child
from tests.waiting import until

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 90


class EngineSite(ABC):
    """An engine, its workers, and the folder that is the outside world to them."""

    backend: DurableBackend

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._loop = asyncio.new_event_loop()
        self._pids: set[int] = set()

    def __enter__(self) -> Self:
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

    def typed(self, cwd: Path, *options: str, file: str | None = crew.__file__, **env: str) -> subprocess.Popen[bytes]:
        """Start a worker as one types it, in a folder of its own."""
        command = [sys.executable, "-m", "strands_durable", "worker", str(file), "--backend", self.url, *options]
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
        result = self.result(handle)
        return seen(result, self.recorded(handle), self.run(handle.detail()))

    @abstractmethod
    def recorded(self, handle: ExecutionHandle) -> RecordedExecution:
        """Return what the engine has recorded of an execution."""


def seen(ended: ExecutionResult, story: RecordedExecution, detail: ExecutionDetail) -> dict[str, Any]:
    """Return all of an execution that a kill may not change: not ids, clocks, attempts."""
    journal, result = story.journal(), ended.to_json()
    result.pop("execution_id")
    result["message"] = _plain(result["message"])
    return {
        "result": result,
        "calls": [_conversation(journal, row) for row in _calls(story.replica)],
        "steps": sorted(  # tools of one answer run at the same time: the order of their attempts may differ
            (call.scope, step.number, step.kind, step.name, step.state)
            for call in detail.calls
            for step in call.steps
            if step.state == "done"
        ),
    }


def audit(site: Any, handle: ExecutionHandle, most: int = 2) -> None:
    """Compare what is recorded of an execution with what was really done: ``most`` attempts at one step, each made once."""
    done: dict[str, list[int]] = defaultdict(list)
    for entry in site.ledger(execution_id=handle.execution_id):
        done[f"{entry['what']} {entry['key']}"].append(entry["attempt"])
    for what, attempts in done.items():
        assert len(attempts) == len(set(attempts)), f"{what}: an attempt was made twice: {attempts}"
        assert len(attempts) <= most, f"{what}: {attempts}"
    stamps: dict[str, set[str]] = defaultdict(set)
    for entry in site.ledger(execution_id=handle.execution_id, what="stamp"):
        stamps[entry["place"]].add(entry["key"])
    for place, found in stamps.items():
        assert len(found) == 2, f"the two direct calls for {place} have the same keys in every attempt: {found}"
    calls = site.run(handle.detail()).calls
    ended = [f"{call.scope} {step.key}" for call in calls for step in call.steps if step.state == "done"]
    assert len(ended) == len(set(ended)), "one attempt of each step is done"


def _lead(target: Callable[..., Any], *args: Any) -> Any:
    """Run something in a session of its own, so that it can be ended with all that it has started."""
    os.setsid()
    return target(*args)


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
