"""A page with a worker, for each test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.site import Site, site


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Site]:
    """A page over a SQLite file, mounted for a person named anna."""
    with site(str(tmp_path)) as found:
        yield found
