"""A hanging factory, unreadable rows, a reader and a backup, under kills, stops and terms: all other executions end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash import chaos


@pytest.mark.timeout(300)
def test_what_cannot_be_run_or_read_does_not_keep_others_from_their_end(tmp_path: Path, record_property: Any) -> None:
    found = chaos.run(tmp_path, 24, 6)
    assert found["executions"] == 24
    record_property("kills", found["strikes"].get("kill", 0))
    print(f"\n{found}")
