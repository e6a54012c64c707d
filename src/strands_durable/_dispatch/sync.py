"""Handles and backends for sync code: Flask, Django, Celery, a script. The async ones, on one event loop in a thread.

The loop is shared by all threads of a process and created on first use; after a fork the child creates its own. A call from a
thread that runs an event loop itself blocks that loop: async code uses the async forms.
"""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from .._records.executions import ExecutionRecord, ExecutionStatus, StatusCount
from .._records.findings import Finding
from .._records.rekeyed import Rekeyed
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from .._records.spec import AgentSpec
from .handles import ExecutionHandle
from .ports import DurableBackend

if TYPE_CHECKING:
    from .._records.origins import ForkPoint
    from .._records.retention import Pruned, Retention
    from .._records.verification import Verification
    from .._records.views import ExecutionDetail, OpenQuestion, StepSummary
    from .notifications.hooks import Callback
    from .notifications.webhooks import Webhook

T = TypeVar("T")


class _Loop:
    """The event loop of this process for its sync callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run async code to its end, in the context of the caller; if the caller is interrupted, cancel it."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run async code."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # before the lock: in a fork, a thread of the parent may hold it for ever
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


async def aside(work: Coroutine[Any, Any, T]) -> T:
    """Run async code on that loop from any other; it runs to its end even if the caller is cancelled."""
    return await asyncio.shield(asyncio.wrap_future(_loop.begin(work)))


class SyncHandle:
    """One execution, for sync code: an `ExecutionHandle` with sync methods."""

    def __init__(self, handle: ExecutionHandle) -> None:
        self.execution_id = handle.execution_id
        self._handle = handle

    def __repr__(self) -> str:
        return f"SyncHandle({self.execution_id!r})"

    def status(self) -> ExecutionStatus:
        """Return the status of the execution."""
        return in_loop(self._handle.status())

    def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait until the execution ends or waits for a person, and return its result.

        Raises:
            ExecutionFailedError: It failed; the cause is the error it failed with.
            ExecutionCancelledError: It was cancelled.
            TimeoutError: It has not ended within ``timeout`` seconds. It keeps running.
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
        """Retry a failed execution from the failed step; see `ExecutionHandle.resume`."""
        in_loop(self._handle.resume(accept_drift=accept_drift))

    def fork(
        self,
        *,
        at: int | None = None,
        execution_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        messages: Sequence[Any] | None = None,
        prompt: Any = None,
        by: str | None = None,
    ) -> SyncHandle:
        """Start a new execution from a finished step of this one; see `ExecutionHandle.fork`."""
        found = self._handle.fork(
            at=at, execution_id=execution_id, state=state, messages=messages, prompt=prompt, by=by
        )
        return SyncHandle(in_loop(found))

    def fork_point(self, at: int | None = None) -> ForkPoint:
        """Return the conversation and the state that a fork would begin with; see `ExecutionHandle.fork_point`."""
        return in_loop(self._handle.fork_point(at))

    def hold(self) -> None:
        """Keep the execution from being removed; see `ExecutionHandle.hold`."""
        in_loop(self._handle.hold())

    def release(self) -> None:
        """Take back `hold`; see `ExecutionHandle.release`."""
        in_loop(self._handle.release())

    def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""
        return in_loop(self._handle.steps())

    def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows of the current run, or of an earlier one under the same id."""
        return in_loop(self._handle.detail(run))

    def recorded_bytes(self, digest: str) -> bytes:
        """Return bytes of more than a kilobyte; see `ExecutionHandle.recorded_bytes`."""
        return in_loop(self._handle.recorded_bytes(digest))

    def export(self, *, contents: bool = True) -> dict[str, Any]:
        """Return everything that is recorded, or only its shape; see `ExecutionHandle.export`."""
        return in_loop(self._handle.export(contents=contents))

    def stream(self, after: int = 0) -> Iterator[StreamEvent]:
        """Follow the execution; see `ExecutionHandle.stream`."""
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
    """Where executions run, for sync code: a `DurableBackend` with sync methods."""

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
        tags: Mapping[str, str] | None = None,
    ) -> SyncHandle:
        """Start an execution, or attach to the one that has this id; see `DurableBackend.dispatch`."""
        dispatching = self._backend.dispatch(
            spec, prompt, execution_id=execution_id, invocation_state=invocation_state, limits=limits, tags=tags
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
        tags: Mapping[str, str] | None = None,
        search: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        with_errors: bool = False,
    ) -> builtins.list[ExecutionRecord]:
        """Return executions, most recently changed first; see `DurableBackend.list`."""
        listing = self._backend.list(
            status=status, agent=agent, since=since, tags=tags, search=search, before=before, limit=limit,
            with_errors=with_errors,
        )  # fmt: skip
        return in_loop(listing)

    def questions(self, *, since: float | None = None, limit: int | None = None) -> builtins.list[OpenQuestion]:
        """Return the open questions of all executions; see `DurableBackend.questions`."""
        return in_loop(self._backend.questions(since=since, limit=limit))

    def expire_questions(self) -> int:
        """Answer the questions whose time is over with their default answers; return how many."""
        return in_loop(self._backend.expire_questions())

    def notify(
        self,
        *,
        on_suspended: Callback | None = None,
        on_failed: Callback | None = None,
        on_completed: Callback | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """Have the workers of this process report executions that wait, fail or complete; see `DurableBackend.notify`."""
        self._backend.notify(
            on_suspended=on_suspended, on_failed=on_failed, on_completed=on_completed, webhooks=webhooks
        )

    def start(self) -> None:
        """Make this process run what is queued; see `DurableBackend.start`."""
        self._backend.start()

    def counts(self) -> dict[ExecutionStatus, StatusCount]:
        """Return how many executions have each status, and since when; see `DurableBackend.counts`."""
        return in_loop(self._backend.counts())

    def examine(self) -> tuple[Finding, ...]:
        """Return what was checked here, what is wrong and what to do."""
        return in_loop(self._backend.examine())

    def unattended(self) -> str | None:
        """Return a warning with the command that starts a worker if no worker runs what is dispatched here; else None."""
        return in_loop(self._backend.unattended())

    def import_execution(self, export: Mapping[str, Any], *, execution_id: str | None = None) -> SyncHandle:
        """Record an execution that was exported; see `DurableBackend.import_execution`."""
        return SyncHandle(in_loop(self._backend.import_execution(export, execution_id=execution_id)))

    def backup(
        self, to: str | os.PathLike[str], *, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Copy everything that is recorded to a new file, while it is in use; see `DurableBackend.backup`."""
        return in_loop(self._backend.backup(to, force=force, progress=progress))

    def verify(self, *, progress: Callable[[str], None] | None = None) -> Verification:
        """Check everything that is recorded; see `DurableBackend.verify`."""
        return in_loop(self._backend.verify(progress=progress))

    def retain(self, retention: Retention, *, agents: Mapping[str, Retention] | None = None) -> None:
        """Have the workers of this process remove executions that ended long enough ago; see `DurableBackend.retain`."""
        self._backend.retain(retention, agents=agents)

    def prune(
        self,
        retention: Retention | None = None,
        *,
        agents: Mapping[str, Retention] | None = None,
        dry_run: bool = False,
        rebuild: bool = False,
    ) -> Pruned:
        """Remove executions that ended long enough ago, now; see `DurableBackend.prune`."""
        return in_loop(self._backend.prune(retention, agents=agents, dry_run=dry_run, rebuild=rebuild))

    def remove(self, execution_id: str) -> None:
        """Delete an execution that is not running, with everything it recorded."""
        in_loop(self._backend.remove(execution_id))

    def rekey(self, *, decrypt: bool = False) -> Rekeyed:
        """Encrypt everything that is stored with the current key of the cipher; see `DurableBackend.rekey`."""
        return in_loop(self._backend.rekey(decrypt=decrypt))

    def close(self) -> None:
        """Release the backend's resources; executions are kept."""
        in_loop(self._backend.close())


async def _next(events: Any) -> StreamEvent | None:
    try:
        event: StreamEvent = await anext(events)
    except StopAsyncIteration:
        return None
    return event


async def _close(events: Any) -> None:
    if hasattr(events, "aclose"):
        await events.aclose()
