"""What the tests of the contract stand on: a backend, a loop, and a folder that workers share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ... import DurableAgent, DurableBackend, ExecutionHandle, ExecutionResult, ExecutionStatus
from .. import agents

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]
S = ExecutionStatus

WAIT = {"tool": "wait", "path": "go"}
BOOK = {"tool": "book", "city": "Paris"}


class Bench:
    """A backend under test, in sync clothes."""

    def __init__(self, backend: DurableBackend, run: Run, folder: str, patience_seconds: float) -> None:
        self.backend, self.run, self.folder = backend, run, folder
        self.patience_seconds = patience_seconds

    def dispatch(
        self,
        *script: Any,
        prompt: Any = "Go",
        execution_id: str | None = "trip",
        agent: DurableAgent = agents.contract_agent,
        **given: Any,
    ) -> ExecutionHandle:
        """Dispatch an agent of the contract whose model says ``script``."""
        spec = agent.spec_with(folder=self.folder, script=list(script))
        found: ExecutionHandle = self.run(self.backend.dispatch(spec, prompt, execution_id=execution_id, **given))
        return found

    def dispatch_to_nobody(
        self, *script: Any, prompt: Any = "Go", execution_id: str | None = "trip"
    ) -> ExecutionHandle:
        """Dispatch a version of the agent that no worker has: it stays PENDING."""
        spec = agents.contract_agent.spec_with(folder=self.folder, script=list(script))
        other = replace(spec, fingerprint="0" * len(spec.fingerprint))
        found: ExecutionHandle = self.run(self.backend.dispatch(other, prompt, execution_id=execution_id))
        return found

    def result(self, handle: ExecutionHandle) -> ExecutionResult:
        """Wait for the end of a run, or for its questions."""
        found: ExecutionResult = self.run(handle.result(self.patience_seconds))
        return found

    def fails(self, handle: ExecutionHandle, error: type[BaseException]) -> Any:
        """Wait for the end of a run that must end with ``error``, and return it."""
        with pytest.raises(error) as caught:
            self.result(handle)
        return caught.value

    def status(self, handle: ExecutionHandle) -> ExecutionStatus:
        """Return what a run is doing."""
        found: ExecutionStatus = self.run(handle.status())
        return found

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; a worker may live on the loop of the test."""
        deadline = time.monotonic() + self.patience_seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            self.run(asyncio.sleep(0.005))

    def until_waiting(self, times: int = 1) -> None:
        """Wait until the tool ``wait`` of the agent runs."""
        self.until(lambda: len(self.marks("wait")) >= times)

    def touch(self, name: str = "go") -> None:
        """Let the file appear that a tool or a model waits for."""
        Path(self.folder, name).touch()

    def marks(self, kind: str) -> list[dict[str, Any]]:
        """Return what was really done, by tools or models."""
        return [mark for mark in agents.marks(self.folder) if mark["kind"] == kind]

    def booked(self) -> list[str]:
        """Return the cities that were really booked."""
        return [mark["city"] for mark in self.marks("book")]


class Contract:
    """The fixtures of the contract."""

    patience_seconds = 30.0
    """How long anything may take."""

    @pytest.fixture
    def run(self) -> Iterator[Run]:
        """Run coroutines, all on one loop."""
        loop = asyncio.new_event_loop()
        try:
            yield loop.run_until_complete
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        """A folder that the worker sees, too."""
        return str(tmp_path)

    @pytest.fixture
    def backend(self) -> DurableBackend:
        """Return the backend under test."""
        raise NotImplementedError("a subclass of BackendContract has a fixture 'backend'")

    @pytest.fixture
    def bench(self, backend: DurableBackend, run: Run, folder: str) -> Bench:
        """Give the tests what they stand on."""
        return Bench(backend, run, folder, self.patience_seconds)
