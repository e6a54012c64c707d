"""Checksums: a byte that changed in the file is an error, and never another text, status or key.

Each row has a checksum over its columns, but for those of a lease, which change with every heartbeat. `connection` writes and
compares it. A reader whose queries join and group rows has views that compare each row (`inspection.verified`).

A row that cannot be found any more has no checksum to compare: a second index, or a count of the rows of a call, shows that it
is missing.
"""

from __future__ import annotations

import functools
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from . import blobs
from .tables import FORMAT, tables

_UNKNOWN = 1 << 41
"""In place of a checksum: another program has written the row."""
_BASE = 1 << 40
FIRST = 4
"""The first format that has checksums."""
_APART = {"sum", "kept", "fence", "beat", "owner", "lease_until", "lease_seconds", "listened_until", "version"}
KEPT = ("failures", "answers", "replies", "heads", "state")
"""Tables of which `calls.kept` counts the rows of a call."""


class DamageError(sqlite3.DatabaseError):
    """What is in the file is not what was written; mapped to an error of ours with those of SQLite."""


def verify(table: str, cells: Sequence[Any], recorded: Any) -> None:
    """Raise if a row is not as it was written."""
    if recorded != _UNKNOWN and recorded != sum_of(table, text_of(cells)):
        raise DamageError(f"a row of {table!r} ({brief(cells)}) does not match its checksum")


def verify_rows(table: str, rows: Iterable[Sequence[Any]], size: int) -> bool:
    """Raise if a row is not as it was written: ``size`` cells, then its checksum. Return True if one refers to large bytes."""
    start, crc32, refers, form = start_of(table), zlib.crc32, False, form_of(size)
    for row in rows:
        text = form % row[:size]
        if row[size] != _BASE | crc32(text.encode(), start):
            verify(table, row[:size], row[size])
        refers = refers or ("$" in text and blobs.REFERENCE_MARK in text)  # one character is found faster
    return refers


def text_of(cells: Sequence[Any]) -> str:
    """Return what the checksum of a row is made of: the cells of the covered columns, in order."""
    return form_of(len(cells)) % tuple(cells)


def sum_of(table: str, text: str) -> int:
    """Return the checksum of a row."""
    return sum_from(start_of(table), text)


def sum_from(start: int, text: str) -> int:
    """Return the checksum of a row of the table that starts so."""
    try:
        return _BASE | zlib.crc32(text.encode(), start)
    except UnicodeEncodeError:  # a lone surrogate
        return _BASE | zlib.crc32(text.encode("utf-8", "surrogatepass"), start)


@functools.cache
def form_of(size: int) -> str:
    """Return what makes the text of a checksum from a number of cells."""
    return "\0".join(["%s"] * size)


@functools.cache
def start_of(table: str) -> int:
    """Return what the checksums of a table start from, so that no row of another one has the same."""
    return zlib.crc32(table.encode())


@functools.cache
def covered(table: str, version: int = FORMAT) -> tuple[str, ...]:
    """Return the columns that a checksum is made of, in a file of a format."""
    return tuple(name for name in tables(version)[table].columns if name not in _APART)


def tables_with_sums(version: int = FORMAT) -> list[str]:
    """Return the tables of a format that have checksums; large bytes have digests instead."""
    return [name for name in tables(version) if name != "blobs"] if version >= FIRST else []


def add(connection: sqlite3.Connection, names: Iterable[str], version: int) -> None:
    """Give the rows of tables that have none a checksum."""
    connection.create_function("row_sum", -1, lambda table, *cells: sum_of(table, text_of(cells)))
    for table in names:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER NOT NULL DEFAULT {_UNKNOWN}")
        connection.execute(f"UPDATE {table} SET sum = row_sum('{table}', {', '.join(covered(table, version))})")


