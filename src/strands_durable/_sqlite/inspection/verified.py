"""Views for queries that join and group rows: each row is compared with its checksum, and decrypted.

They are named ``verified_...``, after the tables. Where contents cannot be decrypted, a few words stand in their place.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import CipherError
from ..checksums import FIRST, DamageError, brief, covered, tables_with_sums, verify, version_of
from ..encryption.sealing import CONTENTS, identity
from ..tables import tables

if TYPE_CHECKING:
    from ..connection import Connection

_ADDED = {"tags": 6, "notices": 7, "holds": 8, "emptied": 8}
"""Tables that people look at, by the first format that has them, if that is not the first with checksums."""
_INDEXED = {
    "executions": ("execution_id",),
    "calls": ("execution", "run", "parent", "place", "position", "member"),
    "steps": ("call", "key", "attempt"),
}
"""The columns by which an index finds a row: a damaged entry may lead to another one."""


_LOCKED = "'<encrypted>'"
_LOCKED_JSON = """'"<encrypted>"'"""
_LOCKED_ERROR = """'{"type":"ToolResult","text":"<encrypted>"}'"""
_IN_PLACE = {
    ("calls", "input"): _LOCKED_JSON,
    ("steps", "title"): _LOCKED,
    ("steps", "result"): _LOCKED_JSON,
    ("steps", "error"): _LOCKED_ERROR,
    ("failures", "error"): _LOCKED_ERROR,
    ("answers", "answer"): _LOCKED_JSON,
    ("replies", "answer"): _LOCKED_JSON,
    ("notices", "error"): _LOCKED,
    ("heads", "data"): """'{"phase":"<encrypted>"}'""",
}
"""What stands in the place of contents, in the form that they are read in; in that of others, nothing does."""


class Checks:
    """What the functions that SQL calls on one connection have found."""

    def __init__(self) -> None:
        self.damage: str | None = None
        """Where the last row was that is not as it was written."""
        self.locked: CipherError | None = None
        """Why a cell could not be decrypted."""

    def verified(self, table: str, recorded: Any, *cells: Any) -> int:
        """Return 1 if a row is as it was written."""
        try:
            verify(table, cells, recorded)
        except DamageError as error:
            self.damage = str(error)
            raise
        return 1

    def opened(self, connection: Connection, table: str, column: str, cell: Any, *place: Any) -> Any:
        """Return the plain form of a cell."""
        try:
            return connection.opened(table, column, place, cell)
        except CipherError as error:
            self.locked = error
            raise

    def same(self, *pairs: Any) -> int:
        """Return 1 if an index says the same as the row."""
        if pairs[::2] != pairs[1::2]:
            self.damage = f"an index does not match its row ({brief(pairs)})"
            raise DamageError(self.damage)
        return 1

    def missing(self, table: str) -> int:
        """A row that an index names is not there."""
        self.damage = f"a row of {table!r} is missing"
        raise DamageError(self.damage)


def read_checked(connection: Connection, *, is_locked: bool = False) -> Checks:
    """Let a connection read rows with their checksums compared, and decrypted; in a file that has none yet, as they are.

    With ``is_locked``, contents cannot be decrypted.
    """
    version = version_of(connection)
    checks = _functions(connection)
    for table in tables_with_sums(version) or tables(3):
        row = "rowid AS row_id, " if table == "failures" else ""
        column = _hidden if is_locked else _opened if connection.seal is not None else None
        columns = "*" if column is None else ", ".join(column(table, name) for name in tables()[table].columns)
        condition = _condition(table, version) if version >= FIRST else "1"
        if is_locked and table == "heads":
            condition = f"o.part = 'progress' AND {condition}"
        view = f"SELECT {row}{columns} FROM {table} o WHERE {condition}"
        connection.execute(f"CREATE TEMP VIEW verified_{table} AS {view}")
    for table in [name for name, first in _ADDED.items() if version < first]:
        _stand_in(connection, table)
    return checks


def _opened(table: str, column: str) -> str:
    """Return the expression for a column of an encrypted store."""
    if column not in CONTENTS.get(table, ()):
        return f"o.{column}"
    place = ", ".join(f"o.{name}" for name in identity(table))
    return f"cell_opened('{table}', '{column}', o.{column}, {place}) AS {column}"


def _hidden(table: str, column: str) -> str:
    """Return the expression for a column of an encrypted store whose key is not known."""
    if column not in CONTENTS.get(table, ()):
        return f"o.{column}"
    stands = _IN_PLACE.get((table, column), "NULL")
    return f"CASE WHEN o.{column} IS NULL OR o.{column} = '' THEN o.{column} ELSE {stands} END AS {column}"


def _stand_in(connection: sqlite3.Connection, table: str) -> None:
    """Let queries ask for a table that came later: in memory it has no checksums, in a file of an earlier format no rows."""
    is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    columns = ", ".join(f"NULL AS {name}" for name in tables()[table].columns)
    for view in (f"verified_{table}",) if is_there else (table, f"verified_{table}"):
        found = f"* FROM {table}" if is_there else f"{columns} WHERE 0"
        connection.execute(f"CREATE TEMP VIEW {view} AS SELECT {found}")


@functools.cache
def _condition(table: str, version: int) -> str:
    """Return the condition that a row is as it was written.

    The row is looked up again by its key: SQLite puts what a query asks for (``kind = 'model'``) in the place of the columns of
    the row at hand, and takes what it can from an index, so that what is checked would not be what is in the row. What an
    index says of a row is compared with the row.
    """
    here = " AND ".join(f"r.{name} = o.{name}" for name in tables(version)[table].key)
    cells = ", ".join(f"r.{name}" for name in covered(table, version))
    found = f"(SELECT row_verified('{table}', r.sum, {cells}) FROM {table} r WHERE {here})"
    if table in _INDEXED:
        pairs = ", ".join(f"o.{name}, r.{name}" for name in _INDEXED[table])
        found = f"{found} AND (SELECT row_same({pairs}) FROM {table} r WHERE {here})"
    return f"coalesce({found}, row_missing('{table}'))"


def _functions(connection: Connection) -> Checks:
    checks = Checks()
    if connection.seal is not None:
        connection.create_function("cell_opened", -1, functools.partial(checks.opened, connection))
    functions: dict[str, Callable[..., int]] = {
        "row_verified": checks.verified,
        "row_same": checks.same,
        "row_missing": checks.missing,
    }
    for name, function in functions.items():
        connection.create_function(name, -1, function)
    return checks
