"""The tables of a store file: as SQL, and as the columns that each has."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

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

# Every step is in both indexes: an entry that one of them has lost is in the other. `calls.kept` counts the rows of a call in
# the tables that have no second index. A checksum always has the same size, so that it is written in place.
FORMAT_4 = """
CREATE INDEX executions_by_status ON executions (status, updated_at);
CREATE INDEX failures_by_call ON failures (call);
CREATE INDEX calls_by_execution ON calls (execution, run);
DROP INDEX steps_by_number;
CREATE INDEX steps_by_number ON steps (call, number, key, attempt);
CREATE TABLE uses (digest TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE removals (execution INTEGER PRIMARY KEY, execution_id TEXT NOT NULL);
ALTER TABLE executions ADD COLUMN lease_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN kept INTEGER NOT NULL DEFAULT 0
"""

# What a part of a head, or a value of the state, was before it changed: from when ``since`` steps of the execution had ended
# until ``until`` had. `version` is the `since` of what is there now. Nothing that runs reads them: they are for a fork of an
# execution at one of its steps, and may be deleted.
TRAVELLING_5 = "ALTER TABLE steps ADD COLUMN loop TEXT"
FORMAT_5 = f"""
{TRAVELLING_5};
CREATE TABLE past_heads (
    call INTEGER NOT NULL, part TEXT NOT NULL, until INTEGER NOT NULL, since INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (call, part, until)) WITHOUT ROWID;
CREATE TABLE past_state (
    call INTEGER NOT NULL, key TEXT NOT NULL, until INTEGER NOT NULL, since INTEGER NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (call, key, until)) WITHOUT ROWID;
ALTER TABLE heads ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE state ADD COLUMN version INTEGER NOT NULL DEFAULT 0
"""

TRAVELLING_6 = """CREATE TABLE tags (
    execution INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (execution, name)) WITHOUT ROWID"""
FORMAT_6 = f"""
{TRAVELLING_6};
CREATE INDEX tags_by_value ON tags (name, value, execution)
"""

# What is to be reported of executions, and what a worker has asked to be recorded for that; see `notices`.
FORMAT_7 = """
CREATE TABLE watches (status TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE notices (
    id INTEGER PRIMARY KEY, execution INTEGER NOT NULL, notice_id TEXT NOT NULL, status TEXT NOT NULL, at REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0, claimed_by TEXT, error TEXT, gave_up_at REAL);
CREATE INDEX notices_due ON notices (at) WHERE gave_up_at IS NULL;
CREATE INDEX notices_by_execution ON notices (execution)
"""

# Marks that keep an execution, executions whose contents were removed while their record stays, and who applies retention.
FORMAT_8_RETENTION = """
CREATE TABLE holds (execution INTEGER PRIMARY KEY, at REAL NOT NULL, by TEXT NOT NULL);
CREATE TABLE emptied (execution INTEGER PRIMARY KEY, at REAL NOT NULL, is_done INTEGER NOT NULL);
CREATE INDEX emptied_open ON emptied (execution) WHERE is_done = 0;
CREATE TABLE passes (
    name TEXT PRIMARY KEY, claimed_by TEXT, until REAL NOT NULL, at REAL NOT NULL, removed INTEGER NOT NULL,
    emptied INTEGER NOT NULL) WITHOUT ROWID
"""

# The keys that contents are encrypted with, wrapped with a key of the user; see `sealing`. A store in plain text has none.
FORMAT_8_ENCRYPTION = """
CREATE TABLE data_keys (
    id INTEGER PRIMARY KEY, key_id TEXT NOT NULL, wrapped TEXT NOT NULL, made_at REAL NOT NULL)
"""
FORMAT_8 = f"{FORMAT_8_RETENTION.rstrip()};{FORMAT_8_ENCRYPTION}"

TRAVELLING = (*SCHEMA.split(";\n"), TRAVELLING_5, TRAVELLING_6)
"""Statements for what an engine's history keeps."""
FORMAT = 8
LATER = {4: FORMAT_4, 5: FORMAT_5, 6: FORMAT_6, 7: FORMAT_7, 8: FORMAT_8}
"""What each format adds to the one before; `SCHEMA` is format 3."""

_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\)(?: WITHOUT ROWID)?(?:;|\n;|$)", re.DOTALL)
_COLUMN = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (.*?)(?:;|$)", re.MULTILINE)
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class Table:
    """The columns of a table, in order, and those by which a row is found; ``rowid`` where there are none."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    reals: frozenset[str]
    """The columns whose numbers SQLite gives back as floats."""
    integers: frozenset[str]
    """The columns whose numbers it gives back as integers."""
    blobs: frozenset[str]
    """The columns that hold bytes."""
    required: frozenset[str]
    """The columns that are never NULL."""
    defaults: dict[str, Any]
    """What is in the columns that a row does not name."""


def tables(version: int = FORMAT) -> dict[str, Table]:
    """Return the tables of a file of a format, by name; not from a file, which may be damaged.

    Read from the text of the schema: to have SQLite build it takes two milliseconds of every process.
    """
    return _tables(version)


@functools.cache
def _tables(version: int) -> dict[str, Table]:
    later = ";".join(statements for number, statements in LATER.items() if number <= version)
    found = {name: _parts(body) for name, body in _TABLE.findall(f"{SCHEMA};{later}")}
    for name, column in _COLUMN.findall(later):
        found[name].append(column)
    return {name: _table(parts) for name, parts in found.items()}


def _parts(body: str) -> list[str]:
    return [part.strip() for part in _COMMA.split(body)]


def _table(parts: list[str]) -> Table:
    columns = [part.split() for part in parts if not part.startswith(("PRIMARY KEY", "UNIQUE ("))]
    keys = [part for part in parts if part.startswith("PRIMARY KEY")]
    return Table(
        columns=tuple(name for name, *_ in columns),
        key=tuple(keys[0][len("PRIMARY KEY (") : -1].split(", "))
        if keys
        else tuple(name for name, *rest in columns if "PRIMARY" in rest) or ("rowid",),
        reals=frozenset(name for name, kind, *_ in columns if kind == "REAL"),
        integers=frozenset(name for name, kind, *_ in columns if kind == "INTEGER"),
        blobs=frozenset(name for name, kind, *_ in columns if kind == "BLOB"),
        required=frozenset(name for name, _, *rest in columns if "NOT" in rest or "PRIMARY" in rest),
        defaults={name: json.loads(rest[-1]) if "DEFAULT" in rest else None for name, *rest in columns},
    )
