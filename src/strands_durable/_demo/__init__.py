"""`strands-durable demo`: a travel agent is killed in the middle of a booking and resumes, on SQLite or on Temporal."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal

from .screen import Lines, LiveTable, Screen
from .trip import DemoError


def run(backend: Literal["sqlite", "temporal"] = "sqlite") -> int:
    """Run the demo; return the exit code, which is 0 only if everything happened exactly once."""
    if backend == "sqlite":
        from .file import play
    else:
        from .cluster import play
    folder = Path(tempfile.mkdtemp(prefix="strands-durable-demo-"))
    screen: Screen = LiveTable() if sys.stdout.isatty() else Lines()
    try:
        play(folder, screen)
    except DemoError as error:
        screen.say(f"The demo failed: {error}")
        return 1
    return 0
