"""A function on the local runner, in this process or in processes of its own, and the folder its tools write to."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strands_durable import ExecutionHandle, connect
from strands_durable.backends.aws_lambda import LambdaBackend
from strands_durable.testing.aws_lambda import LocalLambda
from tests.aws_lambda import agents
from tests.aws_lambda.agents import ledger
from tests.waiting import until


class Function:
    """A function on the local runner, and a folder in which its tools write what they do."""

    def __init__(self, aws: LocalLambda, url: str, folder: Path) -> None:
        self.aws, self.url, self.folder = aws, url, folder
        backend = connect(url)
        assert isinstance(backend, LambdaBackend)
        self.backend = backend

    def dispatch(self, *script: Any, execution_id: str = "run", prompt: str = "Go", **given: Any) -> ExecutionHandle:
        spec = agents.agent.spec_with(folder=str(self.folder), script=list(script), **given)
        return asyncio.run(self.backend.dispatch(spec, prompt, execution_id=execution_id))

    def result(self, handle: ExecutionHandle, seconds: float = 60) -> Any:
        return asyncio.run(handle.result(seconds))

    def text(self, *script: Any, **given: Any) -> str:
        return str(self.result(self.dispatch(*script, **given))).strip()

    def ended(self, *script: Any, **given: Any) -> ExecutionHandle:
        """Run a script, and return once the runner has recorded the end, too, which follows the result."""
        handle = self.dispatch(*script, **given)
        self.result(handle)
        until(lambda: self.count(handle, "ExecutionSucceeded") == 1)
        return handle

    def names(self) -> list[str]:
        return [entry["name"] for entry in ledger(self.folder)]

    def events(self, handle: ExecutionHandle) -> list[dict[str, Any]]:
        arn = asyncio.run(self.backend.read(handle.execution_id)).root.name
        pages = self.aws.client().get_paginator("get_durable_execution_history")
        given = {"DurableExecutionArn": arn, "IncludeExecutionData": True, "PaginationConfig": {"PageSize": 1000}}
        return [event for page in pages.paginate(**given) for event in page["Events"]]

    def count(self, handle: ExecutionHandle, kind: str) -> int:
        return sum(event["EventType"] == kind for event in self.events(handle))

    def open_callbacks(self, handle: ExecutionHandle) -> dict[str, str]:
        return dict(asyncio.run(self.backend.read(handle.execution_id)).log.callbacks.open)


@contextmanager
def apart(folder: Path, timeout_seconds: float = 900, **settings: Any) -> Iterator[Function]:
    """Have a function whose invocations are processes of their own."""
    os.environ["LAMBDA_SETTINGS"] = json.dumps({"stop_poll_seconds": 0.2, **settings})
    with LocalLambda({"apart": "tests.aws_lambda.function:handler"}, timeout_seconds=timeout_seconds) as found:
        yield Function(found, found.url("apart"), folder)


def ask(what: str) -> dict[str, str]:
    return {"tool": "approve", "what": what}
