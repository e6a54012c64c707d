"""The contract that every backend fulfils, on the smallest engine that the kit carries."""

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
from tests.contract.test_c47_everywhere import BulkContract


class TestMemory(BulkContract, BackendContract):
    """A worker in a thread of the process that dispatches."""

    @pytest.fixture
    def backend(self, run: Run) -> Iterator[DurableBackend]:
        assert agents.contract_agent
        backend = connect(f"memory://{uuid.uuid4().hex}")
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        work = backend.work(stop=stop, drain_seconds=2)
        thread = threading.Thread(target=lambda: loop.run_until_complete(work))
        thread.start()
        yield backend
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        run(backend.close())
