"""The contract that every backend fulfils, on a real daprd with SQLite behind it."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator

import pytest

from strands_durable import DurableBackend, connect
from strands_durable.testing import agents
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run
from strands_durable.testing.dapr import DaprCluster
from tests.contract.test_c47_everywhere import BulkContract


class TestDapr(BulkContract, BackendContract):
    """A worker in a thread of the process that dispatches. Each test has a sidecar of its own app-id, which starts empty."""

    @pytest.fixture
    def backend(self, run: Run, dapr: DaprCluster) -> Iterator[DurableBackend]:
        assert agents.contract_agent
        sidecar = dapr.add_sidecar(app_id=f"contract-{uuid.uuid4().hex[:8]}")
        backend = connect(sidecar.url)
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        working = connect(sidecar.url).work(stop=stop, drain_seconds=2)
        thread = threading.Thread(target=lambda: loop.run_until_complete(working))
        thread.start()
        yield backend
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        run(backend.close())
        sidecar.stop()
