"""One pass over a store: every check, in the order in which one may explain the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..._records.verification import Check, Problem, Verification
from ...errors import BackendUnavailableError, UnsupportedFeatureError
from .. import blobs, checksums
from ..database import damaged
from ..inspection.moment import as_text, at_one_moment, unreadable
from ..schema import SCHEMA_QUERY, expected_schema, version_in
from ..store_file import version_of
from ..tables import tables
from .index import Index
from .losses import Row, damaged_executions
from .references import wrong_counts, wrong_phases, wrong_references

Progress = Callable[[str], None]
"""Called with what is checked next."""

_MOST = 1_000
"""How many problems SQLite reports of its pages."""


def verified(path: Path, progress: Progress | None = None) -> Verification:
    """Check everything that a store holds, at one moment; the file is not changed.

    Raises:
        FormatVersionError: It is no store, or one of a later format.
        UnsupportedFeatureError: It has a format that has no checksums.
        BackendUnavailableError: It cannot be read at all.
    """
    try:
        if version_of(path) < checksums.FIRST:
            raise UnsupportedFeatureError(
                f"Verifying {path}",
                f"its rows have no checksums, which came with format {checksums.FIRST}",
                "Open it with this version, which upgrades it: run its script or a worker.",
            )
        return at_one_moment(path, lambda connection: _Verifier(path, connection, progress or _silent).found())
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:  # in a name of the schema
        raise damaged(path, str(error)) from error
    except OSError as error:
        raise BackendUnavailableError(str(path), error.strerror or str(error)) from error


def _silent(_: str) -> None:
    pass


class _Verifier:
    def __init__(self, path: Path, connection: sqlite3.Connection, progress: Progress) -> None:
        self._path, self._connection, self._progress = path, connection, progress
        self._version = version_in(connection)
        self._problems: list[Problem] = []
        self._bad: list[Row] = []
        self._rows = self._blobs = 0
        self._index = Index()

    def found(self) -> Verification:
        self._connection.execute("BEGIN")
        self._connection.text_factory = as_text
        self._pages()
        self._schema()
        self._index = Index.of(self._connection)
        for table in checksums.tables_with_sums(self._version):
            self._table(table)
        self._large_bytes()
        self._progress("references")
        for check in (wrong_references, wrong_counts, wrong_phases):
            self._collect(check(self._connection, self._index, self._version))
        return Verification(
            store=str(self._path),
            format=self._version,
            executions=len(self._index.executions),
            rows=self._rows,
            blobs=self._blobs,
            problems=tuple(self._problems),
            damaged=damaged_executions(self._index, self._problems, self._bad),
        )

    def _collect(self, found: Iterator[Problem]) -> None:
        try:
            self._problems.extend(found)
        except sqlite3.Error as error:
            self._add("pages", f"a check could not be made: {error}")

    def _add(self, check: Check, text: str, table: str | None = None, execution: int | None = None) -> None:
        execution_id = self._index.id_of(execution)
        self._problems.append(Problem(check=check, text=text, table=table, execution_id=execution_id))

    def _pages(self) -> None:
        """Let SQLite compare its pages, its indexes and its tables."""
        self._progress("pages and indexes")
        try:
            for (text,) in self._connection.execute(f"PRAGMA integrity_check({_MOST})"):
                if text != "ok":
                    self._add("pages", text if isinstance(text, str) else repr(text))
        except sqlite3.Error as error:
            self._add("pages", str(error))

    def _schema(self) -> None:
        """Compare the tables and indexes with those of the format."""
        wanted = expected_schema(self._version)
        found = dict(self._connection.execute(SCHEMA_QUERY).fetchall())
        for name in sorted({*wanted, *found}, key=str):
            ours, theirs = (_squeezed(where.get(name, "")) for where in (wanted, found))
            if name in found and isinstance(name, str) and name.startswith("sqlite_stat"):
                continue  # made by ANALYZE
            if ours != theirs or (name in wanted) != (name in found):
                what = "is missing" if name not in found else "is unknown" if name not in wanted else "has changed"
                self._add("format", f"{name!r} of the schema {what}")

    def _table(self, table: str) -> None:
        """Compare every row of a table with its checksum."""
        self._progress(f"rows of {table}")
        covered, shape = checksums.covered(table, self._version), tables(self._version)[table]
        key = tuple(name for name in shape.key if name not in covered)
        names = (*covered, *key, "sum")
        try:
            for row in self._connection.execute(f"SELECT {', '.join(names)} FROM {table} NOT INDEXED"):
                self._rows += 1
                cells = dict(zip(names, row, strict=True))
                self._row(table, cells, row[: len(covered)], row[-1])
        except sqlite3.Error as error:
            self._add("pages", f"not all rows of {table!r} can be read: {error}", table)

    def _row(self, table: str, cells: dict[str, Any], covered: tuple[Any, ...], recorded: Any) -> None:
        try:
            self._index.note(table, cells)
        except TypeError:  # a number that is none
            pass
        try:
            checksums.verify(table, covered, recorded)
        except checksums.DamageError as error:
            execution = self._index.execution_of(table, cells)
            self._add("checksum", str(error), table, execution)
            self._bad.append(Row(table=table, execution=execution, cells=cells))

    def _large_bytes(self) -> None:
        """Compare large bytes with their digests, and with the rows that refer to them."""
        self._progress("large bytes")
        found = set()
        try:
            for digest, data in self._connection.execute("SELECT digest, data FROM blobs NOT INDEXED"):
                self._blobs += 1
                found.add(digest)
                if not isinstance(data, bytes) or blobs.digest_of(data) != digest:
                    self._bytes(digest, f"the bytes {_short(digest)} are not what was stored")
        except sqlite3.Error as error:
            self._add("pages", f"not all large bytes can be read: {error}", "blobs")
        for digest in sorted(self._index.uses.keys() - found):
            self._bytes(digest, f"the bytes {_short(digest)} are missing")
        for digest in sorted(found - self._index.uses.keys(), key=str):
            self._add("count", f"nothing refers to the bytes {_short(digest)}", "blobs")

    def _bytes(self, digest: str, text: str) -> None:
        users: list[int | None] = [*sorted(self._index.users.get(digest, ()))]
        for execution in users or [None]:
            self._add("bytes", text, "blobs", execution)
            self._bad.append(Row(table="blobs", execution=execution, cells={"digest": digest}))


def _squeezed(text: Any) -> Any:
    return "".join(text.split()) if isinstance(text, str) else text


def _short(digest: Any) -> str:
    return str(digest)[:12]
