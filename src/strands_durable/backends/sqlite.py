"""Executions on a SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from .._calls.context import waiting_for_execution
from .._dispatch import registry
from .._dispatch.background import DRAIN_SECONDS, WorkerThread
from .._dispatch.connect import with_worker
from .._dispatch.deadlines import expiring
from .._dispatch.examination import examined
from .._dispatch.hooks import Callback, hooks, hooks_of
from .._dispatch.notifier import notifying
from .._dispatch.ports import DurableBackend, ExecutionHandle, WorkerMode
from .._dispatch.quarantine import QuarantineProcess, run_quarantined
from .._dispatch.requests import Requests
from .._dispatch.trace_context import current_trace
from .._dispatch.webhooks import Webhook
from .._journal.outcome import result_of
from .._journal.unreadable import reading
from .._records.cipher import Cipher
from .._records.cipher_setting import cipher_or_default
from .._records.executions import ExecutionRecord, ExecutionStatus, StatusCount
from .._records.findings import Finding
from .._records.listing import Listing
from .._records.logs import safe_logger
from .._records.printable import url_for_people
from .._records.questions import interrupts_of
from .._records.rekeyed import Rekeyed
from .._records.results import ExecutionResult, OpenInterrupt, StreamEvent
from .._records.spec import AgentSpec
from .._records.views import ExecutionDetail, OpenQuestion, StepSummary
from .._sqlite.catalog import Catalog, refuse_unreadable
from .._sqlite.change_feed import change_feed
from .._sqlite.database import Store, path_of
from .._sqlite.encryption.rekeying import decrypt as decrypted
from .._sqlite.encryption.rekeying import encrypt as encrypted
from .._sqlite.encryption.rekeying import is_encrypted, rotate
from .._sqlite.following import follow
from .._sqlite.open_files import stores
from .._sqlite.ownership import tally
from .._sqlite.removal import Removal
from ..errors import CipherError, ExecutionCancelledError, ExecutionNotFoundError, UnsupportedFeatureError

logger = safe_logger(__name__)

S = ExecutionStatus
NO_CIPHER = "Pass cipher=Cipher(...), or set STRANDS_DURABLE_CIPHER or STRANDS_DURABLE_CIPHER_KEYS."
LOOK_SECONDS = 1.0
"""How often a worker looks for questions whose time is over."""


class SqliteBackend(DurableBackend):
    """Runs executions on one machine: the journal is a file, the workers are processes or a thread of this one.

    Args:
        url: ``sqlite:///runs.db``, or a path. A process runs what it dispatches, waits for, answers or resumes and, once
            `start` was called, everything else too. With ``?worker=on`` it runs everything from the first dispatch, with
            ``?worker=own`` only its own, with ``?worker=off`` nothing. ``strands-durable worker FILE`` runs the rest.
        concurrency: How many executions the worker of this process runs at a time.
        cipher: Encrypts what is recorded. If None, the cipher that the environment names, if any.
    """

    def __init__(self, url: str, *, concurrency: int = 10, cipher: Cipher | None = None) -> None:
        self.url, self.cipher = url, cipher_or_default(cipher)
        location, _, query = url.partition("?")
        options = dict(parse_qsl(query))
        given = options.pop("worker", None)
        if options or given not in (None, "on", "off", "own"):
            shown = url_for_people(url)
            raise UnsupportedFeatureError(f"{shown!r}", "the only option of a sqlite URL is worker=on, off or own")
        self.path = path_of(location)
        self._concurrency = concurrency
        self._may_take_all = given is None
        """Whether `start` makes this process run everything."""
        self._for_all: WorkerThread | None = None
        self._worker = None if given == "off" else _shared(self.path, concurrency, self.cipher, is_own=given != "on")

    @property
    def store(self) -> Store:
        """The open store; its folder is created if it does not exist."""
        if not self.path.parent.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return stores.open(self.path, cipher=self.cipher)[0]

    @property
    def catalog(self) -> Catalog:
        """What the file holds, for people."""
        return Catalog(self.path, self.cipher)

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
        """Record the request and return its handle; a worker runs it."""
        dispatched = Requests(self.store).dispatch(
            spec, prompt, execution_id, invocation_state, limits, tags, current_trace()
        )
        self.carry(dispatched)
        return SqliteHandle(self, dispatched)

    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        if not self.path.exists() or not self.catalog.holds(execution_id):  # a look-up opens nothing for writing
            raise ExecutionNotFoundError(execution_id, str(self.path))
        return SqliteHandle(self, execution_id)

    def refuse_unreadable(self) -> None:
        """Raise if there is no store file, or one that cannot be read."""
        refuse_unreadable(self.path)

    async def examine(self) -> tuple[Finding, ...]:
        """Return what was checked of the file and of its queue, what is wrong and what to do."""
        from ._sqlite_checks import checks_of_file, checks_of_store

        found = checks_of_file(self.path) if self.path.is_file() and self.path.stat().st_size else []
        if any(each.level != "ok" for each in found if each.check in ("format", "writable")):
            return tuple(found)  # to open it would fail, or upgrade it
        findings = (*found, *await examined(self))
        return (*findings, *checks_of_store(self.store)) if found else findings

    def carry(self, execution_id: str) -> None:
        """Make the worker of this process run an execution that this process has a handle of, unless the worker is off."""
        worker = self._for_all or self._worker
        if worker is not None:
            if worker.only is not None:
                worker.only.add(execution_id)
            self._run(worker)

    async def listed(self, asked: Listing) -> list[ExecutionRecord]:
        """Return executions, most recently changed first."""
        return self.catalog.executions(asked) if self.path.exists() else []

    async def questions(self, *, since: float | None = None, limit: int | None = None) -> list[OpenQuestion]:
        """Return the open questions of all executions, the last one asked first, at most ``limit``."""
        if not self.path.exists():
            return []
        return await asyncio.to_thread(self.catalog.questions, limit, since)  # workers ask beside their runs

    async def counts(self) -> dict[ExecutionStatus, StatusCount]:
        """Return how many executions have each status, and since when."""
        rows = tally(self.store) if self.path.exists() else []
        known = {status: StatusCount(count=count, oldest_at=at) for status, count, at in rows}
        return {status: known.get(status.value, StatusCount(count=0, oldest_at=None)) for status in S}

    def working(self, what: WorkerMode) -> SqliteBackend:
        """Return this backend for a process that runs everything, nothing, or only what it dispatches or has a handle of."""
        return SqliteBackend(with_worker(self.url, what), concurrency=self._concurrency, cipher=self.cipher)

    def start(self) -> None:
        """Make this process run everything that is queued, unless its URL forbids it or no agent is registered here."""
        if self._may_take_all and registry.agents:
            self._for_all = _shared(self.path, self._concurrency, self.cipher, is_own=False)
        worker = self._for_all or self._worker
        if worker is not None:
            self._run(worker)

    def _run(self, worker: WorkerThread) -> None:
        if registry.agents:
            _ = self.store
            if worker.start(self):
                what = (
                    "what this process dispatches, waits for, answers or resumes" if worker.only is not None else "all"
                )
                logger.info("store=<%s>, runs=<%s> | worker of this process started", self.path, what)

    async def work(
        self,
        *,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        stop: asyncio.Event | None = None,
        trial_command: Sequence[str] | None = None,
        is_trial: bool = False,
    ) -> bool:
        """Run executions of the agents that are registered in this process, until ``stop`` is set."""
        from .._dispatch.worker import Worker

        _ = self.store
        stop = stop or asyncio.Event()
        if is_trial:
            return await run_quarantined(self.path, stop, drain_seconds, self.cipher)
        make = partial(Worker, self.path, concurrency=concurrency, cipher=self.cipher)
        async with notifying(self.path, self.cipher), expiring(self.working("off"), LOOK_SECONDS):
            if trial_command is None:
                return await make().run(stop, drain_seconds)
            quarantine = QuarantineProcess(trial_command)
            worker = make(suspects="never", on_suspects=quarantine.begin)
            async with quarantine.until(stop, drain_seconds):
                return await worker.run(stop, drain_seconds)

    def notify(
        self,
        *,
        on_suspended: Callback | None = None,
        on_failed: Callback | None = None,
        on_completed: Callback | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """Have the workers of this process report executions of the file, inline ones too."""
        hooks.add(self.path, *hooks_of(on_suspended, on_failed, on_completed, tuple(webhooks)))

    async def remove(self, execution_id: str) -> None:
        """Delete an execution that is not running, with everything it recorded."""
        if not self.path.exists():
            raise ExecutionNotFoundError(execution_id, str(self.path))
        await asyncio.to_thread(Removal(self.store).remove, execution_id)

    async def rekey(self, *, decrypt: bool = False) -> Rekeyed:
        """Encrypt the file with the current key of the cipher, beside its workers; from plain text and back, without them."""
        refuse_unreadable(self.path)
        if self.cipher is None:
            raise CipherError(str(self.path), "there is no cipher to encrypt or decrypt it with", NO_CIPHER)
        was = is_encrypted(self.path)
        if decrypt:
            done = await asyncio.to_thread(decrypted, self.path, self.cipher) if was else None
        elif was:
            done = await asyncio.to_thread(rotate, self.store)
        else:
            done = await asyncio.to_thread(encrypted, self.path, self.cipher)
        return done or Rekeyed(outcome="unchanged", key_id=None, rows=0)

    async def close(self) -> None:
        """Stop the worker of this process, unless another backend here uses it too; the next worker resumes its executions."""
        for worker in (self._worker, self._for_all):
            if worker is not None and worker.is_left_by(self):
                await asyncio.to_thread(worker.stop)
        self._for_all = None


_workers: dict[tuple[Path, int, Cipher | None, bool], WorkerThread] = {}


def _shared(path: Path, concurrency: int, cipher: Cipher | None, *, is_own: bool) -> WorkerThread:
    """Return the worker for a backend, shared by equal backends, since a server may connect for every request."""

    async def work(stop: asyncio.Event, only: set[str] | None) -> None:
        from .._dispatch.worker import Worker

        apart = SqliteBackend(f"{path}?worker=off", cipher=cipher)
        async with notifying(path, cipher), expiring(apart, LOOK_SECONDS):
            await Worker(path, concurrency=concurrency, only=only, cipher=cipher).run(stop, DRAIN_SECONDS)

    return _workers.setdefault((path, concurrency, cipher, is_own), WorkerThread(work, is_own=is_own))


class SqliteHandle(ExecutionHandle):
    """One execution in a SQLite file."""

    def __init__(self, backend: SqliteBackend, execution_id: str) -> None:
        self.execution_id = execution_id
        self._backend = backend

    def __repr__(self) -> str:
        return f"SqliteHandle({self.execution_id!r})"

    async def status(self) -> ExecutionStatus:
        """Return the status of the execution."""
        with reading(self.execution_id):
            return self._requests.journal(self.execution_id).status()

    async def result(self, timeout: float | None = None) -> ExecutionResult:
        """Wait until the execution ends or waits for a person, and return its result."""
        self._backend.carry(self.execution_id)
        store = self._backend.store
        deadline = None if timeout is None else time.monotonic() + timeout
        journal = self._requests.journal(self.execution_id)
        async with change_feed(store).changes(journal.lease.row_id) as change:
            while True:
                journal = self._requests.journal(self.execution_id)
                with reading(self.execution_id):
                    result = self._ended(journal)
                if result is not None:
                    return result
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(self._late(journal.status(), timeout))
                with waiting_for_execution():
                    await change.wait(left)

    def _late(self, status: ExecutionStatus, timeout: float | None) -> str:
        """Return the message for an execution that has not ended in time."""
        record = self._backend.catalog.execution(self.execution_id).execution
        text = f"Execution {self.execution_id!r} is still {status.value} after {timeout:g} s"
        if record.owner is not None:
            return f"{text}; it is running in {record.owner}"
        if record.note:
            return f"{text}; {record.note}"
        return f"{text}, and no process is running it. Start a worker with its agent: strands-durable worker FILE"

    def _ended(self, journal: Any) -> ExecutionResult | None:
        """Return the result of the execution; None while it is queued or running."""
        record, status = self._requests.last_call(journal), journal.status()
        if status is S.CANCELLED:
            raise ExecutionCancelledError(self.execution_id)
        if status in (S.PENDING, S.RUNNING) or record is None or record.status is not status:
            return None  # the call was read before the status: it may have ended or been resumed in between
        if status is S.FAILED:
            raise self._requests.failure(journal, record)
        return result_of(journal, record)

    async def interrupts(self) -> list[OpenInterrupt]:
        """Return the questions that wait for a person."""
        journal = self._requests.journal(self.execution_id)
        record = self._requests.last_call(journal)
        if record is None or record.status is not S.SUSPENDED:
            return []
        answered = journal.replies(record.call_id)
        return [interrupt for interrupt in interrupts_of(record) if interrupt.id not in answered]

    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id."""
        self._requests.respond(self.execution_id, answers, by)
        self._backend.carry(self.execution_id)

    async def cancel(self) -> None:
        """Stop the execution for good."""
        self._requests.cancel(self.execution_id)

    async def resume(self, *, accept_drift: bool = False) -> None:
        """Retry a failed execution from the failed step."""
        self._requests.resume(self.execution_id, accept_drift=accept_drift)
        self._backend.carry(self.execution_id)

    async def steps(self) -> list[StepSummary]:
        """Return every attempt of every step, in order."""
        return list((await self.detail()).steps)

    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        return self._backend.catalog.execution(self.execution_id, run)

    async def recorded_bytes(self, digest: str) -> bytes:
        """Return bytes of more than a kilobyte."""
        return self._backend.catalog.recorded_bytes(self.execution_id, digest)

    async def stream(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Follow the execution."""
        journal = self._requests.journal(self.execution_id)
        self._backend.carry(self.execution_id)
        async for event in follow(journal, after):
            yield event

    @property
    def _requests(self) -> Requests:
        return Requests(self._backend.store)
