"""A connection to a store: the one place where rows are written to SQLite, and read back.

Rows get a checksum over their columns when they are written, and are compared with it when they are read. Large bytes become
references to a table of their own, which are counted. In an encrypted store, contents are encrypted when they are written, and
decrypted when they are read (see `sealing`). A row that is updated is read, compared and written as a whole, so that a
damaged row never gets a new checksum. Statements that change other columns than those of a lease go through `insert`, `put`,
`update` and `delete`; `execute` is for queries that only look for ids, and for leases.

Rows in memory have neither checksums nor counts.
"""

from __future__ import annotations

import base64
import functools
import operator
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import blobs, checksums
from .tables import tables

if TYPE_CHECKING:
    from .encryption.sealing import Seal


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """How the rows of a table are written and read."""

    table: str
    key: tuple[str, ...]
    covered: tuple[str, ...]
    """The columns that the checksum is made of; all but those of a lease."""
    reals: tuple[int, ...]
    """Which of the covered columns hold floats."""
    defaults: tuple[Any, ...]
    """What is in the covered columns that a new row does not name."""
    has_id: bool
    """Whether the key is a number that is given out here."""
    is_counted: bool
    """Whether `calls.kept` counts its rows."""
    may_refer: tuple[int, ...]
    """Which of the covered columns may refer to large bytes."""
    texts: tuple[str, ...]
    """Their names."""
    integers: tuple[int, ...]
    """Which of the covered columns hold integers; SQLite gives True back as one."""
    apart: tuple[str, ...]
    """The columns that the checksum is not made of, but for the checksum itself."""
    form: str
    """What the text of a checksum is made with."""
    start: int
    """What a checksum starts from: rows of two tables never have the same one."""

    def cells(self, found: Mapping[str, Any], before: Sequence[Any]) -> list[Any]:
        """Return the covered columns of a row as SQLite will give them back; what is not named is as it was before."""
        cells = list(map(found.get, self.covered, before))
        if bool in map(type, cells):
            for place in self.integers:
                if type(cells[place]) is bool:
                    cells[place] = int(cells[place])
        for place in self.reals:
            if type(cells[place]) is int:
                cells[place] = float(cells[place])
        return cells


def _shape_of(table: str) -> _Shape:
    found = tables()[table]
    covered = checksums.covered(table)
    texts = blobs.columns(table)
    return _Shape(
        table=table,
        key=found.key,
        covered=covered,
        reals=tuple(place for place, name in enumerate(covered) if name in found.reals),
        defaults=tuple(found.defaults[name] for name in covered),
        has_id=found.key == ("id",),
        is_counted=table in checksums.KEPT,
        may_refer=tuple(place for place, name in enumerate(covered) if name in texts),
        texts=tuple(name for name in covered if name in texts),
        integers=tuple(place for place, name in enumerate(covered) if name in found.integers),
        apart=tuple(name for name in found.columns if name not in covered),
        form=checksums.form_of(len(covered)),
        start=checksums.start_of(table),
    )


_shape = {table: _shape_of(table) for table in tables()}.__getitem__
"""Made with the import: what a resume waits for is as little as possible."""


@functools.cache
def _insert_sql(table: str, names: tuple[str, ...], replaces: bool) -> str:
    verb = "INSERT OR REPLACE" if replaces else "INSERT"
    return f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})"


@functools.cache
def _inserting(table: str, names: tuple[str, ...], replaces: bool) -> tuple[str, tuple[str, ...]]:
    """Return what writes a row with its checksum, and which of its columns come after that."""
    apart = tuple(name for name in _shape(table).apart if name in names)
    return _insert_sql(table, (*_shape(table).covered, "sum", *apart), replaces), apart


@functools.cache
def _overwriting(table: str, names: tuple[str, ...]) -> tuple[str, Callable[[Any], tuple[Any, ...]]]:
    """Return what changes columns of a row and its checksum, and what picks these columns from those that are covered."""
    shape = _shape(table)
    changes = ", ".join(f"{name} = ?" for name in (*names, "sum"))
    return f"UPDATE {table} SET {changes} WHERE {_where(shape.key)}", _picked(shape.covered, names)


