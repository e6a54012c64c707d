"""The contract that every backend fulfils, on AWS Lambda's durable functions: AWS's SDK, and its local runner over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from strands_durable import DurableBackend, connect
from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing import agents
from strands_durable.testing.aws_lambda import LocalLambda
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run
from tests.contract.test_c47_everywhere import BulkContract


class TestLambda(BulkContract, BackendContract):
    """The function runs in threads of the process that dispatches."""

    @pytest.fixture
    def backend(self, run: Run, aws: LocalLambda) -> Iterator[DurableBackend]:
        every = (
            agents.contract_agent,
            agents.contract_structured,
            agents.contract_graph,
            agents.contract_swarm,
            agents.contract_deadline,
        )
        handler = lambda_handler(*every, stop_poll_seconds=0.2, exits=False)
        backend = connect(aws.add(f"contract-{uuid.uuid4().hex[:8]}", handler))
        yield backend
        run(backend.close())
