"""What one process knows of an execution it takes part in: who is in a call, with which agents, and how far each has come."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strands import Agent
from strands.telemetry.metrics import EventLoopMetrics

from .._journal.conversation import History
from .._journal.lease import Lease
from .._journal.sqlite.database import Store
from .._journal.sqlite.heartbeat import LeaseRenewer
from .._journal.sqlite.open_files import stores
from .._records.calls import CallRecord
from .control import ExecutionControl
from .head import Head
from .metrics import Added

_REMEMBERED_EXECUTIONS = 256
_LOOKED_AT = 4
"""How many of the oldest sessions are looked at for each new one."""


@dataclass
class AgentTracker:
    """What is written of an agent that takes part."""

    head: Head
    history: History = field(default_factory=History)
    lineage: int | None = None
    """The log that its messages go to, once it has one."""
    last: int = 0
    """The last call that the agent made here, or was put back to."""
    counted: set[int] = field(default_factory=set)
    """The calls whose cost is part of the agent's metrics."""
    unended: tuple[int, list[Added]] | None = None
    """The last call that the agent ran or was put back to without an end, and what its metrics have of it."""
    token: object = field(default_factory=object)
    """Stands for it where it must not be kept alive."""

    def count(self, call_id: int, added: Added) -> None:
        """Take note of what the agent's metrics have of a call without an end."""
        known = self.unended[1] if self.unended is not None and self.unended[0] == call_id else []
        self.unended = (call_id, [*known, added])

    def uncount(self, call_id: int, metrics: EventLoopMetrics) -> None:
        """Take a call without an end out of the agent's metrics: it has come further elsewhere, or is counted anew."""
        if self.unended is not None and self.unended[0] == call_id:
            for added in self.unended[1]:
                added.take_back(metrics)
            self.unended = None
            self.counted.discard(call_id)

    def forget(self) -> None:
        """After a call that did not end: what was written of the conversation is to be read back, not assumed."""
        self.history = History()


@dataclass
class Cursor:
    """How far one object has come in the list of root calls that are recorded under its agent_id."""

    run: int = 0
    after: int = -1
    """The position of the last call that it has passed; its next call is compared with the one after that."""
    call_id: int | None = None
    """The last call that it made, or that was returned to it."""
    unended: int | None = None
    """That call, if it failed or was left: the same input resumes it, another one is a further call."""
    ran_here: bool = False
    """Whether it failed or was left here; else its recorded failure was raised again."""
    is_open: bool = False
    """Whether that call was begun or resumed here and nothing more is known of it: the store or the lease was lost."""

    def follow(self, run: int) -> None:
        """Start over where the execution was: a new run has a list of its own."""
        if run != self.run:
            self.run, self.after, self.call_id, self.unended, self.is_open = run, -1, None, None, False

    def began(self, record: CallRecord) -> None:
        """The call begins or resumes."""
        self.call_id, self.is_open = record.call_id, True

    def passed(self, record: CallRecord) -> None:
        """The call has ended, or waits for a person."""
        self.after, self.call_id, self.unended, self.is_open = record.position, record.call_id, None, False

    def stays_at(self, record: CallRecord, *, ran_here: bool) -> None:
        """The call raised: whether it is over depends on what the object is called with next."""
        self.after, self.call_id, self.unended = record.position - 1, record.call_id, record.call_id
        self.ran_here, self.is_open = ran_here, False


