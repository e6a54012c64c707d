"""Every feature of Strands, killed at every boundary: one program each, in tests/features."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.features import table
from tests.features.harness import EVERY_POINT, kill_everywhere, load

FEATURES = load()
LONG = {
    "a Swarm and a Graph of a tool's own",
    "a question inside a swarm, answered in a new process",
    "a swarm in a graph that asks a person",
    "a graph whose nodes ask people",
    "strands.vended_tools: swarm",
    "two calls of one graph",
}
"""Others like them are killed in `make test`, too."""
IS_WRITING = os.environ.get("FEATURES") == "write"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in FEATURES]
)
def test_a_killed_program_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path, record_property: Any) -> None:
    found = FEATURES[name]
    kills = kill_everywhere(found, tmp_path)
    record_property("kills", kills)
    record_property("feature", [found.line, name, kills, found.lossy])
    if not IS_WRITING and not EVERY_POINT:
        outdated = (
            f"docs/guarantees.md does not say that {name!r} was killed at {kills} places: FEATURES=write make test"
        )
        assert table.row((found.line, name, kills, found.lossy)) in table.documented(), outdated


def test_the_table_of_features_has_every_program_and_no_other() -> None:
    names = {table.name_in(row) for row in table.documented()} - {"what runs", "---"}
    assert names == set(FEATURES)
