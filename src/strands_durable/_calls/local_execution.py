"""What one process knows about an execution it takes part in: its running call, its agents, and the progress of each."""

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
from .._records.calls import CallRecord
from .._sqlite.database import Store
from .._sqlite.heartbeat import LeaseRenewer
from .._sqlite.lease import Lease
from .._sqlite.open_files import stores
from .control import ExecutionControl
from .head import Head
from .metrics import Added

_REMEMBERED_EXECUTIONS = 256
_LOOKED_AT = 4
"""How many of the oldest executions are checked for removal with each new one."""


@dataclass
class AgentTracker:
    """What is on record of a participating agent."""

    head: Head
    history: History = field(default_factory=History)
    lineage: int | None = None
    """The log that its messages are written to, once it has one."""
    last: int = 0
    """The last call that the agent made here, or was restored to."""
    counted: set[int] = field(default_factory=set)
    """The calls that the agent's metrics include."""
    unended: tuple[int, list[Added]] | None = None
    """The last unfinished call that the agent ran or was restored to, and what it added to the metrics."""
    token: object = field(default_factory=object)
    """Identifies the tracker without keeping it alive."""

    def count(self, call_id: int, added: Added) -> None:
        """Remember what an unfinished call added to the agent's metrics."""
        known = self.unended[1] if self.unended is not None and self.unended[0] == call_id else []
        self.unended = (call_id, [*known, added])

    def uncount(self, call_id: int, metrics: EventLoopMetrics) -> None:
        """Remove an unfinished call from the agent's metrics: it progressed elsewhere, or is counted again."""
        if self.unended is not None and self.unended[0] == call_id:
            for added in self.unended[1]:
                added.take_back(metrics)
            self.unended = None
            self.counted.discard(call_id)

    def forget(self) -> None:
        """Forget the conversation after an unfinished call: what was written must be read back, not assumed."""
        self.history = History()


@dataclass
class Cursor:
    """The position of one object in the list of root calls recorded under its agent_id."""

    run: int = 0
    after: int = -1
    """The position of the last call it has passed; its next call is compared with the one after that."""
    call_id: int | None = None
    """The last call that it made, or that was returned to it."""
    unended: int | None = None
    """That call, if it failed or was left: the same input resumes it, another input makes a new call."""
    ran_here: bool = False
    """Whether it failed or was left here; otherwise its recorded failure was raised again."""
    is_open: bool = False
    """Whether that call began or resumed here with unknown outcome: the store or the lease was lost."""

    def follow(self, run: int) -> None:
        """Start over if the execution was restarted: a new run has its own list."""
        if run != self.run:
            self.run, self.after, self.call_id, self.unended, self.is_open = run, -1, None, None, False

    def began(self, record: CallRecord) -> None:
        """The call begins or resumes."""
        self.call_id, self.is_open = record.call_id, True

    def passed(self, record: CallRecord) -> None:
        """The call has ended, or waits for a person."""
        self.after, self.call_id, self.unended, self.is_open = record.position, record.call_id, None, False

    def stays_at(self, record: CallRecord, *, ran_here: bool) -> None:
        """The call raised: the object's next input decides whether it is over."""
        self.after, self.call_id, self.unended = record.position - 1, record.call_id, record.call_id
        self.ran_here, self.is_open = ran_here, False


