"""The processes of a demo: whatever happens on the stage, none outlives it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOG = "worker.log"


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process; what it says goes to a file."""
    with (
        open(folder / _LOG, "ab") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def log_of(folder: Path) -> str:
    """Return the last words of all processes."""
    return (folder / _LOG).read_text(errors="replace")[-2000:]
