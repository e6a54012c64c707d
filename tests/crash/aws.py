"""A durable function with a process for each invocation, and the folder that is the outside world to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil

from strands_durable import ExecutionHandle, ExecutionResult, connect
from strands_durable.backends.aws_lambda import LambdaBackend
from strands_durable.testing.aws_lambda import LocalLambda
from tests.crash import crew
from tests.crash.scenarios import Ledger
from tests.crash.site import seen

T = TypeVar("T")
PATIENCE_SECONDS = 120


class LambdaSite:
    """AWS's local runner, a function, and what was really done."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        os.environ["LEDGER"] = str(folder / "ledger.jsonl")
        self._aws = LocalLambda({"crew": "tests.crash.lambda_function:handler"}, **{"retry_seconds": 0.1, **options})
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> LambdaSite:
        self._aws.__enter__()
        backend = connect(self._aws.url("crew"))
        assert isinstance(backend, LambdaBackend)
        self.backend = backend
        return self

    def __exit__(self, *error: object) -> None:
        self._aws.__exit__()
        self._loop.close()

    def run(self, asking: Coroutine[Any, Any, T]) -> T:
        """Ask something of the backend."""
        return self._loop.run_until_complete(asking)

    def dispatch(self, execution_id: str, *script: Any, agent: Any = crew.scripted, **given: Any) -> ExecutionHandle:
        """Dispatch an agent with what its model is to say."""
        spec = agent.spec_with(**({"script": list(script)} if script else {}), **given)
        return self.run(self.backend.dispatch(spec, "Go", execution_id=execution_id))

    def result(self, handle: ExecutionHandle) -> ExecutionResult:
        """Wait for the end of an execution, or for its questions."""
        return self.run(handle.result(PATIENCE_SECONDS))

    def seen(self, handle: ExecutionHandle) -> dict[str, Any]:
        """Wait for the end of an execution, and return all of it that a kill may not change."""
        result = self.result(handle)
        return seen(result, self.run(self.backend.read(handle.execution_id)), self.run(handle.detail()))

    def ledger(self, **facts: Any) -> list[dict[str, Any]]:
        """Return what was really done, as far as it is like ``facts``."""
        return [
            entry
            for entry in Ledger(self.folder / "ledger.jsonl").read()
            if all(entry.get(name) == value for name, value in facts.items())
        ]

    def invocations(self) -> list[psutil.Process]:
        """Return the processes that run invocations now."""
        return psutil.Process(self._aws.function_pid("crew")).children()
