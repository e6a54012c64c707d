"""SIGTERM and Ctrl-C for a worker's process: it ends in time, even if code blocks its event loop or a thread does not end.

The signals are seen by a thread, too: Python itself passes them on only once the main thread runs Python code again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from .._records.logs import safe_logger
from .exit_codes import leave_at_once

logger = safe_logger(__name__)

EXIT_SECONDS = 4.6
"""How long the process of a worker may exist after its drain: a moment longer than the worker itself may take to end."""
_LOG_SECONDS = 0.2


class StopSignals:
    """Passes signals on to a worker, and ends the process if that has not done so in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, drain_seconds: float) -> None:
        self._loop, self._stop, self._drain_seconds = loop, stop, drain_seconds
        self._ours, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._is_ending = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen; after the first signal the process ends in time, also after the block. Without one, it is as before."""
        before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        terminate = signal.signal(signal.SIGTERM, self._pass_on)
        interrupt = signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._listen, name="strands-durable-signals", daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            if not self._is_ending:  # the worker failed by itself, and a thread of its files may keep the process
                signal.signal(signal.SIGTERM, terminate or signal.SIG_DFL)
                signal.signal(signal.SIGINT, interrupt or signal.SIG_DFL)
            self._written.close()

    def _pass_on(self, number: int, _: object) -> None:
        with suppress(OSError):
            self._written.send(bytes([number]))  # again: code of an agent may have a wakeup file of its own

    def _interrupt(self, number: int, _: object) -> None:
        """Stop gracefully; the next Ctrl-C ends the process at once."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        click.echo("\nStopping. Press Ctrl-C again to stop at once.", err=True)
        self._pass_on(number, _)

    def _listen(self) -> None:
        """Stop the worker at the first signal, and end the process if it is still there when it must not be."""
        while number := self._ours.recv(1):
            if number[0] in (signal.SIGTERM, signal.SIGINT):
                self._is_ending = True
                with suppress(RuntimeError):  # the worker has ended
                    self._loop.call_soon_threadsafe(self._stop.set)
                self._end_in_time()

    def _end_in_time(self) -> None:
        time.sleep(self._drain_seconds + EXIT_SECONDS)
        saying = threading.Thread(target=self._say_what_is_left, daemon=True)
        saying.start()
        saying.join(_LOG_SECONDS)  # code that is stuck may hold the lock of a stream
        os._exit(0)

    def _say_what_is_left(self) -> None:
        threads = ", ".join(sorted(each.name for each in threading.enumerate() if not each.daemon))
        logger.warning(
            "seconds=<%g>, threads=<%s> | the process has not ended in time and is ended; what still runs is left in doubt",
            self._drain_seconds + EXIT_SECONDS, threads,
        )  # fmt: skip
        leave_at_once(0)