def count(connection: sqlite3.Connection, version: int) -> None:
    """Count the rows of each call, and what refers to large bytes, in a file where nothing is counted yet."""
    counts = " + ".join(f"(SELECT count(*) FROM {table} WHERE call = calls.id)" for table in KEPT)
    connection.execute(f"UPDATE calls SET kept = {counts}")
    uses: Counter[str] = Counter()
    for table, column in blobs.PLACES:
        if table in tables(version):
            query = f"SELECT {column} FROM {table} WHERE instr({column}, ?)"
            for (text,) in connection.execute(query, (blobs.REFERENCE_MARK,)):
                uses.update(blobs.digests_in(text))
    rows = [(digest, number, sum_of("uses", text_of((digest, number)))) for digest, number in uses.items()]
    connection.executemany("INSERT INTO uses (digest, number, sum) VALUES (?, ?, ?)", rows)


def refuse_incomplete_list(connection: sqlite3.Connection) -> None:
    """Raise if not every execution can be found."""
    ways = (
        "NOT INDEXED",
        "INDEXED BY sqlite_autoindex_executions_1 WHERE execution_id >= ''",  # else SQLite counts by an index of its choice
    )
    query = " UNION ".join(f"SELECT count(*) FROM executions {way}" for way in ways)
    if len(connection.execute(query).fetchall()) != 1:
        raise DamageError("executions are missing")


def refuse_incomplete_calls(connection: sqlite3.Connection, execution: int, run: int) -> None:
    """Raise if not every call of a run can be found."""
    if not _are_same(connection.execute(_CALLS, (execution, run)).fetchone()):
        raise DamageError(f"calls of execution {execution} are missing")


def refuse_incomplete_call(connection: sqlite3.Connection, call_id: int) -> None:
    """Raise if not every row of a call can be found."""
    *steps, is_complete = connection.execute(_ROWS_OF_CALL, (call_id,)).fetchone() or ("", "", 0, 0, 0)
    if not _are_same(steps):
        raise DamageError(f"steps of call {call_id} are missing")
    if not is_complete:
        raise DamageError(f"rows of call {call_id} are missing")


def _both_ways(texts: str, numbers: str, table: str, indexes: tuple[str, str], where: str) -> str:
    """Return queries for the rows that two indexes lead to: the texts of their keys on lines, and the sum of the numbers."""
    ways = [
        f"(SELECT group_concat({texts}, '\n') AS texts, total({numbers}) AS numbers"
        f" FROM {table} INDEXED BY {index} WHERE {where})"
        for index in indexes
    ]
    return f"{ways[0]} a, {ways[1]} b"


_SAME = "SELECT a.texts, b.texts, a.numbers, b.numbers"
_CALLS = f"{_SAME} FROM " + _both_ways(
    "parent || ' ' || place || ' ' || position", "1", "calls",
    ("sqlite_autoindex_calls_1", "calls_by_execution"), "execution = ?1 AND run = ?2",
)  # fmt: skip
_STEPS = _both_ways("key", "attempt", "steps", ("steps_by_key", "steps_by_number"), "call = ?1")
_COUNTS = " + ".join(f"(SELECT count(*) FROM {table} WHERE call = ?1)" for table in KEPT)
_ROWS_OF_CALL = f"{_SAME}, kept = {_COUNTS} FROM calls, {_STEPS} WHERE id = ?1"


def _are_same(found: Sequence[Any]) -> bool:
    """Return True if two indexes lead to the same rows."""
    here, there, *numbers = found
    if isinstance(here, bytes) or isinstance(there, bytes):
        return False  # a key in an index is not text any more
    ours, theirs = (here or "").split("\n"), (there or "").split("\n")
    return numbers[0] == numbers[1] and len(ours) == len(theirs) and set(ours) == set(theirs)


def refuse_incomplete_run(connection: sqlite3.Connection, execution: int, run: int) -> None:
    """Raise if not every row of a run can be found; without checksums, a missing row goes unnoticed."""
    if version_of(connection) >= FIRST:
        refuse_incomplete_calls(connection, execution, run)
        rows = connection.execute("SELECT id FROM calls WHERE execution = ? AND run = ?", (execution, run)).fetchall()
        for (call_id,) in rows:
            refuse_incomplete_call(connection, call_id)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the format of a file; a store in memory has none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def brief(cells: Sequence[Any]) -> str:
    """Return the beginning of a row, for an error."""
    return ", ".join(str(cell)[:40] for cell in cells[:3])
