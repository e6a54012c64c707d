"""Threads of tests: joined with a limit, since pytest's own has already been spent once it fires inside the test."""

from __future__ import annotations

import asyncio
import gc
import io
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

JOIN_SECONDS = 60.0


def join(*threads: threading.Thread, seconds: float = JOIN_SECONDS) -> None:
    """Wait for threads to end; fail with the stacks of all threads and tasks if they do not."""
    for thread in threads:
        thread.join(seconds)
    late = [thread.name for thread in threads if thread.is_alive()]
    assert not late, f"{', '.join(late)} did not end within {seconds:g} s\n{stacks()}"


@contextmanager
def worker(work: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> Iterator[None]:
    """Run a worker in a thread with a loop of its own; stop it by the event that it is given."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(work(stop)), name="worker of a test", daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        join(thread)
        loop.close()


def stacks() -> str:
    """Return where every thread of this process is, and every task of every loop."""
    text, names = io.StringIO(), {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        print(f"\nThread {names.get(ident, ident)}:", *traceback.format_stack(frame), sep="\n", end="", file=text)
    for task in [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]:
        print(file=text)
        task.print_stack(file=text)
    return text.getvalue()
