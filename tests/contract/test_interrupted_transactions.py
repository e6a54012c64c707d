"""A signal handler may raise anywhere: no transaction stays open, and no other thread waits for its lock."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType

from strands_durable._sqlite.open_files import stores

COUNT = 500


class Interrupt(BaseException):
    """What a handler raises."""


def test_an_exception_of_a_signal_handler_leaves_no_transaction_open(tmp_path: Path) -> None:
    store, _ = stores.open(tmp_path / "runs.db")
    interrupts = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupts < COUNT:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0001 * (interrupts % 7), 5.0)  # again, if one is lost
                while True:
                    with store.transaction("test", lasting=False):
                        time.perf_counter()
            except Interrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    done = threading.Event()

    def commit() -> None:
        with store.transaction("test"):
            done.set()

    threading.Thread(target=commit, daemon=True).start()
    assert done.wait(10), "another thread waits for the lock for ever"
