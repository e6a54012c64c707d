"""A copy of a store that is in use: whole, at one moment, in one file.

The copy is made through SQLite's backup interface inside one read transaction. In the WAL a reader keeps no writer waiting,
and what is committed meanwhile does not make the copy begin again. It does keep the WAL from being emptied: the WAL grows by
what is written while the copy is made, and text that is removed meanwhile is gone from it only afterwards.

The copy has a temporary name until it is whole and on the disk. A killed backup leaves only that, and the next one to the same
place deletes it. Executions of the copy have no owner: their owners have the original open, not the copy. So a process that
opens the copy waits for no lease; an execution that was running is resumed by the first process that runs it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..._records.crash_points import reach
from ...errors import BackupError
from ..database import damaged
from ..inspection.moment import at_one_moment, unreadable
from ..store_file import version_of

try:
    import fcntl
except ImportError:  # on Windows, where a file that is open cannot be deleted
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[int, int], None]
"""Called with how much of how much is done."""

_STEP_PAGES = 256
"""How many pages are copied at a time: 2 MB."""
_BESIDE = ("-wal", "-shm", "-journal")
_WRITING = ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE")
"""Errors of a file that is written."""


def back_up(path: Path, target: Path, *, force: bool = False, progress: Progress | None = None) -> int:
    """Copy the store at ``path`` to a new file, and return its size in bytes.

    Args:
        path: The store; it may be in use.
        target: The copy. Only its owner can read it.
        force: Replace a file that is there.
        progress: Called with the pages that are copied, and all pages.

    Raises:
        BackupError: ``target`` exists, or no file can be made there, or there is no room for it.
        BackendUnavailableError: The store cannot be read.
    """
    target = _resolved(target)
    _refuse(path, target, force)
    try:
        version_of(path)
        with _partial(target) as partial:
            at_one_moment(path, lambda source: _copy(source, partial, progress or (lambda *_: None)))
            _publish(partial, target, force)
    except sqlite3.Error as error:
        if _is_of_target(error):
            raise BackupError(str(target), _cannot_write(error), "Make room there, or pass another path.") from error
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from error
    except OSError as error:
        raise BackupError(
            str(target), error.strerror or str(error), "Check that its folder exists and is writable."
        ) from error
    return target.stat().st_size


def _resolved(target: Path) -> Path:
    try:
        found = Path(os.path.realpath(os.path.expanduser(target)))
        os.fsencode(found)
        is_circle = found.is_symlink()  # one that leads somewhere is resolved by now
    except ValueError as error:
        raise BackupError(repr(str(target)), f"it is no path: {error}", "Pass another path.") from error
    if is_circle:
        raise BackupError(str(target), "its symbolic links lead in a circle", "Pass another path.")
    return found


def _is_of_target(error: sqlite3.Error) -> bool:
    """Return whether the copy cannot be written; the store is only read."""
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on
    return "full" in str(error) or name in _WRITING


def _cannot_write(error: sqlite3.Error) -> str:
    return "the disk is full" if "full" in str(error) else f"it cannot be written ({error})"


def _refuse(path: Path, target: Path, force: bool) -> None:
    if target == path:
        raise BackupError(str(target), "it is the store itself", "Pass another path.")
    for suffix in _BESIDE:
        store = Path(str(target).removesuffix(suffix))
        if store != target and (store == path or store.exists()):
            reason = f"SQLite keeps a file of this name beside {store}, and would take the copy for it"
            raise BackupError(str(target), reason, "Pass another path.")
    if target.is_dir():
        raise BackupError(str(target), "it is a folder", "Pass the path of a file in it.")
    if target.exists() and not target.is_file():
        raise BackupError(str(target), "it is not a file", "Pass the path of a file.")
    beside = [f"{target}{suffix}" for suffix in _BESIDE if os.path.exists(f"{target}{suffix}")]
    if beside:
        reason = f"{beside[0]} belongs to a store of this name that is in use, or was when its process died"
        raise BackupError(str(target), reason, "Pass another path.")
    if target.exists() and not force:
        raise BackupError(
            str(target), "it exists", "Pass another path, or --force (in code: force=True) to replace it."
        )


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """Make the file that becomes the backup, locked as long as this process works on it; delete it if it does not."""
    _clean(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.chmod(partial, 0o600)
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield partial
    finally:
        os.close(descriptor)
        _delete(partial)


def _clean(target: Path) -> None:
    """Delete what killed backups to the same place have left."""
    for left in target.parent.glob(f".{_escaped(target.name)}.*.partial"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDWR)
            try:
                if fcntl is not None:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _delete(left)
            finally:
                os.close(descriptor)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _delete(partial: Path) -> None:
    for suffix in ("", *_BESIDE):
        with suppress(OSError):
            os.unlink(f"{partial}{suffix}")


def _copy(source: sqlite3.Connection, partial: Path, progress: Progress) -> None:
    source.execute("BEGIN")
    source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the moment that is copied
    with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # it is written to the disk as a whole, before it gets its name
        source.backup(copy, pages=_STEP_PAGES, progress=lambda _, left, total: _copied(progress, total - left, total))
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, as a store at rest is
        copy.execute("UPDATE executions SET owner = NULL WHERE owner IS NOT NULL")


def _copied(progress: Progress, done: int, total: int) -> None:
    progress(done, total)
    reach("backup.copy:after")


def _publish(partial: Path, target: Path, force: bool) -> None:
    """Give the copy its name once it is on the disk."""
    _sync(partial)
    reach("backup:before")
    if force:
        os.replace(partial, target)
    else:
        _name(partial, target)
    reach("backup:after")
    with suppress(OSError):  # not every system can open a folder
        _sync(target.parent)


def _name(partial: Path, target: Path) -> None:
    """Rename a file, unless there is one of that name by now."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise BackupError(str(target), "it exists", "Another process has just made it.") from None
    except OSError:  # the file system has no hard links
        if target.exists():
            raise BackupError(str(target), "it exists", "Another process has just made it.") from None
        os.replace(partial, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
