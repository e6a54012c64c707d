"""Shared fixtures, and the count of kills at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from strands_durable.testing import forget_process
from tests import engines
from tests.features import table
from tests.features.harness import load

if TYPE_CHECKING:
    from strands_durable.testing.temporal import TemporalServer


_QUICK = ('history.transferProcessorUpdateAckInterval="200ms"', 'history.visibilityProcessorUpdateAckInterval="200ms"')
"""Have a server delete what ended a moment ago after seconds; by default it takes half a minute."""


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts as a new process would, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    forget_process()
    yield
    forget_process()


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    """One Temporal server for all tests of this process that ask for it; a test without one fails, it is never skipped."""
    from strands_durable.testing.temporal import TemporalServer  # most runs of a few tests need neither

    with TemporalServer(options=[word for setting in _QUICK for word in ("--dynamic-config-value", setting)]) as server:
        yield server
        server.kill()  # nobody needs what it would put in order


_LONG = ("test_chaos", "test_fleet", "test_temporal_")
"""How the files of tests/crash begin that are too long for `make test`."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with what takes long, so that no such test is the last one to run; mark the tiers."""
    config.stash[engines.COLLECTED] = [item.nodeid for item in items]
    for item in items:
        if "crash" in item.path.parts and item.path.name.startswith(_LONG):
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: "crash" not in item.path.parts)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    kills = [
        int(value)
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
        if name == "kills"
    ]
    outcomes = [
        tuple(value)
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
        if name == "feature"
    ]
    if outcomes and os.environ.get("FEATURES") == "write":
        table.write(outcomes, load())
    if kills:
        terminalreporter.write_line(f"{sum(kills)} processes killed with SIGKILL, in {len(kills)} tests")
