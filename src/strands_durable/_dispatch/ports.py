"""Where executions run and how they are held: the two ports that every engine fills. Knows no Strands and no engine."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import url_for_people
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from .._records.spec import AgentSpec
from ..errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from .._records.views import ExecutionDetail, StepSummary
    from .sync import SyncBackend, SyncHandle


WorkerMode = Literal["on", "off", "own"]
"""What a process that dispatches carries itself: everything, nothing, or only what it dispatched or holds."""


class ExecutionHandle(ABC):
    """One execution, held from any process: see it, wait for it, answer it, stop it."""

    execution_id: str

    @property
    def sync(self) -> SyncHandle:
        """The same execution, for sync code."""
        from .sync import SyncHandle

        return SyncHandle(self)

    @abstractmethod
    async def status(self) -> ExecutionStatus:
        """Return what the execution is doing."""

    @abstractmethod
    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait for the end, or until the execution waits for a person, and return it.

        Raises:
            ExecutionFailedError: It failed; the cause is what it failed with.
            ExecutionCancelledError: Somebody cancelled it.
            TimeoutError: It is still at work after ``timeout`` seconds, and goes on.
        """

    @abstractmethod
    async def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""

    @abstractmethod
    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id. They are recorded when this returns, and the execution goes on.

        Args:
            answers: By interrupt id, anything that is JSON but null, which Strands takes for no answer. A question about a step
                in doubt takes ``"retry"``, ``"fail"`` or ``{"result": ...}``; about a model call the first two.
            by: Who answers, for the record; ``user@host`` of this process if None.

        Raises:
            InputMismatchError: Nobody asked, or it was answered otherwise before.
            InDoubtError: It is no answer to a question about a step in doubt.
            UnsupportedFeatureError: An answer is None.
        """

    @abstractmethod
    async def cancel(self) -> None:
        """Stop the execution for good. A running tool sees its cancel signal, and what is recorded stays.

        It is CANCELLED at once, or, if it is at work, as soon as its worker has stopped. Nothing happens to one that has ended.
        """

    @abstractmethod
    async def resume(self, *, accept_drift: bool = False) -> None:
        """Try a failed execution again, from the failed step. The failure stays on record.

        Nothing happens where there is nothing to resume. A cancelled execution raises `ExecutionCancelledError`.

        Args:
            accept_drift: Let the next worker that has the agent resume it, also if it waits or has failed because the agent has
                changed since. As with ``on_drift="warn"``, what changed is logged, and a finished tool does not run again.
                From then on the execution belongs to the version that resumed it.

        Raises:
            UnsupportedFeatureError: Drift is to be accepted for an execution that was run inline.
        """

    @abstractmethod
    async def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""

    @abstractmethod
    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows: of the current run, or of an earlier one under the same id."""

    @abstractmethod
    def stream(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Follow the execution: each committed step after number ``after``, then each as it comes, with live chunks between.

        Ends when the execution has ended or waits for a person.
        """


class DurableBackend(ABC):
    """Where executions run. Made by `connect`."""

    url: str

    @property
    def sync(self) -> SyncBackend:
        """The same backend, for sync code: ``connect(url).sync.get("trip-42").result()``."""
        from .sync import SyncBackend

        return SyncBackend(self)

    @abstractmethod
    async def dispatch(
        self,
        spec: AgentSpec,
        prompt: Any,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> ExecutionHandle:
        """Start an execution, or attach to the one that has this id. The request is recorded when this returns.

        Raises:
            InputMismatchError: The id belongs to an execution with another input.
            ExecutionFailedError: It has failed; `ExecutionHandle.resume` tries it again.
            ExecutionCancelledError: It was cancelled.
        """

    @abstractmethod
    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""

    @abstractmethod
    async def list(
        self,
        *,
        status: ExecutionStatus | Collection[ExecutionStatus] | None = None,
        agent: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[ExecutionRecord]:
        """Return executions, the one that changed last first; ``since`` is a time in seconds since the epoch."""

    def working(self, what: WorkerMode) -> DurableBackend:
        """Return the same backend for a process that works on everything, on nothing, or on what it dispatches or holds.

        The same one where processes that dispatch never work.
        """
        return self

    def start(self) -> None:  # noqa: B027
        """Have this process work on everything that waits, where the backend has workers in processes that dispatch.

        A server calls it when it starts, to go on with what was left. Without it, on a file, a process works on what it
        dispatches, waits for, answers or resumes; ``strands-durable worker FILE`` works on everything, in a process of its own.
        """

    @abstractmethod
    async def work(
        self,
        *,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        stop: asyncio.Event | None = None,
        trial_command: Sequence[str] | None = None,
        is_trial: bool = False,
    ) -> bool:
        """Carry executions of the agents that are registered in this process, until ``stop`` is set.

        Return True if all current steps have ended then. A sync tool that took too long may still run in a thread: as long as
        it does, this process owns its execution, and its result is recorded when it comes. A process that cannot wait for
        it ends with `os._exit`, and the step is in doubt.

        Args:
            concurrency: How many at a time.
            drain_seconds: How long the current steps may take to end, once ``stop`` is set.
            stop: Set it to stop.
            trial_command: Starts a process that calls this method with ``is_trial``, and ends with its standard input. With it,
                executions that may have killed their worker are tried there, else in this process when it is idle.
            is_trial: Try such executions only, one at a time, each until it has got over the step that was under way.
        """

    async def unattended(self) -> str | None:
        """Return a warning with the command that starts a worker if no worker takes what is dispatched here; else None."""
        return None

    async def remove(self, execution_id: str) -> None:
        """Forget an execution that is not at work, with all it recorded.

        Raises:
            ExecutionBusyError: Its owner is alive.
        """
        raise UnsupportedFeatureError(f"Removing from {url_for_people(self.url)}", "this engine keeps its own history")

    async def close(self) -> None:  # noqa: B027
        """Let go of what the backend holds open; executions stay."""
