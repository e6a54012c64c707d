"""Handles and backends for sync code: Flask, Django, Celery, a script. The async ones, on one event loop in a thread.

The loop is shared by all threads of a process and made on first use; after a fork the child makes its own. A call from a thread
that runs an event loop itself blocks that loop: async code uses the async forms.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Collection, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from .._records.spec import AgentSpec
from .ports import DurableBackend, ExecutionHandle

if TYPE_CHECKING:
    from .._records.views import ExecutionDetail, StepSummary

T = TypeVar("T")


class _Loop:
    """The event loop of this process for its sync callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run async code to its end, in the context of the caller; if he is interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # before the lock: in a fork, it may be held by a thread that is not here
            self._pid, self._loop, self._lock = os.getpid(), None, threading.Lock()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._loop.run_forever, name="strands-durable-sync", daemon=True)
                contextvars.Context().run(thread.start)
            return self._loop


_loop = _Loop()


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run async code to its end from sync code."""
    return _loop.run(work)


class SyncHandle:
    """One execution, held by sync code: an `ExecutionHandle` whose methods return what those of the async one do."""

    def __init__(self, handle: ExecutionHandle) -> None:
        self.execution_id = handle.execution_id
        self._handle = handle

    def __repr__(self) -> str:
        return f"SyncHandle({self.execution_id!r})"

    def status(self) -> ExecutionStatus:
        """Return what the execution is doing."""
        return in_loop(self._handle.status())

    def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait for the end, or until the execution waits for a person, and return it.

        Raises:
            ExecutionFailedError: It failed; the cause is what it failed with.
            ExecutionCancelledError: Somebody cancelled it.
            TimeoutError: It is still at work after ``timeout`` seconds, and goes on.
        """
        return in_loop(self._handle.result(timeout))

    def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""
        return in_loop(self._handle.interrupts())

    def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id; see `ExecutionHandle.respond`."""
        in_loop(self._handle.respond(answers, by=by))

    def cancel(self) -> None:
        """Stop the execution for good; see `ExecutionHandle.cancel`."""
        in_loop(self._handle.cancel())

    def resume(self, *, accept_drift: bool = False) -> None:
        """Try a failed execution again, from the failed step; see `ExecutionHandle.resume`."""
        in_loop(self._handle.resume(accept_drift=accept_drift))

    def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""
        return in_loop(self._handle.steps())

    def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows: of the current run, or of an earlier one under the same id."""
        return in_loop(self._handle.detail(run))

    def stream(self, after: int = 0) -> Iterator[StreamEvent]:
        """Follow the execution: each committed step after number ``after``, then each as it comes, with live chunks between."""
        events = aiter(self._handle.stream(after))
        try:
            while True:
                event = in_loop(_next(events))
                if event is None:
                    return
                yield event
        finally:
            in_loop(_close(events))


class SyncBackend:
    """Where executions run, for sync code: a `DurableBackend` whose methods return what those of the async one do."""

    def __init__(self, backend: DurableBackend) -> None:
        self.url = backend.url
        self._backend = backend

    def __repr__(self) -> str:
        return f"SyncBackend({self.url!r})"

    def dispatch(
        self,
        spec: AgentSpec,
        prompt: Any,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> SyncHandle:
        """Start an execution, or attach to the one that has this id; see `DurableBackend.dispatch`."""
        dispatching = self._backend.dispatch(
            spec, prompt, execution_id=execution_id, invocation_state=invocation_state, limits=limits
        )
        return SyncHandle(in_loop(dispatching))

    def get(self, execution_id: str) -> SyncHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        return SyncHandle(in_loop(self._backend.get(execution_id)))

    def list(
        self,
        *,
        status: ExecutionStatus | Collection[ExecutionStatus] | None = None,
        agent: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[ExecutionRecord]:
        """Return executions, the one that changed last first; ``since`` is a time in seconds since the epoch."""
        return in_loop(self._backend.list(status=status, agent=agent, since=since, limit=limit))

    def start(self) -> None:
        """Have this process work on what waits; see `DurableBackend.start`."""
        self._backend.start()

    def unattended(self) -> str | None:
        """Return a warning with the command that starts a worker if no worker takes what is dispatched here; else None."""
        return in_loop(self._backend.unattended())

    def remove(self, execution_id: str) -> None:
        """Forget an execution that is not at work, with all it recorded."""
        in_loop(self._backend.remove(execution_id))

    def close(self) -> None:
        """Let go of what the backend holds open; executions stay."""
        in_loop(self._backend.close())


async def _next(events: Any) -> StreamEvent | None:
    try:
        found: StreamEvent = await anext(events)
    except StopAsyncIteration:
        return None
    return found


async def _close(events: Any) -> None:
    if hasattr(events, "aclose"):
        await events.aclose()
