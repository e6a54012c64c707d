"""The SQLite file: opening it safely, its schema, and the one kind of transaction there is.

Every write of the package goes through `Store.transaction`: one BEGIN IMMEDIATE, a check that the file is still the one that
was opened, a check of the writer's fence, one COMMIT with fsync. Foreign errors become ours here and nowhere else.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from . import _blobs
from ._forks import forks
from ._points import reach
from .errors import BackendUnavailableError, FormatVersionError, UnsupportedFeatureError

FORMAT = 3
APPLICATION_ID = 0x5344_4A31
_DAMAGED = (
    "What was recorded may be lost. Stop every process that uses the file, keep a copy of it with its -wal and -shm files, and "
    "restore a backup, or save what can be read with 'sqlite3 FILE .recover'."
)
_MAGIC = b"SQLite format 3\x00"

# Rowid tables with 8 KB pages hold rows of about 2 KB with the least waste. Steps and messages are only ever appended, except
# that a step's row gets its end, and that a redaction overwrites. Small keyed tables are WITHOUT ROWID: one page per lookup.
# AUTOINCREMENT: an owner that slept while its execution was removed must not find a new one under the same number.
SCHEMA = """
CREATE TABLE executions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, execution_id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, status TEXT NOT NULL,
    run INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
    fence INTEGER NOT NULL, beat INTEGER NOT NULL, owner TEXT, lease_until REAL NOT NULL,
    cancel_asked_at REAL, listened_until REAL NOT NULL DEFAULT 0);
CREATE INDEX executions_owned ON executions (owner) WHERE owner IS NOT NULL;
CREATE INDEX executions_by_status ON executions (status, updated_at);
CREATE INDEX executions_open ON executions (id) WHERE status IN ('PENDING', 'RUNNING');
CREATE TABLE dispatches (
    execution INTEGER PRIMARY KEY, agent TEXT NOT NULL, fingerprint TEXT NOT NULL, spec TEXT NOT NULL, given TEXT NOT NULL,
    is_suspected INTEGER NOT NULL DEFAULT 0, is_alone INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0, note TEXT);
CREATE INDEX dispatches_suspected ON dispatches (execution) WHERE is_suspected;
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, execution INTEGER NOT NULL, run INTEGER NOT NULL, parent INTEGER NOT NULL, place TEXT NOT NULL,
    position INTEGER NOT NULL, kind TEXT NOT NULL, member TEXT NOT NULL, scope TEXT NOT NULL, lineage INTEGER NOT NULL,
    state_of INTEGER, status TEXT NOT NULL, attempt INTEGER NOT NULL,
    input TEXT, input_hash TEXT NOT NULL, base TEXT NOT NULL, config INTEGER NOT NULL, result TEXT,
    started_at REAL NOT NULL, taken_up_at REAL NOT NULL, ended_at REAL,
    UNIQUE (execution, run, parent, place, position));
