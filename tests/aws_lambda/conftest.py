"""Fixtures of the tests of AWS Lambda."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing.aws_lambda import LocalLambda
from tests.aws_lambda import agents
from tests.aws_lambda.functions import Function


@pytest.fixture
def make(aws: LocalLambda, tmp_path: Path) -> Callable[..., Function]:
    """Return a function in threads of this process, set up as a test wants it."""

    def made(**settings: Any) -> Function:
        handler = lambda_handler(agents.agent, **{"stop_poll_seconds": 0.2, "exits": False, **settings})
        return Function(aws, aws.add(f"f-{uuid.uuid4().hex[:8]}", handler), tmp_path)

    return made
