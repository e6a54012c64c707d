"""The tables of a store file, and how a file of an earlier format becomes one of this.

`TRAVELLING` holds what is known of executions; it is also the form in which an engine's history keeps rows. A file has more:
what is derived from the rows and never leaves the file.
"""

from __future__ import annotations

import json
import random
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from .._records.crash_points import reach
from .._records.steps import split_usage
from ..errors import BackendUnavailableError
from . import checksums
from .checksums import covered
from .connection import Connection
from .tables import FORMAT, LATER, SCHEMA

OLDEST = 3
_CREATE_SECONDS = 10.0
APPLICATION_ID = 0x5344_4A31
SCHEMA_QUERY = "SELECT name, type || ' ' || tbl_name || ' ' || coalesce(sql, '') FROM sqlite_master"
"""What a file says of its tables and indexes, by name."""


def create(connection: Connection, prepare: Callable[[Connection], None] | None = None) -> None:
    """Make the tables of a new file, in a transaction of its own, unless another process has just done so.

    ``prepare`` writes what else a new file holds.
    """
    connection.execute("PRAGMA page_size = 8192")
    _until_free(connection, lambda: _create(connection, prepare))


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch a file to WAL, unless another process has done so."""

    def switch() -> None:
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")

    _until_free(connection, switch)


def _until_free(connection: sqlite3.Connection, work: Callable[[], None]) -> None:
    """Do something that SQLite may refuse without waiting while another process makes the same file."""
    until = time.monotonic() + _CREATE_SECONDS
    while True:
        try:
            work()
            return
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(random.uniform(0.01, 0.05))


def _create(connection: Connection, prepare: Callable[[Connection], None] | None) -> None:
    """Make the tables, in a file in which pages that are freed later can be given back in pieces.

    Outside of a transaction, that pragma would commit a database without our id; in one that writes it does nothing.
    """
    connection.execute("BEGIN")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if version_in(connection) == 0:
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO secrets VALUES ('hash_key', ?)", (secrets.token_hex(32),))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _upgrade_from(3, connection)
        if prepare is not None:
            connection.has_sums = True
            prepare(connection)
    connection.execute("COMMIT")


def version_in(connection: sqlite3.Connection) -> int:
    """Return the format of an open file; 0 for one that is empty."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(path: Path, busy_seconds: float) -> None:
    """Make a file of an earlier format one of this, in one transaction, while no other process has it open.

    A process of an earlier version would write rows of the earlier kind. Leaving WAL mode needs exclusive use of the file;
    where it is not to be had, nothing is changed.
    """
    if not exclusively(path, busy_seconds, _upgrade):
        hint = "Nothing was changed. Stop the processes that use it; the next process that opens it upgrades it."
        reason = f"its format is older than {FORMAT}, and it cannot be upgraded while another process has it open"
        raise BackendUnavailableError(str(path), reason, hint)


def exclusively(path: Path, busy_seconds: float, change: Callable[[Connection], bool]) -> bool:
    """Change a file while no other process has it open; False if it was in use all the time, or the change was.

    ``change`` returns False if another process was faster.
    """
    until = time.monotonic() + busy_seconds
    while True:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, factory=Connection)
        try:
            if _is_alone(connection):
                connection.execute("PRAGMA secure_delete = ON")
                if change(connection):
                    return True
        finally:
            connection.close()
        if time.monotonic() > until:
            return False
        time.sleep(random.uniform(0.01, 0.05))  # two that try at once must not meet again


def _is_alone(connection: sqlite3.Connection) -> bool:
    try:
        return bool(connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return False
        raise


def _upgrade(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return True  # another process is at it; the caller looks again
        raise
    version = version_in(connection)
    if version < FORMAT:
        connection.execute("UPDATE executions SET owner = NULL")  # an owner has the file open, and no process has
        _upgrade_from(version, connection)
    reach("upgrade:before")
    connection.execute("COMMIT")
    reach("upgrade:after")
    return True


def _upgrade_from(version: int, connection: sqlite3.Connection, to: int = FORMAT) -> None:
    """Make each format of the one before it; a new file goes the same way, so that both come to the same."""
    for number in range(version + 1, to + 1):
        for statement in LATER[number].split(";\n"):
            connection.execute(statement)
        _UPGRADES[number](connection)
    connection.execute(f"PRAGMA user_version = {to}")


def expected_schema(version: int) -> dict[str, str]:
    """Return the tables and indexes that a file of a format has, by name, as SQLite records them."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        _upgrade_from(3, connection, version)
        return dict(connection.execute(SCHEMA_QUERY).fetchall())


def _to_4(connection: sqlite3.Connection) -> None:
    checksums.add(connection, checksums.tables_with_sums(4), 4)
    checksums.count(connection, 4)


def _to_5(connection: sqlite3.Connection) -> None:
    """Keep apart what a step cost and its place in the loop. A row that is damaged stays so."""
    usage = covered("steps", 4).index("usage")

    def resummed(recorded: int, *cells: Any) -> int:
        try:
            checksums.verify("steps", cells, recorded)
        except checksums.DamageError:
            return recorded
        cost, loop = _split(cells[usage])
        return checksums.sum_of("steps", checksums.text_of([*cells[:usage], cost, *cells[usage + 1 :], loop]))

    connection.create_function("usage_of", 1, lambda recorded: _split(recorded)[0])
    connection.create_function("loop_of", 1, lambda recorded: _split(recorded)[1])
    connection.create_function("resummed", -1, resummed)
    names = ", ".join(covered("steps", 4))
    connection.execute(f"UPDATE steps SET usage = usage_of(usage), loop = loop_of(usage), sum = resummed(sum, {names})")
    checksums.add(connection, ("past_heads", "past_state"), 5)


def _split(recorded: str | None) -> list[str | None]:
    try:
        parts = split_usage(None if recorded is None else json.loads(recorded))
    except (ValueError, AttributeError):
        return [recorded, None]  # damaged
    return [None if part is None else json.dumps(part, separators=(",", ":")) for part in parts]


def _to_6(connection: sqlite3.Connection) -> None:
    checksums.add(connection, ("tags",), 6)


def _to_7(connection: sqlite3.Connection) -> None:
    checksums.add(connection, ("watches", "notices"), 7)


def _to_8(connection: sqlite3.Connection) -> None:
    checksums.add(connection, ("holds", "emptied", "passes", "data_keys"), 8)


_UPGRADES = {4: _to_4, 5: _to_5, 6: _to_6, 7: _to_7, 8: _to_8}
"""What else makes a file of a format of one of the format before, besides new tables and columns. None of them ever changes."""
