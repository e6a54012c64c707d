"""Who owns an execution, and whether it is alive: the one place that answers this.

An owner on this machine is looked up among its processes. Any other is judged by its heartbeat alone: it counts as dead when
the beat has not changed for one lease, by the monotonic clock of the process that looks. The time of day on another machine
does not matter. So nobody is found dead at the first look; a process that looks only once takes an owner elsewhere for alive.

What only shows an owner, and replaces none, asks `seems_alive`: the same rule for one look, with the time of the last beat in
place of a lease of watching.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Sight = Literal["at work", "gone", "unknown"]
"""What can be seen of a process: it surely runs, it surely no longer runs, or neither is sure."""

_LONG_SECONDS = 86400.0
"""No lease is that long, and no clock that wrong: what seems to be is damaged."""
_UNKNOWN_SECONDS = 10.0
"""How long a lease is taken to be that does not say."""

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

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Return the owner whose recorded form is ``text``; one that cannot be read is some process elsewhere."""
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
        """Say whether this process surely no longer runs; False where nobody here can know."""
        return self.sight() == "gone"

    def is_at_work(self) -> bool:
        """Say whether this process surely runs, so that a lease it did not renew does not make it dead."""
        return self.sight() == "at work"

    def sight(self) -> Sight:
        """Return what can be seen of this process from here. One that was stopped by a signal is not at work."""
        is_here = (self.host, self.boot_id, self.pid_namespace) == _machine(os.getpid())
        return _sight(self.pid, self.started) if is_here else "unknown"


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

    def is_alive(self, found: Beat) -> bool:
        """Say whether the owner of an execution is to be taken for alive; to be asked again and again while one waits."""
        return self._is_alive(found, _look)

    def dead(self, beats: Iterable[Beat]) -> list[Beat]:
        """Return those whose owner is dead by the same rule; each process is looked at once, whatever it owns."""
        look = functools.cache(_look)
        return [found for found in beats if not self._is_alive(found, look)]

    def _is_alive(self, found: Beat, look: Callable[[str], Sight]) -> bool:
        sight = look(found.owner)
        return sight == "at work" or (sight == "unknown" and not self._is_silent(found))

    def _is_silent(self, found: Beat) -> bool:
        """Say whether a beat has not changed for one lease. A long time without a look counts half a lease at most: perhaps
        nobody was running, the owner included."""
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
    """Say whether an owner is to be shown as alive, after one look; nobody is replaced by it.

    Where its process cannot be seen, the end of its lease is compared with the clock of this machine.
    """
    sight = owner.sight()
    if sight != "unknown":
        return sight == "at work"
    now = time.time()
    return isinstance(lease_until, float) and now < lease_until < now + _LONG_SECONDS


def _look(owner: str) -> Sight:
    return Owner.parse(owner).sight()


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
    """Return where process ``pid``, this one, can be seen: its host, the id of its boot, and its namespace of pids.

    Only Linux has the latter two. The time of a boot is no id: it moves with the clock.
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


def _sight(pid: int, started: str) -> Sight:
    """Return what can be seen of the process that was ``started`` then as ``pid``; a zombie is gone."""
    import psutil  # takes 10 ms, and `ls` needs it only where something is owned

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
    return "unknown" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "at work"


_IS_EXACT = sys.platform == "linux"
"""Whether the start of a process is the same for all who look. Elsewhere psutil tells its time of day, and on macOS, once the
clock was set, not the same to everybody: where it does not match, the heartbeat decides."""


def _start_and_status(pid: int) -> tuple[str, str]:
    """Return when a process started, and its status; on Linux in clock ticks since the boot, as the kernel counts."""
    import psutil

    while True:
        boot_time = psutil.boot_time() if _IS_EXACT else 0.0
        process = psutil.Process(pid)
        with process.oneshot():
            created, status = process.create_time(), process.status()
        if not _IS_EXACT:
            return repr(created), status
        if psutil.boot_time() == boot_time:  # else the clock was set meanwhile
            return str(round((created - boot_time) * os.sysconf("SC_CLK_TCK"))), status
