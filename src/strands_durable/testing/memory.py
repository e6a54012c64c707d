"""An in-memory engine, built on the engine kit alone: for tests, and as an example of what an engine has to add.

Everything is in one object of this process, shared by all backends with the same URL, ``memory://name``. A worker is a call of
`MemoryBackend.work`, in any thread. The page "How to write an engine" explains this file.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._dispatch.deadlines import expiring
from .._dispatch.stopping import ended_in_time
from .._enginekit.backend import LogBackend
from .._enginekit.encryption import Contents, facts_of, is_sealed, outline
from .._enginekit.handle import AT_WORK
from .._enginekit.log import Entry, Position, Presence, RecordedExecution, StaleError
from .._enginekit.session import SessionPool
from .._records.change_sets import ChangeSet
from .._records.cipher import Cipher
from .._records.cipher_setting import cipher_or_default
from .._records.executions import ExecutionRecord
from .._records.listing import Listing
from ..errors import CipherError

_POLL_SECONDS, _REFUSED_SECONDS, _DEADLINE_SECONDS = 0.005, 0.05, 0.2
_NOTE = "why no worker takes an execution"
_numbers = itertools.count(1)


@dataclass
class _Service:
    """What outlives workers: the logs, the executions that wait for a worker, and their owners."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What stays readable of executions that are encrypted."""
    ready: dict[str, float] = field(default_factory=dict)
    """The executions that wait for a worker, each with the earliest time to run it."""
    owners: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    stops: set[str] = field(default_factory=set)
    losses: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> str | None:
        """Return an execution to run; None if none is due."""
        with self.lock:
            now, ready = time.time(), list(self.ready.items())
            due = [each for each, not_before in ready if not_before <= now and each not in self.owners]
            return next((each for each in due if self.ready.pop(each, None) is not None), None)

    def leave(self, execution_id: str, worker: str) -> bool:
        """Remove the owner of an execution; return whether it still has to be cancelled."""
        with self.lock:
            if self.owners.get(execution_id) == worker:
                del self.owners[execution_id]
            is_stopped = execution_id in self.stops and execution_id not in self.owners
            self.stops -= {execution_id} if is_stopped else set()
            return is_stopped


_services: dict[str, _Service] = {}


@dataclass
class MemoryLog:
    """Keeps the change sets of each execution in a list; a position is the number of change sets so far."""

    _service: _Service
    _contents: Contents

    async def read(self, execution_id: str, after: Position = None) -> AsyncIterator[Entry]:
        """Yield what was appended."""
        for entry in self._service.entries.get(execution_id, ()):
            if entry.position > (after or 0):
                yield replace(entry, changes=self._contents.open_value(entry.changes, _batch(execution_id, entry)))

    async def append(self, execution_id: str, base: Position, changes: ChangeSet) -> Position:
        """Add a change set, unless another writer was faster."""
        with self._service.lock:
            entries = self._at(execution_id, base)
            entry = self._sealed(execution_id, Entry(position=(base or 0) + 1, changes=changes))
            self._service.entries[execution_id] = [*entries, entry]
            self._service.facts.setdefault(execution_id, {}).update(facts_of(changes))
        return entry.position

    async def compact(self, execution_id: str, upto: Position, whole: ChangeSet) -> None:
        """Replace all change sets by one."""
        with self._service.lock:
            self._at(execution_id, upto)
            self._service.entries[execution_id] = [self._sealed(execution_id, Entry(position=upto, changes=whole))]

    def _sealed(self, execution_id: str, entry: Entry) -> Entry:
        return replace(entry, changes=self._contents.seal_value(entry.changes, _batch(execution_id, entry)))

    def _at(self, execution_id: str, base: Position) -> list[Entry]:
        entries = self._service.entries.get(execution_id, [])
        if (entries[-1].position if entries else None) != base:
            raise StaleError
        return entries


def _batch(execution_id: str, entry: Entry) -> str:
    """Return what an entry is, for errors; an encrypted one can only be read as this."""
    return f"batch {entry.position} of execution {execution_id!r}"


