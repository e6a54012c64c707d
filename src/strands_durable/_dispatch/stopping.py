"""The end of a worker: once it is asked to stop, it ends in time, whatever it waits for.

A frozen server, or a library that retries for ever or swallows a cancel, may keep any part of a worker. Parts that can give up
in good order have limits of their own; this one is around all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from .._records.logs import safe_logger

T = TypeVar("T")
logger = safe_logger(__name__)

END_SECONDS = 4.0
"""How long a worker may take to disconnect after its drain. Users are promised five seconds; the rest is for its process."""
CLOSE_SECONDS = 3.0
"""How long a part of a worker may take to end in good order: less than the worker as a whole."""
_CANCEL_SECONDS = 0.25


async def unless(stop: asyncio.Event, waited: Awaitable[object]) -> None:
    """Wait for something that may never come, or until ``stop`` is set; then it is cancelled."""
    waiting, stopping = asyncio.ensure_future(waited), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not waiting.done():
            waiting.cancel()
    if not waiting.cancelled() and waiting.done():
        waiting.result()


async def in_daemon(function: Callable[[], T], ended: Callable[[], None] = lambda: None) -> T:
    """Return what a function returns that may never do so: in a thread that neither asyncio nor the process waits for.

    ``ended`` is called in that thread once the function has returned, also if nothing waits for it any more.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not outcome.done():
            set_it(value)

    def run() -> None:
        try:
            settled: tuple[Callable[[Any], None], Any] = outcome.set_result, function()
        except BaseException as error:
            settled = outcome.set_exception, _for_a_future(error)
        ended()
        with suppress(RuntimeError):  # the worker has ended
            loop.call_soon_threadsafe(settle, *settled)

    try:
        threading.Thread(target=run, name="strands-durable-outside", daemon=True).start()
    except RuntimeError:  # the process has no thread left
        ended()
        raise
    return await outcome


def _for_a_future(error: BaseException) -> Exception:
    """Return an error that a future takes, which is no StopIteration, and does not pass on to the loop, as SystemExit."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


async def cancelled(*tasks: asyncio.Future[Any], seconds: float = CLOSE_SECONDS) -> None:
    """Cancel tasks, and wait for at most ``seconds``: a client may turn a cancel into an error of its own, or ignore it."""
    for again in (seconds, _CANCEL_SECONDS):
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=again)


async def ended_in_time(working: Coroutine[Any, Any, bool], stop: asyncio.Event, drain_seconds: float) -> bool:
    """Run a worker until it ends, at most ``drain_seconds`` and `END_SECONDS` after ``stop`` is set.

    What it still waits for by then is logged, cancelled and left, and the answer is False.
    """
    running, stopping = asyncio.ensure_future(working), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await asyncio.wait([running], timeout=drain_seconds + END_SECONDS)
    except asyncio.CancelledError:
        await cancelled(running, seconds=drain_seconds + END_SECONDS)
        raise
    finally:
        stopping.cancel()
    if running.done():
        return running.result()
    logger.warning(
        "seconds=<%g>, left=<%s> | the worker has not ended in time, and leaves what it waits for",
        drain_seconds + END_SECONDS, " > ".join(_waits_for(running)),
    )  # fmt: skip
    await cancelled(running, seconds=_CANCEL_SECONDS)
    return False


def _waits_for(task: asyncio.Future[Any]) -> Iterator[str]:
    """Yield where a task waits: functions with file and line, the innermost last."""
    waiting: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
