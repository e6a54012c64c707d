"""The two sides behind one face: what starts a worker, dispatches a run, waits for it, and replays a history."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec

from temporalio.client import Client
from temporalio.worker import Replayer

from bench.temporal.script import prompt_for


class Side(ABC):
    """One of the two."""

    label: str
    packages: tuple[str, ...]

    @property
    @abstractmethod
    def is_there(self) -> bool:
        """Say whether it is installed."""

    @abstractmethod
    def worker_command(self, address: str, queue: str) -> list[str]:
        """Return what starts a worker, as a user would."""

    @abstractmethod
    async def run(self, client: Client, queue: str, workflow_id: str, cycles: int, seconds: float) -> None:
        """Dispatch a run and wait for its end."""

    @abstractmethod
    def replayer(self) -> Replayer:
        """Return what replays the histories of this side."""


class Official(Side):
    """The plugin of Temporal."""

    label = "official plugin"
    packages = ("temporalio-strands-agents",)

    @property
    def is_there(self) -> bool:
        return find_spec("temporalio.strands_agents") is not None

    def worker_command(self, address: str, queue: str) -> list[str]:
        return [sys.executable, "-m", "bench.temporal.official", "worker", address, queue]

    async def run(self, client: Client, queue: str, workflow_id: str, cycles: int, seconds: float) -> None:
        handle = await client.start_workflow("ReadPages", prompt_for(cycles), id=workflow_id, task_queue=queue)
        await asyncio.wait_for(handle.result(), seconds)

    def replayer(self) -> Replayer:
        from bench.temporal.official import replayer

        return replayer()


class Ours(Side):
    """Our backend, by its public names."""

    label = "ours"
    packages = ("strands-durable",)

    @property
    def is_there(self) -> bool:
        return find_spec("strands_durable.backends.temporal") is not None

    def worker_command(self, address: str, queue: str) -> list[str]:
        command = [sys.executable, "-m", "strands_durable", "worker", "bench.temporal.ours", "--quiet"]
        return [*command, "--backend", self._url(address, queue)]

    async def run(self, client: Client, queue: str, workflow_id: str, cycles: int, seconds: float) -> None:
        from bench.temporal.ours import reader
        from strands_durable import connect

        backend = connect(self._url(client.service_client.config.target_host, queue))
        try:
            handle = await backend.dispatch(reader.spec, prompt_for(cycles), execution_id=workflow_id)
            await handle.result(timeout=seconds)
        finally:
            await backend.close()

    def replayer(self) -> Replayer:
        from strands_durable.backends.temporal._worker import ExecutionWorkflow, sandbox

        return Replayer(workflows=[ExecutionWorkflow], workflow_runner=sandbox())

    def _url(self, address: str, queue: str) -> str:
        return f"temporal://{address}?namespace=default&task_queue={queue}"


SIDES: dict[str, Side] = {"official": Official(), "ours": Ours()}