class MemoryBackend(LogBackend):
    """Runs executions in this process; they are lost with it. ``url`` is ``memory://`` and any name."""

    poll_seconds = _POLL_SECONDS
    starts_at_rest = True
    retention_hint = "They are lost with the process."
    backup_hint = "They are in the memory of this process alone."

    def __init__(self, url: str, *, cipher: Cipher | None = None) -> None:
        self.url = url
        self._service = _services.setdefault(url, _Service())
        self.contents = Contents(cipher_or_default(cipher), url)
        self.log = MemoryLog(self._service, self.contents)

    async def wake(self, execution_id: str) -> None:
        """Let a worker check an execution."""
        self._service.ready[execution_id] = 0.0

    async def presence(self, execution_id: str) -> Presence:
        """Return the owner of an execution, or why it has none."""
        owner, note = self._service.owners.get(execution_id), self._service.notes.get(execution_id)
        note = self.contents.open_value(note, _NOTE) if is_sealed(note) else note
        return Presence(owner=owner, note=note, is_cancelling=execution_id in self._service.stops)

    async def ask_to_stop(self, execution_id: str) -> bool:
        """Ask the owner of an execution to cancel it; False if it has none."""
        with self._service.lock:
            self._service.stops |= {execution_id} & self._service.owners.keys()
            return execution_id in self._service.owners

    async def listed(self, asked: Listing) -> list[ExecutionRecord]:
        """Return executions, the most recently changed first."""
        return asked.chosen([await self._record(each) for each in tuple(self._service.entries)])

    async def _record(self, execution_id: str) -> ExecutionRecord:
        try:
            return (await self.read(execution_id)).detail(await self.presence(execution_id)).execution
        except CipherError as error:
            return outline(execution_id, self._service.facts[execution_id], error)

    def lose_workers(self) -> None:
        """Give up every worker as if it were frozen: others take over its executions, and what it appends is refused."""
        with self._service.lock:
            self._service.losses += 1
            while self._service.owners:
                self._service.ready[self._service.owners.popitem()[0]] = 0.0

    async def work(
        self,
        *,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        stop: asyncio.Event | None = None,
        trial_command: Sequence[str] | None = None,
        is_trial: bool = False,
    ) -> bool:
        """Run executions until ``stop`` is set, also suspected ones: nothing can kill this worker alone."""
        stop = stop or asyncio.Event()
        return await ended_in_time(self._work(concurrency, drain_seconds, stop), stop, drain_seconds)

    async def _work(self, concurrency: int, drain_seconds: float, stop: asyncio.Event) -> bool:
        worker = _Worker(self, self._service, f"worker {next(_numbers)}")
        try:
            async with expiring(self, _DEADLINE_SECONDS):
                while not stop.is_set():
                    worker.look(concurrency)
                    await asyncio.sleep(_POLL_SECONDS)
                return await worker.pool.drained(drain_seconds)
        finally:
            await worker.end()


class _Worker:
    """One call of `MemoryBackend.work`."""

    def __init__(self, backend: MemoryBackend, service: _Service, name: str) -> None:
        self._backend, self._service, self._name = backend, service, name
        self.pool = SessionPool(backend.log, name)
        self._tasks: set[asyncio.Task[None]] = set()
        self._losses = service.losses

    def look(self, concurrency: int) -> None:
        """Start the executions that wait for a worker, and stop those that were cancelled."""
        for execution_id in list(self._service.stops):
            self.pool.cancel(execution_id)
        free = concurrency + self.pool.waiting if self._losses == self._service.losses else 0
        while len(self._tasks) < free and (found := self._service.take()) is not None:
            task = asyncio.create_task(self._run(found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, execution_id: str) -> None:
        """Run an execution as far as possible, and record when to check it again."""
        again: float | None = 0.0  # also after an error
        try:
            known = await self._backend.read(execution_id)
            again = await self._run_session(known) if known.status in AT_WORK else None
        except StaleError:
            pass  # another writer was faster
        except CipherError as error:
            self._service.notes[execution_id], again = str(error), time.time() + _REFUSED_SECONDS
        finally:
            is_stopped = self._service.leave(execution_id, self._name)
            if again is not None:
                self._service.ready.setdefault(execution_id, again)
        if is_stopped:
            await self._backend._handle(execution_id).cancel()

    async def _run_session(self, known: RecordedExecution) -> float | None:
        execution_id = known.execution_id
        end = await self.pool.run(known, lambda: self._service.owners.update({execution_id: self._name}))
        if isinstance(end, str):
            self._service.notes[execution_id] = self._backend.contents.seal_value(end, _NOTE)
            return time.time() + _REFUSED_SECONDS
        self._service.notes.pop(execution_id, None)
        return end.not_before if end.status in AT_WORK else None

    async def end(self) -> None:
        """Release the executions that are still running here."""
        self.pool.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
