"""A process of the demo: the script that runs again after a crash, or a worker for the Temporal server at ``url``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from .file import work
from .trip import FOLDER


def main(folder: str, url: str | None = None) -> None:
    """Run the script, or the worker if there is a URL."""
    if url is None:
        work(Path(folder))
        return
    os.environ[FOLDER] = folder
    from ..._dispatch.connect import connect
    from . import agents, office  # noqa: F401, a worker runs the agents that are registered

    asyncio.run(connect(url).work())


main(*sys.argv[1:])
