from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable.testing.dapr import DaprCluster
from tests.dapr.running import DaprBench


@pytest.fixture
def bench(dapr: DaprCluster, tmp_path: Path) -> Iterator[DaprBench]:
    """Return a backend on an empty store, without a worker."""
    bench = DaprBench(dapr, str(tmp_path))
    yield bench
    bench.close()
