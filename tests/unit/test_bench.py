"""What the bench compares can be run: `make bench` is too long for CI, whose quick form leaves a variant out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workload import run_child


@pytest.mark.parametrize("variant", ["plain", "quickened", "durable", "encrypted"])
def test_each_variant_of_the_workload_runs(variant: str, tmp_path: Path) -> None:
    found = run_child("timed", variant=variant, plan=[[1, 1]], folder=str(tmp_path))
    assert found["1"]["cpu_ms"] > 0