@functools.cache
def _select_sql(table: str, names: tuple[str, ...], where: str) -> str:
    return f"SELECT {', '.join(names)} FROM {table} WHERE {where}"


@functools.cache
def _where(names: tuple[str, ...]) -> str:
    return " AND ".join(f"{name} = ?" for name in names)


@functools.cache
def _picked(selected: tuple[str, ...], asked: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if asked == selected[: len(asked)]:
        return operator.itemgetter(slice(len(asked)))
    at = {name: place for place, name in enumerate(selected)}
    places = [at[name] for name in asked]
    if len(places) > 1:
        return operator.itemgetter(*places)
    (place,) = places
    return lambda row: (row[place],)


class Connection(sqlite3.Connection):
    """A connection that keeps checksums of the rows it writes, and large bytes out of them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.guard = threading.RLock()
        """Held by the thread that uses the connection."""
        self.has_sums = False
        """Whether the rows have checksums; those in memory have none."""
        self.seal: Seal | None = None
        """What encrypts and decrypts contents; None where the store is not encrypted."""
        self._uses: dict[str, int] = {}
        """How many more rows refer to bytes than before the transaction, by digest."""
        self._kept: dict[int, int] = {}
        """How many more rows calls have that are counted than before the transaction, by call."""
        self._syncs = True
        """Whether a commit waits for the disk."""

    # Reading

    def rows(self, table: str, columns: str, where: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return columns of rows that are as they were written; raise `DamageError` for one that is not."""
        return self._rows(table, columns, where, values)[0]

    def expanded_rows(self, table: str, columns: str, where: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the same with large bytes in place of what refers to them."""
        found, refers = self._rows(table, columns, where, values)
        return blobs.expanded(self, found) if refers else found

    def _rows(self, table: str, columns: str, where: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], bool]:
        asked = _names(columns)
        if not self.has_sums:
            return self.execute(_select_sql(table, asked, where), values).fetchall(), True
        selected = _with_sum(table, asked)
        found = self.execute(_select_sql(table, selected, where), values).fetchall()
        refers = checksums.verify_rows(table, found, len(_shape(table).covered))
        if self.seal is not None:
            found = self.seal.opened_rows(self, table, selected, asked, found)
        pick = _picked(selected, asked)
        return [pick(row) for row in found], refers

    def opened(self, table: str, column: str, place: tuple[Any, ...], cell: Any) -> Any:
        """Return the plain form of a cell that a query has found; ``place`` is the key of its row."""
        return cell if self.seal is None else self.seal.opened(self, table, column, place, cell)

    # Writing

    def insert(self, table: str, **cells: Any) -> int:
        """Write a new row; return its number."""
        shape = _shape(table)
        if shape.has_id and "id" not in cells:
            cells["id"] = self.next_id(table)
        self._write(shape, cells)
        if shape.is_counted and self.has_sums:
            self._keep(cells["call"], 1)
        return int(cells.get("id", 0))

    def insert_known(self, table: str, **cells: Any) -> tuple[int, Sequence[Any]]:
        """Write a new row with a number; return it, and the row as `update_known` needs it."""
        number = self.next_id(table)
        return number, self._write(_shape(table), {"id": number, **cells})

    def update_known(self, table: str, before: Sequence[Any], changes: Mapping[str, Any], number: int) -> None:
        """Change columns of a row that was written on this connection, and is known to be unchanged since."""
        if self.seal is not None and not self.seal.is_current(before):  # it may have been encrypted again
            self.update(table, changes, "id = ?", number)
        else:
            self._overwrite(_shape(table), before, changes, (number,))

    def replace(self, table: str, before: str, **cells: Any) -> None:
        """Write a row in the place of the one with the same key, whose text is known to be ``before``."""
        self._count([before], -1)
        self._write(_shape(table), cells, replaces=True)

    def put(self, table: str, **cells: Any) -> None:
        """Write a row in the place of the one with the same key, if there is one; that one may be damaged."""
        shape = _shape(table)
        if not self.has_sums:
            self._write(shape, cells, replaces=True)
            return
        key = [cells[name] for name in shape.key]
        found = self.execute(_select_sql(table, shape.texts or shape.key, _where(shape.key)), key).fetchone()
        if found is None:
            self.insert(table, **cells)
        else:
            self._count(found, -1)
            self._write(shape, cells, replaces=True)

    def update(self, table: str, changes: Mapping[str, Any], where: str, *values: Any) -> int:
        """Change columns of rows; return how many there were."""
        shape = _shape(table)
        if not self.has_sums:
            sql = _update_where_sql(table, tuple(changes), where)
            return self.execute(sql, self._without_bytes([*changes.values(), *values])).rowcount
        selected = _with_sum(table, shape.key)
        rows = self.execute(_select_sql(table, selected, where), values).fetchall()
        size, key = len(shape.covered), _picked(selected, shape.key)
        checksums.verify_rows(table, rows, size)
        for row in rows:
            self._overwrite(shape, row[:size], changes, key(row))
        return len(rows)

    def erase(self, table: str, changes: Mapping[str, Any], where: str, *values: Any) -> None:
        """Overwrite columns of rows, of damaged ones too; the checksum of those stays, so that they stay damaged."""
        try:
            self.update(table, changes, where, *values)
        except sqlite3.DatabaseError:
            self._discount(_shape(table), where, values)
            self.execute(_update_where_sql(table, tuple(changes), where), [*changes.values(), *values])

    def delete(self, table: str, where: str, *values: Any) -> int:
        """Delete rows, damaged ones too; return how many there were."""
        shape = _shape(table)
        if self.has_sums and shape.may_refer:
            mark = " OR ".join(f"instr({name}, '{blobs.REFERENCE_MARK}')" for name in shape.texts)
            self._discount(shape, f"({where}) AND ({mark})", values)
        if self.has_sums and shape.is_counted:
            counts = f"SELECT call, count(*) FROM {table} WHERE {where} GROUP BY call"
            for call_id, number in self.execute(counts, values).fetchall():
                self._keep(call_id, -number)
        return self.execute(f"DELETE FROM {table} WHERE {where}", values).rowcount

    def forget(self, *texts: str | None) -> None:
        """Delete what only these texts, which were just overwritten, referred to; where this is counted, the commit does so."""
        if not self.has_sums:
            blobs.discard(self, {digest for text in texts for digest in blobs.digests_in(text or "")})

    # Transactions

    def begin(self, *, lasting: bool = True) -> None:
        """Begin a transaction that writes; the commit of one that is not ``lasting`` does not wait for the disk."""
        self._uses, self._kept = {}, {}
        if lasting != self._syncs:
            self.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
            self._syncs = lasting
        self.execute("BEGIN IMMEDIATE")
        if self.seal is not None:
            self.seal.follow(self)

    def settle(self) -> None:
        """At the end of a transaction: write how many rows refer to bytes, and delete those that none refers to."""
        self.write_counts()
        if not self._uses:
            return
        changes, self._uses = {digest: by for digest, by in self._uses.items() if by}, {}
        for digest, by in changes.items():
            before = self.rows("uses", "number", "digest = ?", digest)
            number = by + (before[0][0] if before else 0)
            if number > 0:
                self.put("uses", digest=digest, number=number)
            else:
                self.delete("uses", "digest = ?", digest)
                self.execute("DELETE FROM blobs WHERE digest = ?", (digest,))

    def write_counts(self) -> None:
        """Write how many rows of calls this transaction has added so far."""
        for call_id, by in self._kept.items():
            self.execute("UPDATE calls SET kept = kept + ? WHERE id = ?", (by, call_id))
        self._kept = {}

    # What rows are made of

    def next_id(self, table: str) -> int:
        """Return the number that SQLite would give to a new row; it is part of what the checksum covers."""
        (last,) = self.execute(_LAST_ID.get(table, f"SELECT max(id) FROM {table}")).fetchone()
        return int(last or 0) + 1

    def _write(self, shape: _Shape, cells: Mapping[str, Any], *, replaces: bool = False) -> Sequence[Any]:
        """Write a row; return its covered columns, or nothing where there are no checksums."""
        if not self.has_sums:
            sql = _insert_sql(shape.table, tuple(cells), replaces)
            self.execute(sql, self._without_bytes([*cells.values()]))
            return ()
        if self.seal is not None:
            cells = self.seal.sealed(self, shape.table, cells, cells)
        covered, checksum = self._summed(shape, cells, shape.defaults)
        sql, apart = _inserting(shape.table, tuple(cells), replaces)
        self.execute(sql, [*covered, checksum, *map(cells.__getitem__, apart)])
        return covered

    def _overwrite(self, shape: _Shape, before: Sequence[Any], changes: Mapping[str, Any], key: Sequence[Any]) -> None:
        self._count([before[place] for place in shape.may_refer], -1)
        if self.seal is not None:
            row = dict(zip(shape.covered, before, strict=True))
            changes = self.seal.sealed(self, shape.table, changes, row)
        covered, checksum = self._summed(shape, changes, before)
        sql, pick = _overwriting(shape.table, tuple(changes))
        self.execute(sql, [*pick(covered), checksum, *key])

    def _summed(self, shape: _Shape, cells: Mapping[str, Any], before: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """Return the covered columns of a row, with references in place of large bytes, and their checksum."""
        covered: Sequence[Any] = shape.cells(cells, before)
        text = shape.form % tuple(covered)
        if "$" in text:  # one character is found faster
            if blobs.BYTES_MARK in text:
                covered = self._without_bytes(covered)
                text = shape.form % tuple(covered)
            if blobs.REFERENCE_MARK in text:
                self._count([covered[place] for place in shape.may_refer], 1)
        return covered, checksums.sum_from(shape.start, text)

    def _count(self, texts: Iterable[Any], by: int) -> None:
        for text in texts:
            if type(text) is str and blobs.REFERENCE_MARK in text:
                for digest in blobs.digests_in(text):
                    self._uses[digest] = self._uses.get(digest, 0) + by

    def _discount(self, shape: _Shape, where: str, values: Sequence[Any]) -> None:
        """Count what rows refer to that are about to go; a damaged one may be no text."""
        texts = tuple(f"CAST({name} AS BLOB)" for name in shape.texts)
        for row in self.execute(_select_sql(shape.table, texts, where), values).fetchall():
            self._count([data.decode("utf-8", "replace") for data in row if data is not None], -1)

    def _keep(self, call_id: int, by: int) -> None:
        self._kept[call_id] = self._kept.get(call_id, 0) + by

    def store_bytes(self, data: bytes) -> str:
        """Write large bytes under their name, unless they are there; the rows that refer to them count. Return the name."""
        digest = self.digest_of(data)
        kept = data if self.seal is None else self.seal.sealed_bytes(digest, data)
        self.execute("INSERT OR IGNORE INTO blobs (digest, data) VALUES (?, ?)", (digest, kept))
        return digest

    def _without_bytes(self, row: Sequence[Any]) -> Sequence[Any]:
        if not any(type(cell) is str and blobs.BYTES_MARK in cell for cell in row):
            return row
        return [self.stored(cell) if type(cell) is str else cell for cell in row]

    def stored(self, text: str) -> str:
        """Store the large bytes of a recorded form; return it with references in their place."""
        for data in map(base64.b64decode, blobs.encoded_in(text)):
            self.store_bytes(data)
        return self.referring(text)

    def referring(self, text: str) -> str:
        """Return a recorded form with references in place of large bytes."""
        return blobs.referring(text, self.digest_of)

    def digest_of(self, data: bytes) -> str:
        """Return the name under which bytes are stored."""
        return blobs.digest_of(data) if self.seal is None else self.seal.digest_of(data)


_LAST_ID = {"executions": "SELECT seq FROM sqlite_sequence WHERE name = 'executions' UNION ALL SELECT 0 LIMIT 1"}
"""Numbers of executions are never used again."""


@functools.cache
def _names(columns: str) -> tuple[str, ...]:
    return tuple(columns.replace(" ", "").split(","))


@functools.cache
def _with_sum(table: str, asked: tuple[str, ...]) -> tuple[str, ...]:
    covered = _shape(table).covered
    return (*covered, "sum", *(name for name in asked if name not in covered))


@functools.cache
def _update_where_sql(table: str, names: tuple[str, ...], where: str) -> str:
    return f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in names)} WHERE {where}"