@dataclass
class LocalExecution:
    """One execution, in one process."""

    execution_id: str
    store: Store | None = None
    """The store, if the execution was handed over with it; else it is the file that the agent's options name."""
    is_claimed: bool = False
    """True until the call begins for which a worker has claimed the execution: no other one may."""
    trackers: weakref.WeakKeyDictionary[Agent, AgentTracker] = field(default_factory=weakref.WeakKeyDictionary)
    cursors: weakref.WeakKeyDictionary[Any, Cursor] = field(default_factory=weakref.WeakKeyDictionary)
    """How far each object has come that makes root calls under an id of its plugin."""
    waiting: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """The objects that wait for answers here."""
    is_at_work: bool = False
    """True while the call under way runs; not while its stream waits to be read on or is being closed."""
    streams: weakref.WeakKeyDictionary[AsyncGenerator[Any, None], asyncio.AbstractEventLoop] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    """The tools and calls inside the root call, as far as they may not have ended, and their event loops."""
    _writers: dict[str, object] = field(default_factory=dict)
    """By agent_id, who wrote last to the log that all objects of that agent_id share."""
    _recorded_as: tuple[bytes, int] | None = None
    """The file and the row of the execution that all this is about."""
    _loop: asyncio.AbstractEventLoop | None = None
    _renewed: tuple[LeaseRenewer, Lease] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_busy(self) -> bool:
        """Whether a root call is under way. One whose event loop was closed can never end: it does not count."""
        return self._loop is not None and not self._loop.is_closed()

    def enter(self) -> bool:
        """Begin a root call, unless another is under way; a claimed execution is for the worker that has claimed it."""
        with self._lock:
            if self.is_busy or self.is_claimed:
                return False
            if self._renewed is not None:
                renewer, lease = self._renewed
                renewer.remove(lease)
                self._renewed = None
            self._loop, self.streams = asyncio.get_running_loop(), weakref.WeakKeyDictionary()
            return True

    def hold(self, renewer: LeaseRenewer, lease: Lease) -> None:
        """Keep the lease of the call under way."""
        self._follow((lease.store.hash_key, lease.row_id))
        renewer.add(lease)
        self._renewed = renewer, lease

    def _follow(self, recorded_as: tuple[bytes, int]) -> None:
        """Forget what was known of an execution that was removed since, alone or with its file: this is another one."""
        if self._recorded_as not in (None, recorded_as):
            self.trackers, self.cursors = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
            self._writers = {}
        self._recorded_as = recorded_as

    def hand_on(self) -> None:
        """Leave the lease to what gives it up: a tool may still run under it."""
        self._renewed = None

    def follow(self, stream: AsyncGenerator[Any, None]) -> None:
        """Have a tool or a call inside the root call end with it."""
        self.streams[stream] = asyncio.get_running_loop()

    def open_streams(self) -> list[AsyncGenerator[Any, None]]:
        """Return what of this event loop has not ended, from the outside in."""
        loop = asyncio.get_running_loop()
        return [
            stream for stream, its in list(self.streams.items()) if its is loop and getattr(stream, "ag_frame", None)
        ]

    def leave(self) -> None:
        """End a root call."""
        self._loop = None

    def tracker(self, agent: Agent) -> AgentTracker:
        """Return what is known of ``agent``."""
        found = self.trackers.get(agent)
        if found is None:
            found = self.trackers[agent] = AgentTracker(Head(agent))
        return found

    def writes(self, agent: Agent) -> None:
        """Let ``agent`` make a root call; what another object with its agent_id has written since is to be read back."""
        tracker = self.tracker(agent)
        if self._writers.get(agent.agent_id) is not tracker.token:
            tracker.forget()
            self._writers[agent.agent_id] = tracker.token

    def cursor(self, subject: Any) -> Cursor:
        """Return how far ``subject`` has come."""
        found = self.cursors.get(subject)
        if found is None:
            found = self.cursors[subject] = Cursor()
        return found


@dataclass(frozen=True)
class Handover:
    """An execution on its way from the worker that has claimed it to the call of its agent."""

    local: LocalExecution
    control: ExecutionControl


_handover: ContextVar[Handover | None] = ContextVar("strands_durable_handover", default=None)


def take_handover(execution_id: str) -> Handover | None:
    """Return the execution that is handed over to the call under way, once; None if none is, or another one."""
    found = _handover.get()
    if found is None or found.local.execution_id != execution_id or not found.local.is_claimed:
        return None
    found.local.is_claimed = False
    return found


class LocalExecutions:
    """The executions that this process takes part in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._executions: dict[tuple[Path, str], LocalExecution] = {}
        self._remembered: deque[tuple[Path, str]] = deque()

    def execution(self, path: Path, execution_id: str) -> LocalExecution:
        """Return this process's part in an execution."""
        with self._lock:
            self._forget_after_fork()
            found = self._executions.get((path, execution_id))
            if found is None:
                found = self._executions[path, execution_id] = LocalExecution(execution_id)
                self._remember((path, execution_id))
            return found

    def known(self, path: Path, execution_id: str) -> LocalExecution | None:
        """Return this process's part in an execution, if it has one."""
        with self._lock:
            self._forget_after_fork()
            return self._executions.get((path, execution_id))

    @contextmanager
    def handing_over(self, control: ExecutionControl) -> Iterator[None]:
        """Hand a claimed execution over to the call that is made inside, as if this process knew nothing of it."""
        store = control.lease.store
        local = LocalExecution(control.execution_id, store, is_claimed=True)
        with self._lock:
            self._forget_after_fork()
            self._executions[store.path, control.execution_id] = local
        token = _handover.set(Handover(local, control))
        try:
            yield
        finally:
            _handover.reset(token)
            self.forget_execution(store.path, local)

    def forget_execution(self, path: Path, local: LocalExecution) -> None:
        """Forget an execution that nobody can name again: its id was made up for one call, and the call has ended."""
        with self._lock:
            if self._executions.get((path, local.execution_id)) is local:
                del self._executions[path, local.execution_id]

    def _remember(self, key: tuple[Path, str]) -> None:
        """A process with very many executions keeps the latest, and those whose objects are in the middle of something."""
        self._remembered.append(key)
        for _ in range(min(_LOOKED_AT, len(self._remembered) - _REMEMBERED_EXECUTIONS)):
            oldest = self._remembered.popleft()
            local = self._executions.get(oldest)
            if local is None:
                continue
            if local.is_busy or local.cursors or local.waiting:
                self._remembered.append(oldest)
            else:
                del self._executions[oldest]

    def forget(self) -> None:
        """Forget everything, as a new process would."""
        with self._lock:
            self._executions, self._remembered = {}, deque()
        stores.close()

    def _forget_after_fork(self) -> None:
        """What the parent knows, the child did not do."""
        if self._pid != os.getpid():
            self._pid, self._executions, self._remembered = os.getpid(), {}, deque()


local_executions = LocalExecutions()
