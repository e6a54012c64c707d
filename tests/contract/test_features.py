"""Every feature of Strands, killed at every boundary: one program each, in tests/features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.features.harness import kill_everywhere, load

FEATURES = load()


@pytest.mark.parametrize("name", FEATURES)
def test_a_killed_program_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path, record_property: Any) -> None:
    kills = kill_everywhere(FEATURES[name], tmp_path)
    record_property("kills", kills)
    record_property("feature", [FEATURES[name].line, name, kills])
