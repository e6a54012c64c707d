"""The contract that every backend fulfils, on a real daprd with SQLite behind it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from strands_durable import DurableBackend, connect
from strands_durable.testing import agents
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run
from strands_durable.testing.dapr import DaprCluster
from tests import threads
from tests.contract.test_c47_everywhere import BulkContract


class TestDapr(BulkContract, BackendContract):
    """A worker in a thread of the process that dispatches. Each test has a sidecar of its own app-id, which starts empty."""

    @pytest.fixture
    def backend(self, run: Run, dapr: DaprCluster) -> Iterator[DurableBackend]:
        assert agents.contract_agent
        sidecar = dapr.add_sidecar(app_id=f"contract-{uuid.uuid4().hex[:8]}")
        backend = connect(sidecar.url)
        with threads.worker(lambda stop: connect(sidecar.url).work(stop=stop, drain_seconds=2)):
            yield backend
        run(backend.close())
        sidecar.stop()
