"""Which process owns an execution, and whether it is alive: the one place that decides this.

An owner on this machine is looked up among its processes. Any other owner is judged by its heartbeat alone: it counts as dead
once the beat has not changed for one lease, measured by the monotonic clock of the process that looks; the time of day on the
other machine does not matter. So no owner is dead at the first look, and a process that looks only once treats an owner
elsewhere as alive.

Commands that show an owner and replace none use `seems_alive`: the same rule for a single look, with the recorded end of the
lease in place of a lease of watching.
"""

from __future__ import annotations

import functools
import getpass
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

ProcessState = Literal["running", "gone", "unknown"]
"""``unknown``: it runs elsewhere, was stopped by a signal, or cannot be inspected."""

_LONG_SECONDS = 86400.0
"""No lease is this long and no clock this wrong: a later end of a lease is damaged data."""
_UNKNOWN_SECONDS = 10.0
"""The length of a lease that has none on record."""

BEAT = "id, owner, fence, beat, lease_seconds"
"""The columns of `Beat`."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process, named so that it cannot be confused with a later one of the same number."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: str

    @classmethod
    def me(cls) -> Owner:
        """Return this process."""
        return _owner(os.getpid())

    def within(self, name: str) -> Owner:
        """Return a part of this process that an engine distinguishes from others: an invocation, one of several workers.

        Whether it is alive is for the engine to know; by its process it counts as gone.
        """
        return replace(self, started=f"{self.started} {name}")

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Return the owner whose recorded form is ``text``; an unreadable one is some process elsewhere."""
        try:
            recorded = json.loads(text)
            found = cls(**{name: kind(recorded[name]) for name, kind in _FIELDS.items()})
        except (ArithmeticError, ValueError, TypeError, KeyError):
            found = None
        if found is None or found.pid <= 0:
            return cls(host="an unknown host", boot_id="", pid_namespace="", pid=0, started=str(text)[:200])
        return found

    @property
    def is_known(self) -> bool:
        """Whether its record could be read."""
        return self.pid != 0

    def recorded(self) -> str:
        """Return the recorded form."""
        return json.dumps(vars(self), separators=(",", ":"))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_gone(self) -> bool:
        """Return whether this process certainly no longer runs; False if that cannot be known here."""
        return self.state() == "gone"

    def is_at_work(self) -> bool:
        """Return whether this process certainly runs, so that a lease it did not renew does not make it dead."""
        return self.state() == "running"

    def state(self) -> ProcessState:
        """Return what can be known of this process from here."""
        is_here = (self.host, self.boot_id, self.pid_namespace) == _machine(os.getpid())
        return _state_of(self.pid, self.started) if is_here else "unknown"


_FIELDS = {"host": str, "boot_id": str, "pid_namespace": str, "pid": int, "started": str}


@dataclass(frozen=True)
class Beat:
    """What an execution's row says of its owner."""

    row_id: int
    owner: str
    fence: int
    beat: int
    lease_seconds: float


class Liveness:
    """What this process has seen of the heartbeats in one store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, _Seen] = {}

    def is_alive(self, found: Beat, state_of: Callable[[str], ProcessState] | None = None) -> bool:
        """Return whether the owner of an execution counts as alive; while waiting for it, ask again and again."""
        state = (state_of or _look)(found.owner)
        return state == "running" or (state == "unknown" and not self._is_silent(found))

    def dead(self, beats: Iterable[Beat]) -> list[Beat]:
        """Return those whose owner is dead, by the same rule; a process that owns several is looked up once."""
        look = functools.cache(_look)
        return [found for found in beats if not self.is_alive(found, look)]

    def _is_silent(self, found: Beat) -> bool:
        """Return whether a beat has not changed for one lease. A long time without a look counts half a lease at most: the
        machine may have been asleep, and the owner with it."""
        now, seconds = time.monotonic(), found.lease_seconds if found.lease_seconds > 0 else _UNKNOWN_SECONDS
        with self._lock:
            seen = self._seen.get(found.row_id)
            if seen is None or seen.found != found:
                self._seen[found.row_id] = _Seen(found, now)
                return False
            seen.silent_seconds += min(now - seen.looked_at, seconds / 2)
            seen.looked_at = now
            return seen.silent_seconds >= seconds


@dataclass
class _Seen:
    found: Beat
    looked_at: float
    silent_seconds: float = 0.0


def seems_alive(owner: Owner, lease_until: object) -> bool:
    """Return whether to show an owner as alive after a single look.

    If its process cannot be inspected, the end of its lease is compared with the clock of this machine.
    """
    state = owner.state()
    if state != "unknown":
        return state == "running"
    now = time.time()
    return isinstance(lease_until, float) and now < lease_until < now + _LONG_SECONDS


def _look(owner: str) -> ProcessState:
    return Owner.parse(owner).state()


@functools.lru_cache(maxsize=4)
def _owner(pid: int) -> Owner:
    host, boot_id, pid_namespace = _machine(pid)
    try:
        started = _start_and_status(pid)[0]
    except (OSError, RuntimeError):  # no /proc, as in some sandboxes: the heartbeat decides
        started = ""
    return Owner(host=host, boot_id=boot_id, pid_namespace=pid_namespace, pid=pid, started=started)


@functools.lru_cache(maxsize=4)
def _machine(pid: int) -> tuple[str, str, str]:
    """Return where processes can see this one, ``pid``: the host, the id of the boot and the namespace of pids.

    Only Linux has the last two. The time of the boot identifies nothing: it moves when the clock is set.
    """
    return socket.gethostname(), _first_line("/proc/sys/kernel/random/boot_id"), _link("/proc/self/ns/pid")


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _state_of(pid: int, started: str) -> ProcessState:
    """Return the state of the process that was given ``pid`` at ``started``; a zombie is gone."""
    import psutil  # takes 10 ms, which `ls` spends only if an execution has an owner

    try:
        now, status = _start_and_status(pid)
    except psutil.NoSuchProcess:
        return "gone"
    except (psutil.AccessDenied, OSError, RuntimeError):
        return "unknown"
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return "gone"
    if now != started:
        return "gone" if _IS_EXACT and started else "unknown"
    return "unknown" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "running"


_IS_EXACT = sys.platform == "linux"
"""Whether every process sees the same start of another one. Elsewhere psutil has only the time of day, which on macOS differs
between processes once the clock was set: a start that does not match then leaves the decision to the heartbeat."""


def _start_and_status(pid: int) -> tuple[str, str]:
    """Return when a process started, and its status; on Linux the start is in clock ticks since the boot, as in the kernel."""
    import psutil

    while True:
        process = psutil.Process(pid)
        boot_time = psutil.boot_time() if _IS_EXACT else 0.0
        with process.oneshot():
            created, status = process.create_time(), process.status()
        if not _IS_EXACT:
            return repr(created), status
        if psutil.boot_time() == boot_time:  # otherwise the clock was set in between
            return str(round((created - boot_time) * os.sysconf("SC_CLK_TCK"))), status


def user_name() -> str:
    """Return the user and the machine of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may have no name for its user
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"
