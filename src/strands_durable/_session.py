"""What one process knows of an execution it takes part in: how many root calls it has made, and with which agents."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strands import Agent

from ._head import Head
from ._history import History
from ._journal import Journal
from ._latch import Latch
from ._lease import Lease, Owner
from ._options import Options
from ._stores import stores
from .errors import ExecutionBusyError, UnsupportedFeatureError

_REMEMBERED_SESSIONS = 256


@dataclass
class Member:
    """What is written of an agent that takes part."""

    head: Head
    history: History = field(default_factory=History)
    lineage: int | None = None
    """The log that its messages go to, once it has one."""
    last: int = 0
    """The last call that the agent made here, or was put back to."""

    def forget(self) -> None:
        """After a call that did not end: what was written of the conversation is to be read back, not assumed."""
        self.history = History()


@dataclass(frozen=True)
class Site:
    """Where a call of an agent is made: the execution, the agent's part in it, and the call around it."""

    agent: Agent
    journal: Journal
    session: Session
    options: Options
    outer: Latch | None

    @property
    def member(self) -> Member:
        """What is known of the agent."""
        return self.session.member(self.agent)


@dataclass
class Session:
    """One execution, in one process."""

    execution_id: str
    position: int = 0
    """The root calls that this process has made."""
    call_id: int | None = None
    """The last of them."""
    busy: weakref.ref[Any] | None = None
    claim: Lease | None = None
    """The lease under which a worker has claimed the execution, until the call begins."""
    members: weakref.WeakKeyDictionary[Agent, Member] = field(default_factory=weakref.WeakKeyDictionary)
    counted: set[int] = field(default_factory=set)
    """The calls whose cost is part of the metrics of an agent in this process."""
    _roots: dict[str, weakref.ref[Agent]] = field(default_factory=dict)

    def enter(self, agent: Any) -> None:
        """Begin a root call; there is one at a time."""
        if self.busy is not None and self.busy() is not None:
            raise ExecutionBusyError(
                self.execution_id, str(Owner.me()), "Another call in this process has not ended yet."
            )
        self.busy = weakref.ref(agent)

    def leave(self) -> None:
        """End a root call."""
        self.busy = None

    def member(self, agent: Agent) -> Member:
        """Return what is known of ``agent``."""
        found = self.members.get(agent)
        if found is None:
            found = self.members[agent] = Member(Head(agent))
        return found

    def root(self, agent: Agent) -> None:
        """Let ``agent`` make root calls; another live agent with its agent_id is refused."""
        found = self._roots.setdefault(agent.agent_id, weakref.ref(agent))
        if found() is agent:
            return
        if found() is not None:
            gc.collect()  # an agent is part of reference cycles: it may be dead and not know it
        if found() is not None:
            raise UnsupportedFeatureError(
                f"A second agent {agent.agent_id!r} in execution {self.execution_id!r}",
                "their steps could not be told apart",
                "Give each Agent its own agent_id, or call the same object again.",
            )
        self._roots[agent.agent_id] = weakref.ref(agent)


class Process:
    """The executions that this process takes part in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._sessions: dict[tuple[Path, str], Session] = {}
        self._remembered: deque[Session] = deque()

    def session(self, path: Path, execution_id: str) -> Session:
        """Return this process's part in an execution."""
        with self._lock:
            self._forget_after_fork()
            found = self._sessions.get((path, execution_id))
            if found is None:
                found = self._sessions[path, execution_id] = Session(execution_id)
            if not found.members:
                self._remember(found)
            return found

    def claim(self, path: Path, lease: Lease) -> Session:
        """Take part in an execution that a worker has claimed, as if this process knew nothing of it."""
        with self._lock:
            self._forget_after_fork()
            session = self._sessions[path, lease.execution_id] = Session(lease.execution_id, claim=lease)
            return session

    def end_session(self, path: Path, session: Session) -> None:
        """Forget an execution that nobody can name again: its id was made up for one call, and the call has ended."""
        with self._lock:
            if self._sessions.get((path, session.execution_id)) is session:
                del self._sessions[path, session.execution_id]

    def _remember(self, session: Session) -> None:
        """What is written of an agent can be read back; a process with very many executions keeps only the latest."""
        self._remembered.append(session)
        while len(self._remembered) > _REMEMBERED_SESSIONS:
            oldest = self._remembered.popleft()
            if oldest.busy is None:
                oldest.members.clear()

    def forget(self) -> None:
        """Forget everything, as a new process would."""
        with self._lock:
            self._sessions, self._remembered = {}, deque()
        stores.close()

    def _forget_after_fork(self) -> None:
        """What the parent knows, the child did not do."""
        if self._pid != os.getpid():
            self._pid, self._sessions, self._remembered = os.getpid(), {}, deque()


process = Process()
