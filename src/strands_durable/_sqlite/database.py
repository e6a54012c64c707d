"""The SQLite file: opening it safely, its schema, and the one kind of transaction there is.

Every write of the package goes through `Store.transaction`: one BEGIN IMMEDIATE, a check that the file is still the one that
was opened, a check of the writer's fence, one COMMIT with fsync. Foreign errors become ours here and nowhere else.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from .._journal.owner import Liveness
from .._records.cipher import Cipher
from .._records.counters import count
from .._records.crash_points import reach
from ..errors import BackendUnavailableError, CipherError, UnsupportedFeatureError
from . import blobs, checksums
from .connection import Connection
from .encryption.data_keys import accept, installer, unlock
from .os_fork import fork_guard
from .schema import create, upgrade, use_wal, version_in
from .store_file import HEADER_SECONDS, StoreFile, create_private, keep_for_ever, version_of
from .tables import FORMAT

__all__ = ["FORMAT", "Fence", "Store", "damaged", "is_damage", "path_of", "translated"]

_WAL_BYTES = 32 * 1024 * 1024
"""What is left of the WAL once a reader that has kept it from being emptied is gone."""
_SCRUB_SECONDS = 0.2
"""How long to leave a WAL alone that could not be emptied."""

_SHRINK_PAGES = 256
"""How many pages are given back at a time: 2 MB."""
_INCREMENTAL = 2
"""The mode of a file in which free pages can be given back without rewriting it."""

_BROKEN = "the file is damaged (truncated or overwritten)"
_DAMAGED = (
    "What was recorded may be lost. Stop every process that uses the file, keep a copy of it with its -wal and -shm files, and "
    "restore a backup, or save what can be read with 'sqlite3 FILE .recover'."
)


class Fence(Protocol):
    """What a writer holds: the right to write to an execution, while it has no other owner."""

    def check(self, connection: Connection) -> object:
        """Raise `LeaseLostError` if the execution has a new owner."""

    def rolled_back(self) -> None:
        """The transaction has failed: nothing of what it wrote is there."""


def path_of(store: str | os.PathLike[str]) -> Path:
    """Return the file that ``store`` names: a path or a ``sqlite:///`` URL."""
    text = os.fspath(store)
    url = re.match(r"([a-z][a-z0-9+.-]*)://", text)
    if url is None:
        name = text
    elif url[1] == "sqlite":
        name = text.removeprefix("sqlite:///")
        if name == text:
            raise BackendUnavailableError(text, "a SQLite URL has three slashes", 'Write "sqlite:///runs.db".')
    else:
        raise UnsupportedFeatureError(
            f"Durability({text!r})",
            "an inline agent records to a SQLite file; other engines run the agent themselves",
            "Pass the path of a file, or make it a @durable_agent and dispatch it to that engine.",
        )
    if not name or ":memory:" in name:
        raise UnsupportedFeatureError(
            f"Durability({text!r})", "an in-memory store is lost with the process", "Pass a path."
        )
    return Path(os.path.realpath(os.path.expanduser(name)))


