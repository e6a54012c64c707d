"""The processes of the demo; none outlives it, whatever happens."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOG = "worker.log"


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process; its output goes to a log file."""
    with (
        open(log_in(folder), "ab") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def log_in(folder: Path) -> Path:
    """Return the log file of all processes."""
    return folder / _LOG


def log_of(folder: Path) -> str:
    """Return the end of the log of all processes."""
    return log_in(folder).read_text(errors="replace")[-2000:]
