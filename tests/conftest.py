"""Shared fixtures, and the count of kills at the end of a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from strands_durable.testing import forget_process
from tests import engines
from tests.features import table
from tests.features.harness import load

if TYPE_CHECKING:
    from strands_durable.testing.aws_lambda import LocalLambda
    from strands_durable.testing.dapr import DaprCluster
    from strands_durable.testing.temporal import TemporalServer


_QUICK = ('history.transferProcessorUpdateAckInterval="200ms"', 'history.visibilityProcessorUpdateAckInterval="200ms"')
"""Have a server delete what ended a moment ago after seconds; by default it takes half a minute."""


def pytest_configure() -> None:
    """Hear Ctrl-C: a shell that runs the tests in the background has all processes below it ignore that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalLambda]:
    """One local AWS Lambda for all tests of this process that ask for it."""
    from strands_durable.testing.aws_lambda import LocalLambda

    with LocalLambda({}) as found:
        yield found


@pytest.fixture(scope="session")
def dapr() -> Iterator[DaprCluster]:
    """One Dapr for all tests of this process that ask for it; a sidecar with an app-id of its own has an empty store."""
    from strands_durable.testing.dapr import DaprCluster

    with DaprCluster() as cluster:
        yield cluster


_LONG = ("test_chaos", "test_dapr_", "test_fleet", "test_lambda_", "test_random_kills", "test_temporal_")
"""How the files of tests/crash begin that are too long for `make test`."""
_SERVERS = ("temporal", "lambda", "dapr")


def _is_long(item: pytest.Item) -> bool:
    """Return True if a test is left to `make test-long`: fleets, kills on engines, a process for each Lambda invocation.

    Every engine's contract stays in `make test`; each feature of Strands, demos, examples and stored bytes on a server's engine
    do not.
    """
    is_crash = "crash" in item.path.parts and item.path.name.startswith(_LONG)
    is_slow = item.path.name == "test_interleavings.py" or item.path.parent == Path(__file__).parent / "dapr"
    is_feature = item.path.name == "test_backends.py" and any(f"[{name}" in item.name for name in _SERVERS)
    is_stored = any(item.path.name.startswith(f"test_{name}_encryption") for name in _SERVERS)
    is_demo = item.path.name in [f"test_demo_{name}.py" for name in _SERVERS]
    is_example = "examples" in item.path.parts and any(
        item.path.name == f"test_{name}.py" or f"[{name}]" in item.name for name in _SERVERS
    )
    return is_crash or is_slow or is_feature or is_stored or is_demo or is_example


def _needs_dapr(item: pytest.Item) -> bool:
    """Return True if a test starts a sidecar: it has the marker or the fixture, or is one of Dapr's in a folder of engines."""
    folder, *_ = item.path.relative_to(Path(__file__).parent).parts
    is_named = folder in ("contract", "crash", "examples") and item.path.name.startswith("test_dapr")
    is_asked = "dapr" in getattr(item, "fixturenames", ()) or item.get_closest_marker("dapr") is not None
    return folder == "dapr" or is_named or is_asked or "[dapr" in item.name


_LEFT_OUT = pytest.StashKey[int]()
"""How many tests were left out; unknown to a run in several processes, which do this each for itself."""


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests on Dapr where its programs are not: to build them takes minutes, which `make dapr-sidecar` may."""
    if config.option.collectonly or _has_dapr():
        return
    left_out = [item for item in items if _needs_dapr(item)]
    items[:] = [item for item in items if item not in left_out]
    config.stash[_LEFT_OUT] = len(left_out)
    config.hook.pytest_deselected(items=left_out)


@cache
def _has_dapr() -> bool:
    from strands_durable.testing.dapr import find

    return find() is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with what takes long, so that no such test is the last one to run; mark the tiers."""
    config.stash[engines.COLLECTED] = [item.nodeid for item in items]
    _leave_out(config, items)
    for item in items:
        if _is_long(item):
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
    if (
        terminalreporter.config.stash.get(_LEFT_OUT, terminalreporter.config.getoption("numprocesses", 0))
        and not _has_dapr()
    ):
        terminalreporter.write_line(
            "Tests on Dapr were left out: its programs are not installed. `make dapr-sidecar` builds them."
        )
