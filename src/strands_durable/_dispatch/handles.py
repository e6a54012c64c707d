"""The port of one execution, which every engine implements. Imports neither Strands nor an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._records.executions import ExecutionStatus
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from ..errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from .._records.origins import ForkPoint
    from .._records.views import ExecutionDetail, StepSummary
    from .sync import SyncHandle


class ExecutionHandle(ABC):
    """One execution, accessible from any process: inspect it, wait for it, answer its questions, cancel it."""

    execution_id: str

    @property
    def sync(self) -> SyncHandle:
        """The same execution, for sync code."""
        from .sync import SyncHandle

        return SyncHandle(self)

    @abstractmethod
    async def status(self) -> ExecutionStatus:
        """Return the status of the execution."""

    @abstractmethod
    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait until the execution ends or waits for a person, and return its result.

        Raises:
            ExecutionFailedError: It failed; the cause is the error it failed with.
            ExecutionCancelledError: It was cancelled.
            TimeoutError: It has not ended within ``timeout`` seconds. It keeps running.
        """

    @abstractmethod
    async def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""

    @abstractmethod
    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id. The answers are recorded when this returns, and the execution resumes.

        Args:
            answers: By interrupt id, any JSON value but null, which Strands treats as no answer. A question about a step in
                doubt accepts ``"retry"``, ``"fail"`` or ``{"result": ...}``; about a model call, the first two.
            by: Who answers, for the record; ``user@host`` of this process if None.

        Raises:
            InputMismatchError: There is no such question, or it has another answer already.
            InDoubtError: The question is about a step in doubt and does not accept this answer.
            UnsupportedFeatureError: An answer is None.
        """

    @abstractmethod
    async def cancel(self) -> None:
        """Stop the execution for good. A running tool sees its cancel signal, and what is recorded stays.

        It is CANCELLED at once or, if it is running, as soon as its worker has stopped. One that has ended is not changed.
        """

    @abstractmethod
    async def resume(self, *, accept_drift: bool = False) -> None:
        """Retry a failed execution from the failed step. The failure stays on record.

        Does nothing if there is nothing to resume. A cancelled execution raises `ExecutionCancelledError`.

        Args:
            accept_drift: Let the next worker that has the agent resume it, even if it waits or has failed because the agent has
                changed since. As with ``on_drift="warn"``, what changed is logged, and a finished tool does not run again.
                From then on the execution belongs to the version that resumed it.

        Raises:
            UnsupportedFeatureError: ``accept_drift`` is set for an execution that was run inline.
        """

    async def fork(
        self,
        *,
        at: int | None = None,
        execution_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        messages: Sequence[Any] | None = None,
        prompt: Any = None,
        by: str | None = None,
    ) -> ExecutionHandle:
        """Start a new execution from a finished step of this one, which is not changed, whatever its status.

        The fork has every step that had finished by then; none of them runs again. What had begun without a result by then
        begins again, with idempotency keys of the fork. A worker with today's version of the agent runs it; how that version
        differs is logged, and recorded in `ExecutionDetail.origin`. The fork of an inline execution waits for a run of its
        script with the new id.

        Args:
            at: The number of a finished step of the current run: `StepSummary.ordinal`, ``number`` in a stream. 0 is the
                beginning, None the last finished step.
            execution_id: The id of the fork; this one's with a random ending if None.
            state: Replaces the state of the agent that the step belongs to, at the root or inside another.
            messages: Replaces that agent's conversation, as a list of Strands messages that a model can answer: the last one
                is the user's, and every tool call has its result.
            prompt: At 0, replaces the input. At a step that ends a turn of the root agent, begins another turn after it.
            by: Who forks it, for the record; ``user@host`` of this process if None.

        Raises:
            ForkError: The step is unknown, unfinished or of an earlier run, what was then is no longer recorded, or the
                changes do not fit that step.
            ExecutionExistsError: Another execution has the id.
            ContentsRemovedError: Retention has removed what it recorded.
            UnsupportedFeatureError: This engine cannot fork.
        """
        raise UnsupportedFeatureError(f"Forking {self.execution_id!r}", "this engine does not keep what it needs")

    async def fork_point(self, at: int | None = None) -> ForkPoint:
        """Return the conversation and the state that a fork would begin with, to change them.

        Args:
            at: The number of a finished step, as for `fork`.

        Raises:
            ForkError: As for `fork`.
            UnsupportedFeatureError: This engine cannot fork.
        """
        raise UnsupportedFeatureError(f"Forking {self.execution_id!r}", "this engine does not keep what it needs")

    async def hold(self) -> None:
        """Keep the execution: neither retention nor `DurableBackend.remove` removes it, until `release` is called.

        Raises:
            UnsupportedFeatureError: This engine has no such mark.
        """
        raise UnsupportedFeatureError("Holding an execution", "this engine has no mark that keeps one")

    async def release(self) -> None:
        """Take back `hold`: the execution is removed again when it is old enough. Does nothing if it is not held.

        Raises:
            UnsupportedFeatureError: This engine has no such mark.
        """
        raise UnsupportedFeatureError("Releasing an execution", "this engine has no mark that keeps one")

    @abstractmethod
    async def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""

    @abstractmethod
    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows of the current run, or of an earlier one under the same id."""

    async def recorded_bytes(self, digest: str) -> bytes:
        """Return bytes of more than a kilobyte, such as an image, which the detail shows only by their size.

        Args:
            digest: The ``digest`` of the text that is in their place in the detail, which is their SHA-256.

        Raises:
            BytesNotFoundError: The execution refers to no such bytes.
            UnsupportedFeatureError: This engine cannot read them.
        """
        raise UnsupportedFeatureError("Reading recorded bytes", "this engine shows only their size")

    async def export(self, *, contents: bool = True) -> dict[str, Any]:
        """Return everything that is recorded of the execution as JSON data, as `strands-durable export` writes it.

        The owner of the execution, and the keys of the store, are not part of it. `DurableBackend.import_execution` takes it,
        and `strands_durable.testing.assert_replays`.

        Args:
            contents: Whether to include prompts, messages, inputs, results, state, errors and values of tags. Without them, it
                holds only their shape: names, statuses, times and sizes, for a bug report. It cannot be imported then.

        Raises:
            ContentsRemovedError: Retention has removed what it recorded.
            UnsupportedFeatureError: This engine cannot read all that is recorded.
        """
        raise UnsupportedFeatureError(f"Exporting execution {self.execution_id!r}", "this engine has no export")

    @abstractmethod
    def stream(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Follow the execution: each committed step after number ``after``, then new ones as they end, with live chunks.

        Ends when the execution has ended or waits for a person.
        """
