"""Executions on a SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from .._dispatch import registry
from .._dispatch.background import DRAIN_SECONDS, WorkerThread
from .._dispatch.connect import with_worker
from .._dispatch.deadlines import expiring
from .._dispatch.examination import examined
from .._dispatch.handles import ExecutionHandle
from .._dispatch.notifications.hooks import Callback, hooks, hooks_of
from .._dispatch.notifications.notifier import notifying
from .._dispatch.notifications.webhooks import Webhook
from .._dispatch.ports import DurableBackend, WorkerMode
from .._dispatch.quarantine import QuarantineProcess
from .._dispatch.requests import Requests
from .._dispatch.retention import pruning, retentions, rules_of, with_agents
from .._dispatch.stopping import ended_in_time
from .._dispatch.trace_context import current_trace
from .._enginekit.imports import import_into
from .._enginekit.trial import run_quarantined
from .._records.cipher import Cipher
from .._records.cipher_setting import cipher_or_default
from .._records.executions import ExecutionRecord, ExecutionStatus, StatusCount
from .._records.findings import Finding
from .._records.listing import Listing
from .._records.logs import safe_logger
from .._records.printable import url_for_people
from .._records.rekeyed import Rekeyed
from .._records.retention import Pruned, Retention
from .._records.spec import AgentSpec
from .._records.verification import Verification
from .._records.views import OpenQuestion
from .._sqlite.catalog import Catalog, refuse_unreadable
from .._sqlite.database import Store, path_of
from .._sqlite.encryption.rekeying import decrypt as decrypted
from .._sqlite.encryption.rekeying import encrypt as encrypted
from .._sqlite.encryption.rekeying import is_encrypted, rotate
from .._sqlite.open_files import stores
from .._sqlite.ownership import tally
from .._sqlite.upkeep.removal import Removal
from ..errors import (
    BackendUnavailableError,
    CipherError,
    ExecutionNotFoundError,
    UnsupportedFeatureError,
)
from ._sqlite_handle import SqliteHandle

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
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                why = f"its folder cannot be made: {error.strerror}"
                raise BackendUnavailableError(str(self.path), why, "Use a path in a folder of yours.") from error
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
        _ = self.store
        stop = stop or asyncio.Event()
        if is_trial:
            working = run_quarantined(self.path, stop, drain_seconds, self.cipher)
        else:
            working = self._work(concurrency, drain_seconds, stop, trial_command)
        return await ended_in_time(working, stop, drain_seconds)

    async def _work(
        self, concurrency: int, drain_seconds: float, stop: asyncio.Event, trial_command: Sequence[str] | None
    ) -> bool:
        from .._dispatch.worker import Worker

        make = partial(Worker, self.path, concurrency=concurrency, cipher=self.cipher)
        apart = self.working("off")
        async with notifying(self.path, self.cipher), expiring(apart, LOOK_SECONDS), pruning(self.path, self.cipher):
            if trial_command is None:
                return await make().run(stop, drain_seconds)
            quarantine = QuarantineProcess(trial_command)
            worker = make(quarantine=quarantine)
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

    async def backup(
        self, to: str | os.PathLike[str], *, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Copy the file while it is in use, as it is at one moment."""
        from .._sqlite.upkeep.backup import back_up

        refuse_unreadable(self.path)
        return await asyncio.to_thread(back_up, self.path, Path(to), force=force, progress=progress)

    async def verify(self, *, progress: Callable[[str], None] | None = None) -> Verification:
        """Check everything that the file holds; it is not changed."""
        from .._sqlite.verification import verified

        refuse_unreadable(self.path)
        return await asyncio.to_thread(verified, self.path, progress, self.cipher)

    def retain(self, retention: Retention, *, agents: Mapping[str, Retention] | None = None) -> None:
        """Have the workers of this process remove executions that have ended long enough ago, inline ones too."""
        retentions.set(self.path, rules_of(retention, agents))

    async def prune(
        self,
        retention: Retention | None = None,
        *,
        agents: Mapping[str, Retention] | None = None,
        dry_run: bool = False,
        rebuild: bool = False,
    ) -> Pruned:
        """Remove executions that have ended long enough ago, now; the file becomes smaller."""
        from .._sqlite.upkeep.retention import Pruner

        refuse_unreadable(self.path)
        is_given = retention is not None or bool(agents)
        rules = with_agents(rules_of(retention, agents)) if is_given else retentions.of(self.path)
        pruner = Pruner(self.store, rules)
        if dry_run:
            return await asyncio.to_thread(pruner.plan)
        found = await asyncio.to_thread(pruner.run)
        if found is None:
            raise BackendUnavailableError(
                str(self.path), "another process is applying retention to it", "Wait until it is done."
            )
        if rebuild:
            await asyncio.to_thread(self.store.rebuild)
        return found

    async def remove(self, execution_id: str) -> None:
        """Delete an execution that is not running, with everything it recorded."""
        if not self.path.exists():
            raise ExecutionNotFoundError(execution_id, str(self.path))
        await asyncio.to_thread(Removal(self.store).remove, execution_id)

    async def _remove_unchanged(self, record: ExecutionRecord) -> bool:
        if not self.path.exists():
            raise ExecutionNotFoundError(record.execution_id, str(self.path))
        return await asyncio.to_thread(Removal(self.store).remove, record.execution_id, record)

    async def import_execution(self, export: Mapping[str, Any], *, execution_id: str | None = None) -> ExecutionHandle:
        """Record an execution that was exported, in one transaction."""
        return SqliteHandle(self, await asyncio.to_thread(import_into, self.store, export, execution_id))

    async def rekey(self, *, decrypt: bool = False) -> Rekeyed:
        """Encrypt the file with the current key of the cipher, beside its workers; from plain text and back, without them."""
        refuse_unreadable(self.path)
        if self.cipher is None:
            raise CipherError(str(self.path), "there is no cipher to encrypt or decrypt it with", NO_CIPHER)
        was = is_encrypted(self.path)
        if decrypt:
            done = await asyncio.to_thread(decrypted, self.path, self.cipher) if was else None
        elif was:
            done = await asyncio.to_thread(rotate, self.store, self.cipher)
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

        async def worked() -> bool:
            async with notifying(path, cipher), expiring(apart, LOOK_SECONDS), pruning(path, cipher):
                return await Worker(path, concurrency=concurrency, only=only, cipher=cipher).run(stop, DRAIN_SECONDS)

        await ended_in_time(worked(), stop, DRAIN_SECONDS)

    return _workers.setdefault((path, concurrency, cipher, is_own), WorkerThread(work, is_own=is_own))
