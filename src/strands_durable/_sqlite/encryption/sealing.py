"""Encrypted cells: which columns hold contents, what an encrypted cell looks like, and how it is read back.

    {"$":"sealed","k":2,"v":"<base64>","blobs":[{"$":"blob","of":"bytes","n":70000,"v":"<keyed digest>"}]}

``k`` is the number of the data key. The plain text is authenticated together with the table, the column and the key of the row,
so that a cell which was changed, or put in the place of another, is an error. References to large bytes are repeated outside,
so that what refers to them can be counted without a key; a cell that repeats others is an error, too. Checksums are made of
cells as they are stored.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..._records.cipher import Cipher, DataKey
from ...errors import CipherError
from .. import blobs
from ..tables import tables

if TYPE_CHECKING:
    from ..connection import Connection

CONTENTS: dict[str, tuple[str, ...]] = {
    "dispatches": ("spec", "given", "note"),
    "calls": ("input", "result"),
    "failures": ("error",),
    "answers": ("answer",),
    "replies": ("answer",),
    "steps": ("title", "result", "error"),
    "chunks": ("data",),
    "messages": ("data",),
    "heads": ("data",),
    "past_heads": ("data",),
    "state": ("value",),
    "past_state": ("value",),
    "configs": ("data",),
    "notices": ("error",),
    "secrets": ("value",),
}
"""The columns that are encrypted, by table. Ids, names, statuses, times, numbers and tags are not: they are searched for."""
_MARK = '{"$":"sealed","k":'
_HINT = "Nothing was written. Restore the file from a backup, or remove the execution."
_MOST_DIGITS = 9
"""Of the number of a data key; Python refuses to read one of thousands."""
_BLOB_MARK = b"\x00SDS1"
_BLOB_HEAD = len(_BLOB_MARK) + 8
_MOST_CIPHERS = 8
"""How many ciphers are kept for one store: a process may make one for each call."""


def prefix_of(number: int) -> str:
    """Return what cells begin with that are encrypted with a data key."""
    return f"{_MARK}{number},"


def cell_key(cell: str) -> int | None:
    """Return the number of the data key that a cell is encrypted with; None if it names none."""
    number, _, _ = cell[len(_MARK) :].partition(",")
    return int(number) if number.isdecimal() else None


class CellError(CipherError):
    """One cell is not what was encrypted: damage to its row, and no reason to leave the rest of the store alone."""

    def __init__(self, backend: str, what: str, key_id: str | None = None) -> None:
        super().__init__(backend, f"the file is damaged: {what}", _HINT, key_id)
        self.args = (backend, what, key_id)
        self.what = what


def is_sealed(cell: Any) -> bool:
    """Return True if a cell is stored encrypted."""
    return type(cell) is str and cell.startswith(_MARK)


@functools.cache
def identity(table: str) -> tuple[str, ...]:
    """Return the columns by which the rows of a table differ."""
    key = tables()[table].key
    return ("call", "attempt", "at") if key == ("rowid",) else key


class Seal:
    """Encrypts and decrypts the contents of one store, for one connection."""

    def __init__(self, where: str, cipher: Cipher) -> None:
        self.where, self._ciphers = where, [cipher]
        self.current = 0
        """The number of the data key that cells are encrypted with."""
        self.key_ids: dict[int, str] = {}
        """The keys that the data keys are wrapped with, by the number of the data key."""
        self._keys: dict[int, DataKey] = {}
        self._digest_key = b""

    # Keys

    def accept(self, cipher: Cipher) -> None:
        """Use the keys of a further cipher too, which a process has opened the same store with."""
        self._ciphers = [cipher, *(each for each in self._ciphers if each is not cipher)][:_MOST_CIPHERS]

    def learn(self, connection: Connection) -> None:
        """Read the data keys of the store; the last one is the one to encrypt with."""
        for number, key_id, wrapped in connection.rows("data_keys", "id, key_id, wrapped", "1 ORDER BY id"):
            if number not in self._keys:
                self._keys[number] = self._unwrapped(key_id, wrapped)
            self.key_ids[number] = key_id
            self.current = number
        if not self._keys:
            raise CipherError(self.where, "it has no data key", "Restore the file from a backup.")

    def _unwrapped(self, key_id: str, wrapped: str) -> DataKey:
        """Return a data key; if no cipher has its key, raise the error of the one that was given last."""
        try:
            data = base64.b64decode(wrapped, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            reason = f"its data key for the key {key_id!r} is damaged"
            raise CipherError(self.where, reason, "Restore the file from a backup.", key_id) from error
        errors = []
        for cipher in self._ciphers:
            try:
                return cipher.data_key(key_id, data, self.where)
            except CipherError as error:
                errors.append(error)
        raise errors[0]

    def follow(self, connection: Connection) -> None:
        """At the beginning of a transaction: encrypt with the last data key, which another process may have added."""
        (last,) = connection.execute("SELECT max(id) FROM data_keys").fetchone()
        if last != self.current:
            self.learn(connection)

    def is_current(self, cells: Sequence[Any]) -> bool:
        """Return True unless one of the cells is encrypted with an earlier data key."""
        prefix = self.prefix
        return all(cell.startswith(prefix) for cell in cells if is_sealed(cell))

    @property
    def prefix(self) -> str:
        """What cells begin with that are encrypted with the last data key."""
        return prefix_of(self.current)

    def use_hash_key(self, hash_key: bytes) -> None:
        """Derive what large bytes and configurations are named by from the secret of the store."""
        self._digest_key = hmac.digest(hash_key, b"digests", "sha256")

    def digest_of(self, data: bytes) -> str:
        """Return the name under which bytes are stored: it says nothing to one who does not have the key."""
        return hmac.new(self._digest_key, data, hashlib.sha256).hexdigest()

    # Cells

    def sealed(
        self, connection: Connection, table: str, cells: Mapping[str, Any], row: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return cells of a row with contents encrypted; ``row`` holds the key of the row."""
        columns = [column for column in CONTENTS.get(table, ()) if cells.get(column)]
        if not columns:
            return cells
        place = _place(table, row)
        return {**cells, **{name: self._sealed(connection, table, name, place, cells[name]) for name in columns}}

    def _sealed(self, connection: Connection, table: str, column: str, place: tuple[Any, ...], text: str) -> str:
        if blobs.BYTES_MARK in text:
            text = connection.stored(text)
        data = self._keys[self.current].seal(text.encode("utf-8", "surrogatepass"), _about(table, column, place))
        return _cell(self.current, data, text)

    def opened(self, connection: Connection, table: str, column: str, place: tuple[Any, ...], cell: Any) -> Any:
        """Return the plain text of a cell; what is empty is not encrypted. A cell has one form: nothing is added outside."""
        if not cell:
            return cell
        if not is_sealed(cell):
            raise CellError(self.where, f"{_named(table, column, place)} is not encrypted, as all contents are")
        number, _, rest = cell[len(_MARK) :].partition(',"v":"')
        key = self._key(connection, number, table, column, place)
        try:
            sealed = base64.b64decode(rest[: rest.index('"')], validate=True)
        except (ValueError, binascii.Error):
            sealed = b""
        data = key.open(sealed, _about(table, column, place))
        text = None if data is None else data.decode("utf-8", "surrogatepass")
        if text is None or cell != _cell(int(number), sealed, text):
            raise self._changed(_named(table, column, place), int(number))
        return text

    def opened_rows(
        self, connection: Connection, table: str, selected: tuple[str, ...], asked: tuple[str, ...], rows: list[Any]
    ) -> list[Any]:
        """Return rows with the contents that are asked for decrypted."""
        contents, key = _places(table, selected, asked)
        if not contents:
            return rows
        found = []
        for row in rows:
            cells, place = list(row), tuple(row[at] for at in key)
            for at, column in contents:
                cells[at] = self.opened(connection, table, column, place, cells[at])
            found.append(tuple(cells))
        return found

    def _key(self, connection: Connection, number: str, table: str, column: str, place: tuple[Any, ...]) -> DataKey:
        if not number.isdecimal() or len(number) > _MOST_DIGITS:
            raise self._changed(_named(table, column, place), self.current)
        if int(number) not in self._keys:  # another process has begun to encrypt the store again
            self.learn(connection)
        if int(number) not in self._keys:
            what = f"{_named(table, column, place)} is encrypted with data key {number}, which is not there"
            raise CellError(self.where, what)
        return self._keys[int(number)]

    def _changed(self, what: str, number: int) -> CellError:
        key_id = self.key_ids.get(number)
        found = f"{what} is not what was encrypted (key {key_id!r}): it was changed, or belongs elsewhere"
        return CellError(self.where, found, key_id)

    # Large bytes

    def sealed_bytes(self, digest: str, data: bytes) -> bytes:
        """Return large bytes encrypted, with a checksum that needs no key."""
        sealed = self._keys[self.current].seal(data, _about("blobs", "data", (digest,)))
        return _BLOB_MARK + self.current.to_bytes(4) + zlib.crc32(sealed).to_bytes(4) + sealed

    def opened_bytes(self, connection: Connection, digest: str, data: bytes) -> bytes:
        """Return the plain form of large bytes."""
        what = _named("blobs", "data", (digest,))
        if not data.startswith(_BLOB_MARK):
            raise CellError(self.where, f"{what} is not encrypted, as all contents are")
        number = bytes_key(data)
        key = self._key(connection, str(number), "blobs", "data", (digest,))
        found = key.open(data[_BLOB_HEAD:], _about("blobs", "data", (digest,)))
        if found is None:
            raise self._changed(what, number)
        return found


