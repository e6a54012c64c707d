"""`strands-durable demo`: a travel agent is killed and resumes, on SQLite, Temporal, AWS Lambda or Dapr, or on a page."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal

from .screen import Lines, LiveTable, Screen
from .trip import DemoError

Backend = Literal["sqlite", "temporal", "lambda", "dapr"]


def run(backend: Backend = "sqlite", *, with_page: bool = False) -> int:
    """Run the demo; return the exit code, which is 0 only if everything happened exactly once.

    ``with_page``: leave three runs in a file, and serve the web page over them until Ctrl-C.
    """
    if with_page:
        from .page import play
    elif backend == "sqlite":
        from .file import play
    elif backend == "temporal":
        from .cluster import play
    elif backend == "dapr":
        from .sidecars import play
    else:
        from .invocations import play
    folder = Path(tempfile.mkdtemp(prefix="strands-durable-demo-"))
    screen: Screen = LiveTable() if sys.stdout.isatty() else Lines()
    try:
        play(folder, screen)
    except DemoError as error:
        screen.say(f"The demo failed: {error}")
        return 1
    return 0
