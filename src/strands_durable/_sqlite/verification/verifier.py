"""One pass over a store: every check, in the order in which one may explain the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..._records.cipher import Cipher
from ..._records.verification import Check, Problem, Verification
from ...errors import BackendUnavailableError, CipherError, UnsupportedFeatureError
from .. import blobs, checksums
from ..connection import Connection
from ..database import damaged
from ..encryption.data_keys import CONTRADICTION, is_contradictory, is_encrypted, unlock
from ..encryption.sealing import CONTENTS, CellError, are_intact, bytes_key, cell_key, identity, is_sealed
from ..inspection.moment import as_text, at_one_moment, unreadable
from ..schema import SCHEMA_QUERY, expected_schema, version_in
from ..store_file import version_of
from ..tables import tables
from .index import Index
from .losses import Row, damaged_executions
from .references import wrong_counts, wrong_phases, wrong_references

Progress = Callable[[str], None]
"""Called with what is checked next."""

_KEYS = ("secrets", "data_keys")
"""What is checked first: without it, nothing else can be decrypted."""
_MOST = 1_000
"""How many problems SQLite reports of its pages."""


def verified(path: Path, progress: Progress | None = None, cipher: Cipher | None = None) -> Verification:
    """Check everything that a store holds, at one moment; the file is not changed.

    Without a cipher, the contents of an encrypted store are compared with their checksums and not decrypted.

    Raises:
        FormatVersionError: It is no store, or one of a later format.
        UnsupportedFeatureError: It has a format that has no checksums.
        BackendUnavailableError: It cannot be read at all.
        CipherError: The cipher has other keys, or the store is not encrypted.
    """
    try:
        if version_of(path) < checksums.FIRST:
            raise UnsupportedFeatureError(
                f"Verifying {path}",
                f"its rows have no checksums, which came with format {checksums.FIRST}",
                "Open it with this version, which upgrades it: run its script or a worker.",
            )
        return at_one_moment(path, lambda connection: _Verifier(path, connection, progress or _silent, cipher).found())
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:  # in a name of the schema
        raise damaged(path, str(error)) from error
    except OSError as error:
        raise BackendUnavailableError(str(path), error.strerror or str(error)) from error


def _silent(_: str) -> None:
    pass


class _Verifier:
    def __init__(self, path: Path, connection: Connection, progress: Progress, cipher: Cipher | None) -> None:
        self._path, self._connection, self._progress, self._cipher = path, connection, progress, cipher
        self._version = version_in(connection)
        self._problems: list[Problem] = []
        self._bad: list[Row] = []
        self._rows = self._blobs = 0
        self._index = Index()
        self._is_opened = False
        self._keys: set[int] = set()
        """The numbers of the data keys."""

    def found(self) -> Verification:
        self._connection.execute("BEGIN")
        self._connection.text_factory = as_text
        self._pages()
        self._schema()
        self._index = Index.of(self._connection)
        for table in sorted(checksums.tables_with_sums(self._version), key=lambda name: name not in _KEYS):
            if table not in _KEYS and not self._is_opened:
                self._open()
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
            is_locked=self._index.is_locked,
        )

    def _open(self) -> None:
        """Get the keys of an encrypted store. If they are damaged, which is known by now, the rest is checked without."""
        self._is_opened, is_damaged = True, bool(self._bad)
        try:
            self._index.is_locked = is_encrypted(self._connection)
            if self._index.is_locked:
                self._keys = {number for (number,) in self._connection.execute("SELECT id FROM data_keys")}
            if is_contradictory(self._connection):
                self._add("cipher", CONTRADICTION, "secrets")
            elif self._cipher is not None or not self._index.is_locked:
                unlock(self._connection, str(self._path), self._cipher)
                self._index.is_locked = False
        except (sqlite3.Error, CipherError, ValueError):
            if not is_damaged:
                raise
            self._connection.seal = None

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
            checksums.verify(table, covered, recorded)
            if self._connection.seal is not None:
                cells = self._decrypted(table, cells)
            elif self._index.is_locked and table not in _KEYS:
                self._refuse_other_keys(table, cells)
        except checksums.DamageError as error:
            self._bad_row("checksum", str(error), table, cells)
        except CellError as error:
            self._bad_row("cipher", error.what, table, cells)
        except CipherError as error:
            self._bad_row("cipher", error.reason, table, cells)
        try:
            self._index.note(table, cells)
        except TypeError:  # a number that is none
            pass

    def _bad_row(self, check: Check, text: str, table: str, cells: dict[str, Any]) -> None:
        execution = self._index.execution_of(table, cells)
        self._add(check, text, table, execution)
        self._bad.append(Row(table=table, execution=execution, cells=cells))

    def _decrypted(self, table: str, cells: dict[str, Any]) -> dict[str, Any]:
        """Return a row as it was before it was encrypted."""
        place = tuple(cells[name] for name in identity(table)) if table in CONTENTS else ()
        found = dict(cells)
        for column in CONTENTS.get(table, ()):
            found[column] = self._connection.opened(table, column, place, cells[column])
        return found

    def _refuse_other_keys(self, table: str, cells: dict[str, Any]) -> None:
        """Raise if a cell of an encrypted store is not encrypted, or has a data key that is not there: this needs no key."""
        for column in CONTENTS.get(table, ()):
            cell = cells[column]
            if cell and (not is_sealed(cell) or cell_key(cell) not in self._keys):
                how = "has a data key that is not there" if is_sealed(cell) else "is not encrypted, as all contents are"
                raise CipherError(str(self._path), f"the cell {table}.{column} {how}")

    def _large_bytes(self) -> None:
        """Compare large bytes with their digests, and with the rows that refer to them."""
        self._progress("large bytes")
        found = set()
        try:
            for digest, data in self._connection.execute("SELECT digest, data FROM blobs NOT INDEXED"):
                self._blobs += 1
                found.add(digest)
                if not isinstance(data, bytes) or not self._is_named(digest, data):
                    self._bytes(digest, f"the bytes {_short(digest)} are not what was stored")
        except sqlite3.Error as error:
            self._add("pages", f"not all large bytes can be read: {error}", "blobs")
        for digest in sorted(self._index.uses.keys() - found):
            self._bytes(digest, f"the bytes {_short(digest)} are missing")
        for digest in sorted(found - self._index.uses.keys(), key=str):
            self._add("count", f"nothing refers to the bytes {_short(digest)}", "blobs")

    def _is_named(self, digest: str, data: bytes) -> bool:
        """Return whether large bytes are those that have a name; if they cannot be decrypted, whether they are intact."""
        if self._index.is_locked:
            return are_intact(data) and bytes_key(data) in self._keys
        if self._connection.seal is None:
            return blobs.digest_of(data) == digest
        try:
            found = self._connection.seal.opened_bytes(self._connection, digest, data)
        except CipherError:
            return False
        return are_intact(data) and self._connection.digest_of(found) == digest

    def _bytes(self, digest: str, text: str) -> None:
        users: list[int | None] = [*sorted(self._index.users.get(digest, ()))]
        for execution in users or [None]:
            self._add("bytes", text, "blobs", execution)
            self._bad.append(Row(table="blobs", execution=execution, cells={"digest": digest}))


def _squeezed(text: Any) -> Any:
    return "".join(text.split()) if isinstance(text, str) else text


def _short(digest: Any) -> str:
    return str(digest)[:12]