def config_name(connection: Connection, digest: str) -> str:
    """Return the name under which a configuration is stored: from its digest, a prompt could be guessed."""
    return digest if connection.seal is None else connection.seal.digest_of(digest.encode())


def are_intact(data: bytes) -> bool:
    """Return whether large bytes that are encrypted match their checksum, which needs no key."""
    found = int.from_bytes(data[_BLOB_HEAD - 4 : _BLOB_HEAD])
    return data.startswith(_BLOB_MARK) and zlib.crc32(data[_BLOB_HEAD:]) == found


def bytes_key(data: bytes) -> int:
    """Return the number of the data key that large bytes are encrypted with."""
    return int.from_bytes(data[len(_BLOB_MARK) : len(_BLOB_MARK) + 4])


def _cell(number: int, sealed: bytes, text: str) -> str:
    """Return the form in which a cell is stored: what is encrypted, and the references of the plain text."""
    refers = f',"blobs":[{",".join(blobs.references_in(text))}]' if blobs.REFERENCE_MARK in text else ""
    return f'{_MARK}{number},"v":"{base64.b64encode(sealed).decode()}"{refers}}}'


def _place(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of a row as SQLite will give it back: an import may have whole numbers for times."""
    key, reals = identity(table), tables()[table].reals
    return tuple(float(row[name]) if name in reals and type(row[name]) is int else row[name] for name in key)


def _about(table: str, column: str, place: tuple[Any, ...]) -> bytes:
    return repr((table, column, *place)).encode()


def _named(table: str, column: str, place: tuple[Any, ...]) -> str:
    return f"the cell {table}.{column} of row {', '.join(str(each)[:40] for each in place)}"


@functools.cache
def _places(
    table: str, selected: tuple[str, ...], asked: tuple[str, ...]
) -> tuple[tuple[tuple[int, str], ...], tuple[int, ...]]:
    """Return where the contents that are asked for are in a selected row, and where its key is."""
    contents = [column for column in CONTENTS.get(table, ()) if column in asked]
    return (
        tuple((selected.index(column), column) for column in contents),
        tuple(selected.index(name) for name in identity(table)) if contents else (),
    )
