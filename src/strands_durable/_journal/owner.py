"""Who owns an execution, and whether it is alive: the one place that answers this.

An owner on this machine is looked up among its processes. Any other is judged by its heartbeat alone: it counts as dead when
the beat has not changed for one lease, by the monotonic clock of the process that looks. The time of day on another machine
does not matter. So nobody is found dead at the first look; a process that looks only once takes an owner elsewhere for alive.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

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
            found = json.loads(text)
            return cls(**{name: kind(found[name]) for name, kind in _FIELDS.items()})
        except (ValueError, TypeError, KeyError):
            return cls(host="an unknown host", boot_id="", pid_namespace="", pid=0, started=str(text)[:200])

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
        return self._is_here() and _start_of(self.pid) != self.started

    def is_at_work(self) -> bool:
        """Say whether this process surely runs, so that a lease it did not renew does not make it dead."""
        return self._is_here() and _start_of(self.pid) == self.started and not _is_stopped(self.pid)

    def _is_here(self) -> bool:
        me = Owner.me()
        return (self.host, self.boot_id, self.pid_namespace) == (me.host, me.boot_id, me.pid_namespace)


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
        owner = Owner.parse(found.owner)
        if owner.is_at_work():
            return True
        return not owner.is_gone() and not self._is_silent(found)

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


@functools.lru_cache(maxsize=4)
def _owner(pid: int) -> Owner:
    return Owner(
        host=socket.gethostname(),
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_link("/proc/self/ns/pid"),
        pid=pid,
        started=_start_of(pid) or "",
    )


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


def _start_of(pid: int) -> str | None:
    """Return when process ``pid`` started, in the kernel's own count; None if it is gone (a zombie is gone)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _answers(pid) else ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _is_stopped(pid: int) -> bool:
    """Say whether a process was stopped by a signal; where nobody here can know, say it was not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _answers(pid: int) -> bool:
    """Where there is no /proc (macOS), ask with signal 0."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
