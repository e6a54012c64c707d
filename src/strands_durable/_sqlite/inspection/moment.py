"""Reading a store as it is at one moment, without changing or making a file.

A store at rest is read as the plain file that it is: SQLite would put files beside it, which a folder that is only readable
does not allow. One that is in use is read through its WAL; a reader there keeps no writer waiting, but keeps the WAL from being
emptied until it is done.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from ...errors import BackendUnavailableError, CipherError
from ..connection import Connection
from ..database import translated

T = TypeVar("T")
BUSY_SECONDS = 10.0


def at_one_moment(path: Path, work: Callable[[Connection], T]) -> T:
    """Return what ``work`` makes of a connection that only reads; it begins its transaction itself, and may be called twice.

    A store at rest is read as a plain file. If it turns out afterwards that it was not at rest, it is read again.
    """
    at_rest = _at_rest(path)
    if at_rest is not None:
        try:
            found = _read(path, "mode=ro&immutable=1", work)
        except (sqlite3.Error, CipherError):
            if _at_rest(path) == at_rest:
                raise
        else:
            if _at_rest(path) == at_rest:
                return found
    return _read(path, "mode=ro", work)


def _at_rest(path: Path) -> tuple[int, int, int] | None:
    """Return what a store at rest can be recognized by; None while a process has it open, or died with it open."""
    if any(os.path.exists(f"{path}{suffix}") for suffix in ("-wal", "-journal")):
        return None
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path, mode: str, work: Callable[[Connection], T]) -> T:
    url = f"{path.as_uri()}?{mode}"
    with closing(
        sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS, isolation_level=None, factory=Connection)
    ) as connection:
        connection.execute("PRAGMA temp_store = MEMORY")  # nothing decrypted in files for sorting
        return work(connection)


def unreadable(path: Path, error: sqlite3.Error) -> BackendUnavailableError:
    """Return our error for one of SQLite's while a store was read."""
    if "readonly" in str(error) and os.path.exists(f"{path}-journal"):
        reason = "a process died while it upgraded the file, and what it had written is not taken back yet"
        hint = "The next process that opens it for writing repairs it: run its script or a worker."
        return BackendUnavailableError(str(path), reason, hint)
    return translated(path, error, BUSY_SECONDS)


def as_text(data: bytes) -> str | bytes:
    """A text that is damaged stays bytes, which are no JSON and no name: it must not hide the rest of the store."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
