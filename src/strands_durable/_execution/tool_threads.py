"""Sync tools in their threads: holding the lease while one runs, and recording a result that its call no longer waits for.

Strands runs a sync tool in a thread, and a thread cannot be stopped: when its call is cancelled, abandoned or timed out, the
tool still charges the card. While it runs, its execution must have no other owner, or a second process would find the step
in doubt and repeat it in parallel. So the lease is held until its last tool has ended, without a limit: a process that must
exit ends the thread, too. What the tool returns is then recorded as the result of its step, from its own thread, because the
event loop that ran the call may be closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

from .._calls.running_tools import RunningTools
from .._records.deadline import TimedOut, limited
from .._records.logs import safe_logger

logger = safe_logger(__name__)


class ToolThread:
    """One call of a sync tool: its function, in a thread.

    Args:
        name: The tool.
        step: Its step, for the log.
        tools: The others under the same lease.
        record: Records what the function returned or raised, in a thread without an event loop.
    """

    def __init__(self, name: str, step: str, tools: RunningTools, record: Callable[[Future[Any]], None]) -> None:
        self.name = name
        self._step, self._tools, self._record = step, tools, record
        self._lock = threading.Lock()
        self._outcome: Future[Any] | None = None
        self._has_ended = self._is_detached = self._is_taken = False

    def run(self, function: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
        """Run the function, in the thread that Strands calls this in."""
        outcome: Future[Any] = Future()
        outcome.set_running_or_notify_cancel()
        with self._lock:
            if self._is_detached or not self._tools.add(self):
                raise CancelledError(f"Tool {self.name!r} was not started because its call has ended")
            self._outcome, self._has_ended = outcome, False
        try:
            value = function(*args, **given)
            outcome.set_result(value)
        except BaseException as error:
            outcome.set_exception(error)
            raise
        finally:
            del outcome  # it may hold the error, whose traceback holds this frame
            self._end()
        return value

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
            is_late, is_done = self._is_detached, self._is_taken
        if is_late:
            self._record_late()
        elif is_done:
            self._tools.remove(self)

    @property
    def outcome(self) -> Future[Any] | None:
        """What the function returned or raised, or will; None if it has not started."""
        return self._outcome

    async def wait(self, seconds: float | None) -> None:
        """Wait for the end of the function, on the loop of its call."""
        loop, ended, outcome = asyncio.get_running_loop(), asyncio.Event(), self._outcome
        if outcome is None:
            return

        def tell(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: no call waits
                loop.call_soon_threadsafe(ended.set)

        outcome.add_done_callback(tell)
        try:
            with suppress(TimedOut):
                await limited(ended.wait(), seconds)
        except asyncio.CancelledError:
            self.detach()
            raise

    @property
    def is_detached(self) -> bool:
        """Whether its result is recorded without its call."""
        return self._is_detached

    def take(self) -> bool:
        """Let the call record the result; return False if it is recorded without that call.

        A middleware may have answered in place of a tool that still runs: then the lease is held, and nothing else is recorded.
        """
        with self._lock:
            if self._is_detached:
                return False
            self._is_taken, is_running = True, self._outcome is not None and not self._has_ended
            self._outcome = None
        if not is_running:
            self._tools.remove(self)
        return True

    def detach(self) -> None:
        """The call no longer waits: record the result when it arrives, and hold the lease until then."""
        with self._lock:
            if self._is_detached or self._is_taken:
                return
            self._is_detached = True
            has_begun, has_ended = self._outcome is not None, self._has_ended
        if not has_begun:
            return
        if has_ended:  # its result was on the way to a loop that no longer accepts it
            threading.Thread(target=self._record_late, name="strands-durable-late-result").start()
            return
        logger.warning(
            "execution_id=<%s>, step=<%s>, tool=<%s> | the call has ended, but its tool still runs in a thread: "
            "keeping the lease until it ends, then recording its result",
            self._tools.execution_id, self._step, self.name,
        )  # fmt: skip

    def _record_late(self) -> None:
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        try:
            self._record(outcome)
            logger.info(
                "execution_id=<%s>, step=<%s>, tool=<%s> | late result recorded",
                self._tools.execution_id, self._step, self.name,
            )  # fmt: skip
        except BaseException as error:
            logger.warning(
                "execution_id=<%s>, step=<%s>, tool=<%s>, error=<%r> | late result not recorded, the step is in doubt",
                self._tools.execution_id, self._step, self.name, error,
            )  # fmt: skip
        finally:
            del outcome
            self._tools.remove(self)
