"""On Temporal, a worker is killed at the boundaries of a run: it resumes elsewhere, and ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.crash import crew, mined
from tests.crash.site import audit
from tests.crash.temporal import Site
from tests.features.harness import _DULL, EVERY_POINT
from tests.waiting import until

PARTS = 16 if EVERY_POINT else 2
"""Eight or nine executions at a time, each with a worker that dies of it."""
SAMPLE = 1 if EVERY_POINT else 6
"""One of so many points. Set EVERY_POINT to die at all of them."""


EFFECTS = {"model", "book", "pay", "charge", "stamp"}


@pytest.fixture(scope="module")
def whole(temporal: TemporalServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str]]:
    """Return the outcome of an undisturbed run, and the points where it can be disturbed."""
    with Site(temporal, tmp_path_factory.mktemp("whole")) as site:
        handle = site.dispatch("whole", agent=crew.traveller)
        site.worker(target=mined.serve)
        expected = site.seen(handle)
        return expected, mined.reached(site.folder, "whole")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_whose_worker_was_killed_ends_as_if_it_had_not_been(
    temporal: TemporalServer, tmp_path: Path, whole: tuple[Any, list[str]], part: int, record_property: Any
) -> None:
    expected, reached = whole
    points = [point for point in reached if EVERY_POINT or not _DULL.match(point)][::SAMPLE][part::PARTS]
    with Site(temporal, tmp_path) as site:
        handles = {point: site.dispatch(f"run-{number}", agent=crew.traveller) for number, point in enumerate(points)}
        for point, handle in handles.items():
            mined.lay(tmp_path, handle.execution_id, point)
        victims = [site.worker(1, False, target=mined.serve) for _ in points]

        def are_taken() -> bool:
            if not any(victim.process.is_alive() for victim in victims):
                victims.append(site.worker(1, False, target=mined.serve))
            return all((tmp_path / f"{handle.execution_id}.points").exists() for handle in handles.values())

        until(are_taken, 60)
        for _ in range(2):
            site.worker(target=mined.serve)
        for point, handle in handles.items():
            assert site.seen(handle) == expected, f"killed at {point}"
            audit(site, handle)
            assert {entry["what"] for entry in site.ledger(execution_id=handle.execution_id)} == EFFECTS
        killed = [point for point, handle in handles.items() if mined.has_blown(tmp_path, handle.execution_id)]
        missed = {*points} - {*killed}
        assert all(point.startswith("report:") for point in missed), "how often a worker reports may vary"
    record_property("kills", len(killed))
