"""What can be wrong with the file of a SQLite backend: who may read it, its format, its disk, its file system, its agents."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import psutil

from .._dispatch.queue import Queue
from .._dispatch.registry import agents
from .._records.findings import Finding, by_reason, few
from .._sqlite.database import Store, readable_version
from .._sqlite.tables import FORMAT
from ..errors import DurableError

_LOW_BYTES, _FEW_BYTES = 1 << 30, 100 << 20
_NETWORK = ("nfs", "cifs", "smb", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "9p", "efs")
_QUEUED = 50
"""How many waiting executions are compared with the agents of this process."""


def checks_of_file(path: Path) -> list[Finding]:
    """Return what can be seen without opening the store; a first finding that is a problem ends it."""
    try:
        version = readable_version(path)
    except (DurableError, OSError) as error:
        return [Finding(check="format", level="problem", text=str(error))]
    return [_format(path, version), _permissions(path), _writable(path), _disk(path), _file_system(path)]


def _format(path: Path, version: int) -> Finding:
    if version == FORMAT:
        return Finding(check="format", level="ok", text=f"format {version}")
    text = f"format {version}; the next process that opens it for writing upgrades it to {FORMAT}"
    return Finding(
        check="format", level="warning", text=text, remedy="Take a backup, and stop workers of the old version."
    )


def _permissions(path: Path) -> Finding:
    files = [file for suffix in ("", "-wal", "-shm") if (file := path.with_name(path.name + suffix)).exists()]
    open_to_others = [file for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077]
    if not open_to_others:
        return Finding(check="permissions", level="ok", text="only its owner can read it")
    names = " ".join(str(file) for file in open_to_others)
    text = f"other users of this machine can read or change {', '.join(file.name for file in open_to_others)}"
    return Finding(check="permissions", level="problem", text=text, remedy=f"Run: chmod 600 {names}")


def _writable(path: Path) -> Finding:
    if os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK):
        return Finding(check="writable", level="ok", text="this user can write the file and its folder")
    text = "this user cannot write the file or its folder, where SQLite keeps its WAL"
    return Finding(check="writable", level="problem", text=text, remedy=f"Run as the owner of {path}.")


def _disk(path: Path) -> Finding:
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    text = f"{free / (1 << 30):.1f} GB free, the file has {size / (1 << 20):.1f} MB"
    if free >= _LOW_BYTES:
        return Finding(check="disk", level="ok", text=text)
    remedy = "Free space, or remove executions that have ended: strands-durable rm ID"
    return Finding(check="disk", level="problem" if free < _FEW_BYTES else "warning", text=text, remedy=remedy)


def _file_system(path: Path) -> Finding:
    """Return whether the file is on a network file system, as far as the mounts of this machine show it."""
    folder = path.parent.resolve()
    mounts = [each for each in psutil.disk_partitions(all=True) if folder.is_relative_to(each.mountpoint)]
    if not mounts:
        return Finding(check="file system", level="unknown", text="the mounts of this machine do not show it")
    kind = max(mounts, key=lambda each: len(each.mountpoint)).fstype
    if not kind.startswith(_NETWORK):
        return Finding(check="file system", level="ok", text=kind)
    text = f"{kind} is a network file system: SQLite's WAL needs shared memory and locks of one machine"
    return Finding(check="file system", level="problem", text=text, remedy="Move the file to a local disk.")


def checks_of_store(store: Store) -> list[Finding]:
    """Return what only an open store shows."""
    (mode,) = store.read("PRAGMA journal_mode")[0]
    text = f"journal mode {mode}"
    found = Finding(check="wal", level="ok", text=text)
    if mode != "wal":
        remedy = "Move the file to a local disk: its file system has no shared memory."
        found = Finding(check="wal", level="problem", text=text, remedy=remedy)
    return [found, *_versions(store)]


def _versions(store: Store) -> list[Finding]:
    """Compare the agents of this process with the executions that wait for a worker."""
    if not agents:
        return []
    from .._dispatch.runner import refusal

    queue, refused = Queue(store), list[tuple[str, str]]()
    for suspected in (False, True):
        for queued in queue.claimable(refused=(), suspected=suspected, limit=_QUEUED):
            why = refusal(queued)
            if why is not None:
                refused.append((queued.execution_id, why))
    found = [_cannot_run(ids, why) for why, ids in by_reason(refused).items()]
    text = "these files can run every execution that waits for a worker"
    return found or [Finding(check="versions", level="ok", text=text)]


def _cannot_run(ids: list[str], why: str) -> Finding:
    text = f"execution {ids[0]!r} waits, and these files cannot run it"
    if len(ids) > 1:
        text = f"{len(ids)} executions wait, and these files cannot run them: {few(list(map(repr, ids)))}"
    return Finding(check="versions", level="warning", text=text, remedy=why)
