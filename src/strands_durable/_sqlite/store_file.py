"""The file of a store on disk, and the two that SQLite keeps beside it: what it is, and whether it still is the one in use.

The file is opened through SQLite alone: closing a file drops every lock that this process has on it. Others would then take the
store for closed, and delete the WAL that is still written to.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

from ..errors import BackendUnavailableError, FormatVersionError
from .schema import APPLICATION_ID, OLDEST
from .tables import FORMAT

_SUFFIXES = ("", "-wal", "-shm")
_MOMENT_SECONDS = 0.05
HEADER_SECONDS = 10.0
_TICK_NANOSECONDS = 100_000_000


def version_of(path: Path) -> int:
    """Return the format of a store; 0 for a new or empty file. One that is not ours is refused and left untouched."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):  # SQLite has its own error for a folder
        raise BackendUnavailableError(str(path), "it is not a file", "Pass the path of a store.")
    if found.st_size == 0:
        return 0
    try:
        application_id, version = _header(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError as error:
        is_cut_off = os.path.exists(f"{path}-journal")
        if "not a database" in str(error) and not is_cut_off:
            raise FormatVersionError(str(path), "not a SQLite file, or damaged", _expected()) from error
        if "malformed" not in str(error) and not is_cut_off:
            raise
        # Without its WAL, a file is incomplete while a checkpoint runs, or after a kill has cut one off. A kill while a new
        # file was made leaves a journal, with which SQLite makes it empty again.
        application_id, version = _header(path, "mode=rw")
        if os.stat(path).st_size == 0:
            return 0
    if application_id != APPLICATION_ID:
        raise FormatVersionError(str(path), "a SQLite file of another program", _expected())
    if not OLDEST <= version <= FORMAT:
        raise FormatVersionError(str(path), f"strands-durable format {version}", f"format {FORMAT}")
    return version


def _header(path: Path, how: str) -> tuple[int, int]:
    with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=HEADER_SECONDS)) as connection:
        names = ("application_id", "user_version")
        application_id, version = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
        return application_id, version


def _expected() -> str:
    return f"strands-durable format {FORMAT}"


def create_private(path: Path) -> None:
    """Make a file that only its owner may read; what SQLite puts beside it gets the same mode."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    os.chmod(path, 0o600)


class StoreFile:
    """The files of an open store, as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        self._folder = str(path.parent)
        self._paths = [f"{path}{suffix}" for suffix in _SUFFIXES]
        self._opened = [_identity(name) for name in self._paths]
        self._written_at = os.stat(path).st_mtime_ns
        self._folder_at = -1
        self._looked_at = 0.0

    @property
    def is_replaced(self) -> bool:
        """Whether another file has taken the place of the store."""
        found = _identity(self._paths[0])
        return found is not None and found != self._opened[0]

    def was_looked_at(self) -> bool:
        """Return True if the files were checked a moment ago."""
        return time.monotonic() - self._looked_at < _MOMENT_SECONDS

    def lost(self) -> str | None:
        """Return the name of a file that was deleted or replaced; None while all are the ones that were opened."""
        try:
            found, folder = os.stat(self._paths[0]), os.stat(self._folder)
        except OSError:
            return self._paths[0]
        if (found.st_dev, found.st_ino) != self._opened[0]:
            return self._paths[0]
        if folder.st_mtime_ns != self._folder_at:
            for name, opened in list(zip(self._paths, self._opened, strict=True))[1:]:
                if _identity(name) != opened:
                    return name
            # A file that is deleted changes its folder, but a second change within one tick of the clock does not show.
            is_settled = time.time_ns() - folder.st_mtime_ns > _TICK_NANOSECONDS
            self._folder_at = folder.st_mtime_ns if is_settled else -1
        self._written_at, self._looked_at = found.st_mtime_ns, time.monotonic()
        return None

    def is_untouched(self) -> bool:
        """Return True if no process has opened or changed the store since its WAL was deleted."""
        try:
            return not os.path.exists(self._paths[1]) and os.stat(self._paths[0]).st_mtime_ns == self._written_at
        except OSError:
            return False


def keep_for_ever(connection: sqlite3.Connection) -> None:
    """Never close a connection, not even with the interpreter: the last to close one writes its WAL into the file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)
