"""The port of an engine as a whole; `handles` is that of one execution. Imports neither Strands nor an engine."""

from __future__ import annotations

import asyncio
import builtins
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._records.executions import ExecutionRecord, ExecutionStatus, StatusCount
from .._records.findings import Finding
from .._records.listing import Listing
from .._records.printable import url_for_people
from .._records.rekeyed import Rekeyed
from .._records.spec import AgentSpec
from ..errors import (
    CipherError,
    ExecutionNotFoundError,
    FormatVersionError,
    UnreadableError,
    UnsupportedFeatureError,
)
from .handles import ExecutionHandle as ExecutionHandle
from .upkeep import Upkeep

if TYPE_CHECKING:
    from .._records.views import OpenQuestion
    from .notifications.hooks import Callback
    from .notifications.webhooks import Webhook
    from .sync import SyncBackend


_PAGE = 100
_OPEN = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.SUSPENDED)

WorkerMode = Literal["on", "off", "own"]
"""What a process that dispatches runs itself: everything, nothing, or only what it dispatched or has a handle of."""


class DurableBackend(Upkeep, ABC):
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
        tags: Mapping[str, str] | None = None,
    ) -> ExecutionHandle:
        """Start an execution, or attach to the one that has this id. The request is recorded when this returns.

        Args:
            spec: The agent.
            prompt: As for a Strands agent.
            execution_id: The id of the run; a random one if None.
            invocation_state: JSON-safe, for its tools and hooks.
            limits: As for a Strands agent.
            tags: Names and values to find it by, such as ``{"tenant": "acme"}``. An execution that exists keeps its own.

        Raises:
            InputMismatchError: The id belongs to an execution with another input.
            ExecutionFailedError: It has failed; `ExecutionHandle.resume` tries it again.
            ExecutionCancelledError: It was cancelled.
        """

    @abstractmethod
    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""

    async def list(
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
    ) -> list[ExecutionRecord]:
        """Return executions, most recently changed first.

        Args:
            status: Only those with this status, or with one of these.
            agent: Only those of this agent.
            since: Only those that changed at this time or later, in seconds since the epoch.
            tags: Only those that have all of these tags.
            search: Only those whose id begins with this.
            before: Only those that follow in the list: the ``cursor`` of the last execution of the page before. None is left
                out; one that changes in the meantime moves to the front, and one that runs may appear again.
            limit: At most this many.
            with_errors: Only those with a tool call that ended in an error, whatever became of the run.
        """
        return await self.listed(
            Listing.of(
                status=status, agent=agent, since=since, tags=tags, search=search or None, before=before, limit=limit,
                with_errors=with_errors,
            )
        )  # fmt: skip

    async def listed(self, asked: Listing) -> builtins.list[ExecutionRecord]:
        """Return the executions that are asked for, most recently changed first: what an engine implements of `list`."""
        raise UnsupportedFeatureError(f"Listing executions of {url_for_people(self.url)}", "this engine has no list")

    async def questions(self, *, since: float | None = None, limit: int | None = None) -> builtins.list[OpenQuestion]:
        """Return the open questions of all executions, the last one asked first, at most ``limit``.

        With ``since``, only those of executions that changed at this time or later, in seconds since the epoch.
        """
        found: builtins.list[OpenQuestion] = []
        page = await self.list(status=ExecutionStatus.SUSPENDED, since=since, limit=_PAGE)
        while page:
            for record in page:
                found += await self._asked_by(record)
                if limit is not None and len(found) >= limit:
                    return found[:limit]
            cursor = page[-1].cursor
            page = await self.list(status=ExecutionStatus.SUSPENDED, since=since, limit=_PAGE, before=cursor)
        return found

    async def expire_questions(self) -> int:
        """Answer the questions whose time is over with their default answers; return how many.

        A question has a deadline if its reason has ``expires_in``, in seconds, and is then answered with the ``default`` of its
        reason, or with false. Workers do this by themselves; where an engine has none, call it from time to time.
        """
        from .deadlines import DeadlineKeeper

        return await DeadlineKeeper(self).look()

    async def _asked_by(self, record: ExecutionRecord) -> builtins.list[OpenQuestion]:
        from .._records.views import OpenQuestion

        try:
            detail = await (await self.get(record.execution_id)).detail()
        except (ExecutionNotFoundError, FormatVersionError, UnreadableError, CipherError):
            return []  # removed in the meantime, or a list says why it cannot be read
        roots = [call for call in detail.calls if call.depth == 0]
        return [
            OpenQuestion(
                execution_id=record.execution_id,
                agent=record.agent,
                question=question,
                asked_at=call.ended_at or record.updated_at,
            )
            for call in roots[-1:]
            for question in call.questions
        ]

    async def counts(self) -> dict[ExecutionStatus, StatusCount]:
        """Return how many executions have each status, and since when; engines that would have to list them leave out some."""
        found = await self.list(status=_OPEN)
        times: dict[ExecutionStatus, list[float]] = {status: [] for status in _OPEN}
        for record in found:
            times[record.status].append(record.updated_at)
        return {status: StatusCount(count=len(at), oldest_at=min(at, default=None)) for status, at in times.items()}

    invoker: str | None = None
    """What makes executions run, for hints, if no worker has to be started: ``AWS invokes the function``."""

    def working(self, what: WorkerMode) -> DurableBackend:
        """Return this backend for a process that runs everything, nothing, or only what it dispatches or has a handle of.

        Returns itself if processes that dispatch never run executions on this engine.
        """
        return self

    def start(self) -> None:
        """Make this process run everything that is queued, if the backend has workers in processes that dispatch.

        A server calls it on startup, to resume what an earlier process left. Without it, on a file, a process runs what it
        dispatches, waits for, answers or resumes; ``strands-durable worker FILE`` runs everything, in a process of its own.
        """

    def notify(
        self,
        *,
        on_suspended: Callback | None = None,
        on_failed: Callback | None = None,
        on_completed: Callback | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """Have the workers of this process report executions that wait for a person, have failed or have completed.

        A report is recorded with the change that it is about, and delivered at least once: by this process, or by another one
        that called this for the same backend. Call it before `work` or `start`.

        Args:
            on_suspended: Called with a `Notification` when an execution waits for a person: a function, sync or async.
            on_failed: The same when one has failed.
            on_completed: The same when one has completed.
            webhooks: URLs that receive the same.

        Raises:
            UnsupportedFeatureError: This engine cannot record reports with the changes that they are about.
        """
        raise UnsupportedFeatureError(
            f"Notifications on {url_for_people(self.url)}",
            "this engine cannot record them with the change that they are about",
            "Poll list(status=..., since=...).",
        )

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
        """Run executions of the agents that are registered in this process, until ``stop`` is set.

        It returns within ``drain_seconds`` and 5 s, whatever it waits for: True if all current steps have ended, else False;
        the log has what is left. A sync tool that took too long may still run in a thread: as long as it does, this process
        owns its execution and records the result when the tool returns. A process that cannot wait for it exits with
        `os._exit`, and the step is in doubt.

        Args:
            concurrency: How many executions at a time.
            drain_seconds: How long the current steps may take to finish once ``stop`` is set.
            stop: Set it to stop.
            trial_command: Starts a process that calls this method with ``is_trial``, and exits when its standard input ends. It
                runs executions that may have killed their worker; without it, this process does when it is idle.
            is_trial: Run only such executions, one at a time, each until it is past the step that was running.
        """

    def refuse_unreadable(self) -> None:
        """Raise if it is certain that nothing can be read here, without making or opening anything: the file is missing."""

    @classmethod
    def ends_at_once(cls) -> bool:
        """Return whether a program that has used such a backend must end with `os._exit`: its engine has threads that abort a
        Python which ends while one of them still works."""
        return False

    async def examine(self) -> tuple[Finding, ...]:
        """Return what was checked here, what is wrong and what to do, as `strands-durable doctor` prints it.

        Changes no execution. A backend that knows more than whether it answers, and whether a worker runs its queue, adds that.
        """
        from .examination import examined

        text = "its format, permissions and disk are those of a server, which cannot be checked from here"
        return (*await examined(self), Finding(check="store", level="unknown", text=text))

    async def unattended(self) -> str | None:
        """Return a warning with the command that starts a worker if no worker runs what is dispatched here; else None."""
        return None

    async def import_execution(self, export: Mapping[str, Any], *, execution_id: str | None = None) -> ExecutionHandle:
        """Record an execution that was exported, all of it or nothing, and return its handle.

        Finished steps do not run again. One that has not ended resumes: a dispatched one as soon as a worker takes it, an
        inline one when its script runs here. Under its own id it keeps its idempotency keys; under another it has new ones.

        Args:
            export: What `ExecutionHandle.export` returned, or what is in its file.
            execution_id: The id to record it under; its own if None.

        Raises:
            ExecutionExistsError: There is an execution with this id.
            InvalidExportError: It is damaged, or has no contents.
            FormatVersionError: A later version of strands-durable has written it.
            UnsupportedFeatureError: This engine cannot begin with what another one has recorded.
        """
        raise UnsupportedFeatureError(
            f"Importing into {url_for_people(self.url)}",
            "this engine cannot begin an execution with what another one has recorded",
            "Import it into a SQLite file.",
        )

    async def remove(self, execution_id: str) -> None:
        """Delete an execution that is not running, with everything it recorded.

        Raises:
            ExecutionBusyError: Its owner is alive.
            ExecutionHeldError: It is held.
        """
        raise UnsupportedFeatureError(f"Removing from {url_for_people(self.url)}", "this engine keeps its own history")

    async def _remove_unchanged(self, record: ExecutionRecord) -> bool:
        """Delete an execution unless it has changed since it was read; False if it has. Not every engine compares."""
        await self.remove(record.execution_id)
        return True

    async def rekey(self, *, decrypt: bool = False) -> Rekeyed:
        """Encrypt everything that is stored with the current key of the cipher; a run that was interrupted can be repeated.

        Args:
            decrypt: Write everything in plain text instead.

        Raises:
            CipherError: There is no cipher, or it lacks a key.
        """
        raise UnsupportedFeatureError(
            f"Rekeying {url_for_people(self.url)}", "what this engine records cannot be changed"
        )

    async def close(self) -> None:
        """Release the backend's resources; executions are kept."""


def must_end_at_once(kind: type[DurableBackend] = DurableBackend) -> bool:
    """Return whether an engine that is loaded in this process needs it to end with `os._exit`."""
    return kind.ends_at_once() or any(must_end_at_once(each) for each in kind.__subclasses__())