CREATE INDEX calls_by_parent ON calls (parent, member);
CREATE INDEX calls_by_lineage ON calls (lineage);
CREATE TABLE failures (call INTEGER NOT NULL, attempt INTEGER NOT NULL, error TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE answers (
    call INTEGER NOT NULL, interrupt_id TEXT NOT NULL, answer TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (call, interrupt_id)) WITHOUT ROWID;
CREATE TABLE replies (
    call INTEGER NOT NULL, interrupt_id TEXT NOT NULL, answer TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (call, interrupt_id)) WITHOUT ROWID;
CREATE TABLE steps (
    id INTEGER PRIMARY KEY, call INTEGER NOT NULL, key TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL,
    name TEXT NOT NULL, title TEXT NOT NULL, status TEXT NOT NULL, config INTEGER,
    started_at REAL NOT NULL, ended_at REAL, usage TEXT, result TEXT, error TEXT, number INTEGER);
CREATE UNIQUE INDEX steps_by_key ON steps (call, key, attempt);
CREATE INDEX steps_by_number ON steps (call, number) WHERE number IS NOT NULL;
CREATE TABLE chunks (
    call INTEGER NOT NULL, key TEXT NOT NULL, attempt INTEGER NOT NULL, number INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (call, key, attempt, number)) WITHOUT ROWID;
CREATE TABLE messages (
    lineage INTEGER NOT NULL, seq INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (lineage, seq)) WITHOUT ROWID;
CREATE TABLE heads (call INTEGER NOT NULL, part TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (call, part)) WITHOUT ROWID;
CREATE TABLE state (call INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (call, key)) WITHOUT ROWID;
CREATE TABLE configs (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, data TEXT NOT NULL);
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class Fence(Protocol):
    """Whoever writes on behalf of an execution: it must still be the owner."""

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise `LeaseLostError` if the execution has a new owner."""


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
            "an inline agent keeps its journal in a SQLite file; other engines run the agent themselves",
            "Make it a @durable_agent and dispatch it to that engine, or pass the path of a file.",
        )
    if not name or ":memory:" in name:
        raise UnsupportedFeatureError(
            f"Durability({text!r})", "a store in memory dies with the process", "Pass a path."
        )
    return Path(os.path.realpath(os.path.expanduser(name)))


class Store:
    """One SQLite file, opened once per process and shared by its executions."""

    max_text: int | None = None
    """How long the recorded form of a result may be; None for any length."""

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        with self._mapped():
            if refuse_foreign(path):
                _create(path)
            self._connection = self._connect()
            self._lock = self._connection.guard
            self._prepare()
        self._identity = _identity(path)
        self.hash_key = bytes.fromhex(self.read("SELECT value FROM secrets WHERE name = 'hash_key'")[0][0])

    def read(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a query."""
        with self._lock, self._mapped():
            return _blobs.expanded(self._connection, self._connection.execute(sql, values).fetchall())

    def read_named(self, sql: str, values: dict[str, object]) -> list[Any]:
        """Return the rows of a query with named values."""
        with self._lock, self._mapped():
            return _blobs.expanded(self._connection, self._connection.execute(sql, values).fetchall())

    @contextmanager
    def transaction(
        self, label: str, fence: Fence | None = None, *, lasting: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """Commit what the block writes, all of it or nothing; ``label`` names the boundary for crash tests.

        ``lasting=False`` leaves the fsync to the next commit: for what the journal could derive again. A killed process loses
        nothing by it; a power cut may undo it, but never without what came after.
        """
        connection = self._connection
        with self._lock:
            try:
                self._begin(connection, fence, lasting)
                yield connection
                reach(f"{label}:before")
                connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back(connection)
                if isinstance(error, sqlite3.Error):
                    raise translated(self.path, error, self._busy_seconds) from error
                if isinstance(error, OSError):
                    raise BackendUnavailableError(str(self.path), error.strerror or str(error)) from error
                raise
            finally:
                if not lasting:
                    connection.execute("PRAGMA synchronous = FULL")
        reach(f"{label}:after")

    def _begin(self, connection: sqlite3.Connection, fence: Fence | None, lasting: bool) -> None:
        self.refuse_other()
        if not lasting:
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        if fence is not None:
            fence.check(connection)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # the error that led here is the one to report
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @property
    def is_current(self) -> bool:
        """Whether the file is still the one that was opened; a deleted one can be read for ever, and nobody else sees it."""
        try:
            return _identity(self.path) == self._identity
        except OSError:
            return False

    def refuse_other(self) -> None:
        """Raise if the file is not the one that was opened."""
        if not self.is_current:
            reason = "the file was deleted or replaced while it was in use"
            raise BackendUnavailableError(str(self.path), reason, "Put it back, or start anew.")

    def second_connection(self) -> _blobs.Connection:
        """Return a further connection, for a thread that must not wait for this one; its ``guard`` is held to use it."""
        with self._mapped():
            return self._connect()

    def scrub(self) -> None:
        """Move what the WAL holds into the file, so that overwritten text is gone from both."""
        with self._lock, self._mapped():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _connect(self) -> _blobs.Connection:
        with forks.lock:
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=_blobs.Connection,
            )
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA cache_size = -512")  # KB: the journal is written at its end and read once
            forks.add(connection)
        return connection

    def _prepare(self) -> None:
        """Create the schema in a new file. Only then switch to WAL, so that the header is always in the file itself."""
        connection = self._connection
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.execute("PRAGMA page_size = 8192")
            connection.execute("BEGIN EXCLUSIVE")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute("INSERT INTO secrets VALUES ('hash_key', ?)", (secrets.token_hex(32),))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        self.scrub()  # what a killed process overwrote is still in the WAL it left behind

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translated(self.path, error, self._busy_seconds) from error
        except OSError as error:
            raise BackendUnavailableError(str(self.path), error.strerror or str(error)) from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)


def refuse_foreign(path: Path) -> bool:
    """Look at the header before SQLite does; return True if there is nothing to refuse because the file is new or empty."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return True
    if not header:
        return True
    if not header.startswith(_MAGIC):
        raise FormatVersionError(str(path), "not a SQLite file, or damaged", f"strands-durable format {FORMAT}")
    application_id, version = int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")
    if application_id != APPLICATION_ID:
        raise FormatVersionError(str(path), "a SQLite file of another program", f"strands-durable format {FORMAT}")
    if version != FORMAT:
        raise FormatVersionError(str(path), f"strands-durable format {version}", f"format {FORMAT}")
    return False


def _create(path: Path) -> None:
    """Make a file that only its owner may read; what SQLite puts beside it gets the same mode."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    os.chmod(path, 0o600)


def translated(path: Path, error: sqlite3.Error, busy_seconds: float) -> BackendUnavailableError:
    """Return our error for one of SQLite's."""
    text = str(error)
    hints = {
        "locked": f"another program has held its lock for more than {busy_seconds:g} s",
        "readonly": "it is read-only",
        "full": "the disk is full",
        "malformed": "the file is damaged (truncated or overwritten)",
        "not a database": "the file is damaged (truncated or overwritten)",
        "unable to open": "it cannot be opened; does its directory exist, and may you write there?",
    }
    reason = next((hint for word, hint in hints.items() if word in text), text)
    return BackendUnavailableError(str(path), reason, _DAMAGED if "damaged" in reason else "")
