"""A process of a demo: the script that is run again after a crash, or a worker of the Temporal server that is named."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from .file import work
from .trip import FOLDER


def main(folder: str, url: str | None = None) -> None:
    """Do what the stage has us for."""
    if url is None:
        work(Path(folder))
        return
    os.environ[FOLDER] = folder
    from .._dispatch.connect import connect
    from . import agents  # noqa: F401, a worker carries what is registered

    asyncio.run(connect(url).work())


main(*sys.argv[1:])
