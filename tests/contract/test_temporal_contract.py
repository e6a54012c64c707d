"""The contract that every backend fulfils, on a real Temporal server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from strands_durable import DurableBackend, connect
from strands_durable.testing import agents
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run
from strands_durable.testing.temporal import TemporalServer
from tests import threads
from tests.contract.test_c47_everywhere import BulkContract


class TestTemporal(BulkContract, BackendContract):
    """A worker in a thread of the process that dispatches."""

    patience_seconds = 60.0

    @pytest.fixture
    def backend(self, run: Run, temporal: TemporalServer) -> Iterator[DurableBackend]:
        assert agents.contract_agent
        name = uuid.uuid4().hex[:8]
        url = f"{temporal.url}?task_queue={name}&prefix={name}-"
        backend = connect(url)
        with threads.worker(lambda stop: connect(url).work(stop=stop, drain_seconds=2)):
            yield backend
        run(backend.close())
