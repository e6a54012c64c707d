"""What the contract tests use: a backend, an event loop, and a folder shared with workers."""

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
    """A backend under test, with a synchronous interface."""

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
        """Dispatch an agent of the contract whose model follows ``script``."""
        spec = agent.spec_with(folder=self.folder, script=list(script))
        handle: ExecutionHandle = self.run(self.backend.dispatch(spec, prompt, execution_id=execution_id, **given))
        return handle

    def dispatch_to_nobody(
        self, *script: Any, prompt: Any = "Go", execution_id: str | None = "trip"
    ) -> ExecutionHandle:
        """Dispatch a version of the agent that no worker has: it stays PENDING."""
        spec = agents.contract_agent.spec_with(folder=self.folder, script=list(script))
        other = replace(spec, fingerprint="0" * len(spec.fingerprint))
        handle: ExecutionHandle = self.run(self.backend.dispatch(other, prompt, execution_id=execution_id))
        return handle

    def result(self, handle: ExecutionHandle) -> ExecutionResult:
        """Wait until a run ends, or asks a question."""
        result: ExecutionResult = self.run(handle.result(self.patience_seconds))
        return result

    def fails(self, handle: ExecutionHandle, error: type[BaseException]) -> Any:
        """Wait for a run that must fail with ``error``, and return the error."""
        with pytest.raises(error) as caught:
            self.result(handle)
        return caught.value

    def status(self, handle: ExecutionHandle) -> ExecutionStatus:
        """Return the status of a run."""
        status: ExecutionStatus = self.run(handle.status())
        return status

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; a worker may run on the loop of the test."""
        deadline = time.monotonic() + self.patience_seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition was not met in time"
            self.run(asyncio.sleep(0.005))

    def until_waiting(self, times: int = 1) -> None:
        """Wait until the agent's tool ``wait`` is running."""
        self.until(lambda: len(self.marks("wait")) >= times)

    def touch(self, name: str = "go") -> None:
        """Create the file that a tool or a model waits for."""
        Path(self.folder, name).touch()

    def marks(self, kind: str) -> list[dict[str, Any]]:
        """Return what tools or models really did."""
        return [mark for mark in agents.marks(self.folder) if mark["kind"] == kind]

    def booked(self) -> list[str]:
        """Return the cities that were really booked."""
        return [mark["city"] for mark in self.marks("book")]


class Contract:
    """The fixtures of the contract."""

    patience_seconds = 30.0
    """How long any operation may take."""

    @pytest.fixture
    def run(self) -> Iterator[Run]:
        """Return a function that runs coroutines, all on one loop."""
        loop = asyncio.new_event_loop()
        try:
            yield loop.run_until_complete
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        """Return a folder that the worker can see too."""
        return str(tmp_path)

    @pytest.fixture
    def backend(self) -> DurableBackend:
        """Return the backend under test."""
        raise NotImplementedError("a subclass of BackendContract must define a fixture 'backend'")

    @pytest.fixture
    def bench(self, backend: DurableBackend, run: Run, folder: str) -> Bench:
        """Return the bench for the backend under test."""
        return Bench(backend, run, folder, self.patience_seconds)