@dataclass
class LocalExecution:
    """One execution, in one process."""

    execution_id: str
    store: Store | None = None
    """The store, if it was handed over with the execution; otherwise the agent's options name the file."""
    is_claimed: bool = False
    """True from a worker's claim until its call begins; no other call may begin in between."""
    trackers: weakref.WeakKeyDictionary[Agent, AgentTracker] = field(default_factory=weakref.WeakKeyDictionary)
    cursors: weakref.WeakKeyDictionary[Any, Cursor] = field(default_factory=weakref.WeakKeyDictionary)
    """The position of each object that makes root calls under the id of its plugin."""
    waiting: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """The objects that wait for answers here."""
    is_at_work: bool = False
    """True while the current call runs; not while its stream waits for its reader or is being closed."""
    streams: weakref.WeakKeyDictionary[AsyncGenerator[Any, None], asyncio.AbstractEventLoop] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    """The tools and calls inside the root call that may not have ended, and their event loops."""
    said: set[Any] = field(default_factory=set)
    """What was logged here, and is not logged again."""
    _writers: dict[str, object] = field(default_factory=dict)
    """By agent_id, the last writer to the log that all objects with that agent_id share."""
    _recorded_as: tuple[bytes, int] | None = None
    """The file and the row of this execution."""
    _loop: asyncio.AbstractEventLoop | None = None
    _renewed: tuple[LeaseRenewer, Lease] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_busy(self) -> bool:
        """Whether a root call is running. One whose event loop was closed can never end and does not count."""
        return self._loop is not None and not self._loop.is_closed()

    def enter(self) -> bool:
        """Begin a root call, unless another is running; a claimed execution belongs to the worker that claimed it."""
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
        """Hold the lease of the current call."""
        self._follow((lease.store.hash_key, lease.row_id))
        renewer.add(lease)
        self._renewed = renewer, lease

    def _follow(self, recorded_as: tuple[bytes, int]) -> None:
        """Forget what was known if the execution was removed since, alone or with its file: this is a different one."""
        if self._recorded_as not in (None, recorded_as):
            self.trackers, self.cursors = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
            self._writers = {}
        self._recorded_as = recorded_as

    def hand_on(self) -> None:
        """Stop tracking the lease, because a tool may still run under it; the release happens elsewhere."""
        self._renewed = None

    def follow(self, stream: AsyncGenerator[Any, None]) -> None:
        """End a tool or call inside the root call together with it."""
        self.streams[stream] = asyncio.get_running_loop()

    def open_streams(self) -> list[AsyncGenerator[Any, None]]:
        """Return the unfinished streams of this event loop, outermost first."""
        loop = asyncio.get_running_loop()
        return [
            stream for stream, its in list(self.streams.items()) if its is loop and getattr(stream, "ag_frame", None)
        ]

    def leave(self) -> None:
        """End a root call."""
        self._loop = None

    def tracker(self, agent: Agent) -> AgentTracker:
        """Return the tracker of ``agent``."""
        found = self.trackers.get(agent)
        if found is None:
            found = self.trackers[agent] = AgentTracker(Head(agent))
        return found

    def writes(self, agent: Agent) -> None:
        """Let ``agent`` make a root call; what another object with its agent_id has written since must be read back."""
        tracker = self.tracker(agent)
        if self._writers.get(agent.agent_id) is not tracker.token:
            tracker.forget()
            self._writers[agent.agent_id] = tracker.token

    def cursor(self, subject: Any) -> Cursor:
        """Return the cursor of ``subject``."""
        found = self.cursors.get(subject)
        if found is None:
            found = self.cursors[subject] = Cursor()
        return found


@dataclass(frozen=True)
class Handover:
    """Passes an execution from the worker that claimed it to the call of its agent."""

    local: LocalExecution
    control: ExecutionControl


_handover: ContextVar[Handover | None] = ContextVar("strands_durable_handover", default=None)


def take_handover(execution_id: str) -> Handover | None:
    """Return, once, the execution that is handed over to the current call; None if there is none or its id differs."""
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
        """Hand a claimed execution over to the call made inside the block, as if this process did not know it yet."""
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
        """Forget an execution: it was handed over and has ended, or its id was generated for one call."""
        with self._lock:
            if self._executions.get((path, local.execution_id)) is local:
                del self._executions[path, local.execution_id]

    def _remember(self, key: tuple[Path, str]) -> None:
        """Keep the latest executions and those in use, and forget the oldest of the others."""
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
        """Forget in a child process what its parent knew: the child did none of it."""
        if self._pid != os.getpid():
            self._pid, self._executions, self._remembered = os.getpid(), {}, deque()


local_executions = LocalExecutions()
