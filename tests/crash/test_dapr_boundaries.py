"""On Dapr, a worker is killed at the boundaries of a run: another one resumes it, and it ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle
from strands_durable._records import crash_points
from tests.crash import crew, mined
from tests.crash.sidecars import DaprSite
from tests.crash.site import audit
from tests.features.harness import _DULL, EVERY_POINT
from tests.processes import Child
from tests.waiting import until

PARTS, SAMPLE = (12, 1) if EVERY_POINT else (2, 4)
"""Tests that share the points, and one of how many points is taken. Set EVERY_POINT to die at all of them."""


def serve(url: str, folder: str, execution_id: str) -> None:
    """Be a worker that runs one execution, notes the points that it reaches, and dies where that was asked for."""
    crash_points.listen(lambda name: mined.pass_point(Path(folder), execution_id, name))
    crew.serve(url, folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str]]:
    """Return the outcome of an undisturbed run, and the points where it can be disturbed."""
    with DaprSite(tmp_path_factory.mktemp("whole")) as site:
        handle = site.dispatch("whole", agent=crew.traveller)
        site.worker("whole", target=serve)
        return site.seen(handle), mined.reached(site.folder, "whole")


def _dies(site: DaprSite, handle: ExecutionHandle, victim: Child) -> bool:
    """Return True if the worker died at the point of its execution, and False if it left because the execution has ended."""
    until(lambda: not victim.process.is_alive() or site.status(handle) == "COMPLETED", 60)
    victim.process.terminate()
    victim.join()
    return mined.has_blown(site.folder, handle.execution_id)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_c10_a_run_whose_worker_was_killed_ends_as_if_it_had_not_been(
    tmp_path: Path, whole: tuple[Any, list[str]], part: int, record_property: Any
) -> None:
    expected, reached = whole
    points = [point for point in reached if EVERY_POINT or not _DULL.match(point)][::SAMPLE][part::PARTS]
    assert len(points) > 3
    missed: list[str] = []
    with DaprSite(tmp_path) as site:
        for number, point in enumerate(points):
            execution_id = f"run-{number}"
            mined.lay(tmp_path, execution_id, point)
            handle = site.dispatch(execution_id, agent=crew.traveller)
            victim = site.worker(execution_id, target=serve)
            missed.extend([] if _dies(site, handle, victim) else [point])
            heir = site.worker()
            assert site.seen(handle) == expected, f"killed at {point}"
            audit(site, handle)
            site.killed(heir)
    assert all(point.startswith("append:") for point in missed), "tools that end together may be one append or two"
    record_property("kills", 2 * len(points) - len(missed))


def test_c11_a_model_call_in_doubt_is_made_again(tmp_path: Path, record_property: Any) -> None:
    with DaprSite(tmp_path) as site:
        handle = site.dispatch("run", "Done.", waits_for="go")
        first = site.worker()
        site.until_logged(what="model")
        site.killed(first)
        site.touch("go")
        site.worker()
        assert str(site.result(handle)).strip() == "Done."
        assert [entry["attempt"] for entry in site.ledger(what="model")] == [1, 2]
    record_property("kills", 1)
