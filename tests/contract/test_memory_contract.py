"""The contract that every backend fulfils, on the smallest engine that the kit carries."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from strands_durable import DurableBackend, connect
from strands_durable.testing import agents
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run
from tests import threads
from tests.contract.test_c47_everywhere import BulkContract


class TestMemory(BulkContract, BackendContract):
    """A worker in a thread of the process that dispatches."""

    @pytest.fixture
    def backend(self, run: Run) -> Iterator[DurableBackend]:
        assert agents.contract_agent
        backend = connect(f"memory://{uuid.uuid4().hex}")
        with threads.worker(lambda stop: backend.work(stop=stop, drain_seconds=2)):
            yield backend
        run(backend.close())
