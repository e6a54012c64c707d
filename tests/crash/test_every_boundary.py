"""SIGKILL at every journal boundary, inside every tool and inside every model call of each scenario."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.audit import audit
from tests.crash.scenarios import SCENARIOS, Ledger, play
from tests.processes import run


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_run_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path, record_property) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    expected = run(play, name, str(whole)).checked()
    keys = {entry["key"] for entry in Ledger(whole / "ledger.jsonl").read()}
    points = expected["points"]
    assert any(point.startswith("tool ") for point in points)
    assert any(":chunk" in point for point in points)
    for number, point in enumerate(points):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed = run(play, name, str(folder), point)
        assert killed.exitcode == -signal.SIGKILL, f"{point}: {killed}"
        found = run(play, name, str(folder)).checked()
        assert found["results"] == expected["results"], point
        audit(folder, "trip", keys)
        if number % 4 == 0:  # what has ended is the same wherever it was killed
            again = run(play, name, str(folder)).checked()
            assert again["results"] == expected["results"], point
            assert not [reached for reached in again["points"] if reached.startswith(("model", "tool"))], point
    record_property("kills", len(points))
    print(f"\n{name}: {len(points)} kills")
