"""The tables of a store file, and how a file of an earlier format becomes one of this.

`SCHEMA` holds what is known of executions; it is also the form in which an engine's history keeps rows, and does not change. A
file has more, which `_FORMAT_4` adds: what is derived from the rows and never leaves the file.
"""

from __future__ import annotations

import random
import secrets
import sqlite3
import time
from pathlib import Path

from . import _blobs, _sums
from ._points import reach
from .errors import BackendUnavailableError

FORMAT = 4
OLDEST = 3
APPLICATION_ID = 0x5344_4A31

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

# Every step is in both indexes: whatever hides one of them from one index, the other tells. `calls.kept` counts the rows of a call
# in tables that have one tree only. A checksum has the same size at all times, so that it is written in place.
_FORMAT_4 = """
CREATE INDEX failures_by_call ON failures (call);
CREATE INDEX calls_by_execution ON calls (execution, run);
DROP INDEX steps_by_number;
CREATE INDEX steps_by_number ON steps (call, number);
CREATE TABLE uses (digest TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE removals (execution INTEGER PRIMARY KEY, execution_id TEXT NOT NULL);
ALTER TABLE executions ADD COLUMN lease_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN kept INTEGER NOT NULL DEFAULT 0
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file, in a transaction of its own, unless another process has just done so."""
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("BEGIN EXCLUSIVE")
    if version_in(connection) == 0:
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO secrets VALUES ('hash_key', ?)", (secrets.token_hex(32),))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _to_4(connection)
    connection.execute("COMMIT")


def version_in(connection: sqlite3.Connection) -> int:
    """Return the format of an open file; 0 for one that is empty."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(path: Path, busy_seconds: float) -> None:
    """Make a file of an earlier format one of this, in one transaction, while no other process has it open.

    A process of an earlier version would go on to write rows of its own kind. Leaving WAL mode needs the file for oneself alone;
    where this is not to be had, nothing was changed.
    """
    until = time.monotonic() + busy_seconds
    while True:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, factory=_blobs.Connection)
        try:
            if _is_alone(connection):
                _upgrade(connection)
                return
        finally:
            connection.close()
        if time.monotonic() > until:
            hint = "Stop the processes that use it; the next start upgrades it. Nothing was changed."
            reason = f"it has an earlier format than {FORMAT}, and another process has it open"
            raise BackendUnavailableError(str(path), reason, hint)
        time.sleep(random.uniform(0.01, 0.05))  # two that try at once must not meet again


def _is_alone(connection: sqlite3.Connection) -> bool:
    try:
        return bool(connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return False
        raise


def _upgrade(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA secure_delete = ON")
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return  # another one is at it; whoever opens the file next looks again
        raise
    if version_in(connection) == 3:
        connection.execute("UPDATE executions SET owner = NULL")  # an owner has the file open, and nobody has
        _to_4(connection)
    reach("upgrade:before")
    connection.execute("COMMIT")
    reach("upgrade:after")


def _to_4(connection: sqlite3.Connection) -> None:
    for statement in _FORMAT_4.split(";\n"):
        connection.execute(statement)
    _sums.add(connection)
    connection.execute("PRAGMA user_version = 4")
