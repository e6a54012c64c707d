"""A process of its own for executions that may have killed their worker: they are tried there, one at a time and alone."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Sequence

logger = logging.getLogger(__name__)

_RESTART_SECONDS = 1.0


class Trials:
    """Keeps such a process while there is something to try. It ends when its standard input does: with us, however we end."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = float("-inf")

    def begin(self) -> None:
        """Start the process, if it does not run; not more than once a second, as what it tries may kill it."""
        is_running = self._process is not None and self._process.poll() is None
        if is_running or time.monotonic() - self._started_at < _RESTART_SECONDS:
            return
        if self._process is not None:
            logger.warning(
                "exit_code=<%s> | the process that tries executions alone has died", self._process.returncode
            )
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
        logger.info("pid=<%d> | trying alone what may have killed a worker", self._process.pid)

    def end(self, seconds: float) -> None:
        """Have the process stop in order."""
        if self._process is None or self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
