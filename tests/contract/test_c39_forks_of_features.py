"""C39 on every feature of Strands: a fork at each finished step of each program, run to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.forks import fork_everywhere
from tests.features.harness import load

FEATURES = dict(load())
FEATURES.pop(
    "a session in S3"
)  # what one fork adds to the session would be found by the next; sessions in files are copied
USUAL = ("a limit of turns", "too many tokens, and another call follows")
"""What a change of forks breaks first; the others belong to the long tests."""


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.long) for name in FEATURES]
)
def test_c39_a_fork_at_any_step_ends_like_its_origin_and_runs_nothing_twice(name: str, tmp_path: Path) -> None:
    assert fork_everywhere(FEATURES[name], tmp_path) > 1