class Store:
    """One SQLite file, opened once per process and shared by its executions."""

    max_text: int | None = None
    """How long the recorded form of a result may be; None for any length."""
    keeps_past = True
    """Whether heads are kept as they were when earlier steps ended; the history of an engine does so by itself."""
    keeps_notices = True
    """Whether changes of status are recorded for workers to report."""
    removes_contents = True
    """Whether the contents of an execution may be removed while its record stays."""
    cipher: Cipher | None = None
    """What the store was opened with."""
    is_abandoned = False
    """Whether what SQLite keeps beside the file was lost: this process must not write to it any more."""
    _is_unscrubbed = False
    _scrubbed_at = 0.0

    def __init__(self, path: Path, *, busy_seconds: float = 10.0, cipher: Cipher | None = None) -> None:
        self.path, self.cipher = path, cipher
        self._busy_seconds = busy_seconds
        self.liveness = Liveness()
        with self._mapped():
            if version_of(path) == 0:
                prepare = installer(str(path), cipher)
                create_private(path)
            else:
                prepare = None
            self._connection = self._connect()
            self._lock = self._connection.guard
            try:
                self._prepare(prepare)
            except CipherError:
                self._connection.close()
                raise
        self.hash_key = bytes.fromhex(self.row("secrets", "value", "name = 'hash_key'")[0])
        self._file = StoreFile(path)  # reading has opened the WAL

    @property
    def connection(self) -> Connection:
        """The connection that a transaction writes through; for the modules of this room alone."""
        return self._connection

    def read(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a query."""
        with self._lock, self._mapped():
            return blobs.expanded(self._connection, self._connection.execute(sql, values).fetchall())

    def rows(self, table: str, columns: str, where: str, *values: object) -> list[Any]:
        """Return columns of rows that are as they were written."""
        with self._lock, self._mapped():
            return self._connection.expanded_rows(table, columns, where, *values)

    def row(self, table: str, columns: str, where: str, *values: object) -> Any:
        """Return columns of one row; that there is none is damage."""
        rows = self.rows(table, columns, where, *values)
        if not rows:
            raise damaged(self.path, f"a row of {table!r} is missing ({where}: {', '.join(map(str, values))})")
        return rows[0]

    def refuse_incomplete(self, call_id: int) -> None:
        """Raise if not every row of a call can be found."""
        with self._lock, self._mapped():
            self._connection.write_counts()
            checksums.refuse_incomplete_call(self._connection, call_id)

    def refuse_incomplete_calls(self, execution: int, run: int) -> None:
        """Raise if not every call of a run can be found."""
        with self._lock, self._mapped():
            checksums.refuse_incomplete_calls(self._connection, execution, run)

    def read_named(self, sql: str, values: dict[str, object]) -> list[Any]:
        """Return the rows of a query with named values."""
        with self._lock, self._mapped():
            return blobs.expanded(self._connection, self._connection.execute(sql, values).fetchall())

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Let the block read everything as of one moment: as of its first read, or inside the transaction that is open."""
        connection = self._connection
        with self._lock, self._mapped():
            if connection.in_transaction:
                connection.write_counts()
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                self._roll_back(connection)

    @contextmanager
    def transaction(self, label: str, fence: Fence | None = None, *, lasting: bool = True) -> Iterator[Connection]:
        """Commit what the block writes, all of it or nothing; ``label`` names the boundary for crash tests.

        ``lasting=False`` leaves the fsync to the next commit: for what the journal could derive again. A killed process loses
        nothing by it; a power cut may undo it, but never without what came after.
        """
        connection = self._connection
        with self._lock:
            try:
                self._begin(connection, fence, lasting)
                yield connection
                connection.settle()
                reach(f"{label}:before")
                connection.execute("COMMIT")
                count("commits")
                if lasting:
                    self.refuse_other()  # a commit to a file that no other process sees is not a record
            except BaseException as error:
                self._roll_back(connection)
                if fence is not None:
                    fence.rolled_back()
                if isinstance(error, sqlite3.Error):
                    raise translated(self.path, error, self._busy_seconds) from error
                if isinstance(error, OSError):
                    raise BackendUnavailableError(str(self.path), error.strerror or str(error)) from error
                raise
            if self._is_unscrubbed and time.monotonic() > self._scrubbed_at + _SCRUB_SECONDS:
                self.scrub()
        reach(f"{label}:after")

    def _begin(self, connection: Connection, fence: Fence | None, lasting: bool) -> None:
        self.refuse_other(lately=True)  # after the commit they are looked at again
        connection.begin(lasting=lasting)
        if fence is not None:
            fence.check(connection)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # the error that led here is the one to report
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @property
    def is_current(self) -> bool:
        """Whether the files are still those that were opened; a deleted one stays readable, but no other process sees it."""
        return not self.is_abandoned and self._file.lost() is None

    @property
    def is_replaced(self) -> bool:
        """Whether another file has taken the place of the one that was opened."""
        return self._file.is_replaced

    def refuse_other(self, *, lately: bool = False) -> None:
        """Raise if the files are not those that were opened; with ``lately``, to have looked a moment ago is enough."""
        if lately and self._file.was_looked_at():
            return
        lost = self._file.lost()
        if lost is None and not self.is_abandoned:
            return
        if lost == str(self.path):
            reason, hint = (
                "the file was deleted or replaced while it was in use",
                "Put it back, or start with a new file.",
            )
        else:
            self._abandon()
            name = os.path.basename(lost or f"{self.path}-shm")
            reason = f"{name}, which SQLite keeps beside it, was deleted or replaced while it was in use"
            hint = "Stop every process that uses the store, then start them again. Never delete this file while it is in use."
        raise BackendUnavailableError(str(self.path), reason, hint)

    def _abandon(self) -> None:
        """Save what only the lost WAL holds, unless others have opened the store since, and never write to the file again."""
        with self._lock:
            if self.is_abandoned:
                return
            self.is_abandoned = True
            self._roll_back(self._connection)
            if self._file.is_untouched():
                with suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            fork_guard.forget(self._connection)
            keep_for_ever(self._connection)

    def second_connection(self) -> Connection:
        """Return a further connection, for a thread that must not wait for this one; its ``guard`` is held to use it."""
        self.refuse_other()
        with self._mapped():
            return self._connect()

    def scrub(self) -> bool:
        """Move what the WAL holds into the file, so that overwritten text is gone from both; False if a reader is in the way.

        No reader is waited for: this would hold up every writer. Later commits try again.
        """
        with self._lock, self._mapped():
            self._is_unscrubbed, self._scrubbed_at = not self._emptied(), time.monotonic()
            return not self._is_unscrubbed

    def _emptied(self) -> bool:
        connection = self._connection
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # most of it without the write lock
            return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                return False
            raise
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_seconds * 1000)}")

    def shrink(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Give free pages back, in pieces; others write in between. The file becomes smaller when the WAL is emptied.

        A file that was made before format 8 keeps its free pages for what is written next, until `rebuild` was called once.
        """
        if self.read("PRAGMA auto_vacuum")[0][0] != _INCREMENTAL:
            return
        while self.read("PRAGMA freelist_count")[0][0] and not is_stopped():
            began = time.monotonic()
            reach("shrink:before")
            self.read(f"PRAGMA incremental_vacuum({_SHRINK_PAGES})")
            time.sleep(time.monotonic() - began)

    def rebuild(self) -> None:
        """Rewrite the file without free pages. Writers wait meanwhile, and twice its size is needed on the disk."""
        self.refuse_other()
        self.read(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        self.read("VACUUM")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if not self.is_abandoned:
                if self._is_unscrubbed:
                    with suppress(BackendUnavailableError):
                        self.scrub()
                self._connection.close()

    def _connect(self) -> Connection:
        with fork_guard.lock:
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=Connection,
            )
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA temp_store = MEMORY")  # nothing decrypted in files for sorting
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            connection.execute("PRAGMA cache_size = -512")  # KB: the journal is written at its end and read once
            fork_guard.add(connection)
        return connection

    def refuse_cipher(self, cipher: Cipher | None) -> None:
        """Raise if a cipher is not one for this store, which may be open with another."""
        if cipher is not self.cipher:
            with self._lock, self._mapped(), closing(self._connect()) as connection:
                accept(self._connection, connection, str(self.path), cipher)

    def _prepare(self, prepare: Callable[[Connection], None] | None) -> None:
        """Create the schema in a new file. Only then switch to WAL, so that the header is always in the file itself."""
        version = version_in(self._connection)
        if version == 0:
            create(self._connection, prepare)
        self._connection.has_sums = version in (0, FORMAT)
        unlock(self._connection, str(self.path), self.cipher)  # before anything is written to a file that was there
        while version < FORMAT and version_in(self._connection) < FORMAT:
            self._connection.close()
            upgrade(self.path, self._busy_seconds)
            self._connection = self._connect()
            self._lock = self._connection.guard
        use_wal(self._connection)
        self._connection.has_sums = True
        self.scrub()  # what a killed process overwrote is still in the WAL it left behind

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translated(self.path, error, self._busy_seconds) from error
        except UnicodeDecodeError as error:  # in a name of the schema, which SQLite itself does not look at
            raise damaged(self.path, str(error)) from error
        except OSError as error:
            raise BackendUnavailableError(str(self.path), error.strerror or str(error)) from error


def damaged(path: Path, what: str) -> BackendUnavailableError:
    """Return the error for a file in which something is not as it was written."""
    return BackendUnavailableError(str(path), f"the file is damaged: {what}", _DAMAGED)


def is_damage(error: BackendUnavailableError) -> bool:
    """Return True if an error is about some rows of a file whose other rows can still be used."""
    return error.reason.startswith("the file is damaged")


def readable_version(path: Path) -> int:
    """Return the format of a store, or raise one of our errors."""
    try:
        return version_of(path)
    except sqlite3.Error as error:
        raise translated(path, error, HEADER_SECONDS) from error


def translated(path: Path, error: sqlite3.Error, busy_seconds: float) -> BackendUnavailableError:
    """Return our error for one of SQLite's."""
    text = str(error)
    if isinstance(error, checksums.DamageError):
        return damaged(path, text)
    hints = {
        "locked": f"another process has held its lock for more than {busy_seconds:g} s",
        "readonly": "it is read-only",
        "full": "the disk is full",
        "malformed": _BROKEN,
        "not a database": _BROKEN,
        "decode to UTF-8": _BROKEN,
        "unable to open": "it cannot be opened; check that its directory exists and is writable",
    }
    reason = next((hint for word, hint in hints.items() if word in text), text)
    return BackendUnavailableError(str(path), reason, _DAMAGED if reason is _BROKEN else "")
