"""The contract that every backend fulfils, on ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable import DurableBackend, connect
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run


class TestSqlite(BackendContract):
    """A worker in a thread of the process that dispatches."""

    @pytest.fixture
    def backend(self, run: Run, tmp_path: Path) -> Iterator[DurableBackend]:
        backend = connect(f"sqlite:///{tmp_path}/runs.db")
        yield backend
        run(backend.close())
