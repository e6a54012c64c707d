"""Encrypting a store again: with another key beside running processes, or from plain text and back while it is not in use.

A new key: the first commit adds a data key, with which every process encrypts from its next transaction on. What earlier data
keys have encrypted is then written again in pieces, and the last commit deletes those keys. A process that is killed in between
has lost nothing, and the next one continues.

From plain text and back: one transaction, so that a store is never encrypted in part.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ..._records.cipher import Cipher
from ..._records.codec import digest
from ..._records.crash_points import reach
from ..._records.rekeyed import Rekeyed
from ...errors import BackendUnavailableError, CipherError
from .. import blobs
from ..connection import Connection
from ..database import Store, translated
from ..schema import exclusively, upgrade
from ..store_file import version_of
from ..tables import FORMAT, tables
from . import data_keys
from .sealing import CONTENTS, Seal, bytes_key, config_name

_PIECE_BYTES = 1_000_000
"""How much is encrypted again in one transaction."""
_PIECE_ROWS, _ROW_BYTES = 200, 5_000
_BUSY_SECONDS = 10.0
_SCRUB_SECONDS = 1.0


def is_encrypted(path: Path) -> bool:
    """Return True if the contents of a store file are encrypted."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, factory=Connection)) as connection:
        return data_keys.is_encrypted(connection)


# A new key


def rotate(store: Store) -> Rekeyed:
    """Encrypt the contents of a store with the current key of its cipher, beside the processes that use it."""
    seal = _seal_of(store)
    _add_key(store, seal)
    rows = 0
    while any(number != seal.current for number in _numbers(store)):
        rows += _rotate_rows(store, seal) + _rotate_bytes(store, seal)
        if not any(_is_left(store, seal, table) for table in CONTENTS) and not _are_bytes_left(store, seal):
            with store.transaction("rekey.done") as connection:
                connection.delete("data_keys", "id < ?", seal.current)
    if rows:
        _scrub(store)
    return Rekeyed(outcome="rotated" if rows else "unchanged", key_id=seal.key_ids[seal.current], rows=rows)


def _seal_of(store: Store) -> Seal:
    seal = store.connection.seal
    if seal is None:
        raise CipherError(str(store.path), "it is not encrypted")
    return seal


def _numbers(store: Store) -> list[int]:
    return [number for (number,) in store.rows("data_keys", "id", "1")]


def _add_key(store: Store, seal: Seal) -> None:
    """Add a data key that is wrapped with the current key, unless the last one is."""
    wanted = seal.cipher.current
    if seal.key_ids[max(_numbers(store))] == wanted:
        return
    key = seal.cipher.new_data_key(str(store.path))
    with store.transaction("rekey.key") as connection:
        if seal.key_ids[seal.current] != wanted:  # another process may have added one
            data_keys.add(connection, key)
            seal.learn(connection)


def _rotate_rows(store: Store, seal: Seal) -> int:
    """Encrypt the contents of all tables again, in pieces."""
    ahead = [table for table in CONTENTS if _is_left(store, seal, table)]  # no writer waits for the others
    after: tuple[Any, ...] | None = None
    rows = 0
    while ahead:
        began, left = time.monotonic(), _PIECE_BYTES
        with store.transaction("rekey.piece", lasting=False) as connection:
            while ahead and left > 0:
                found = _old_rows(connection, seal, ahead[0], after)
                for *key, size in found:
                    after, left = tuple(key), left - max(size, _ROW_BYTES)
                    rows += _rotate_row(connection, ahead[0], after)
                    if left <= 0:
                        break
                else:
                    ahead, after = (ahead[1:], None) if len(found) < _PIECE_ROWS else (ahead, after)
        time.sleep(min(time.monotonic() - began, 0.1))  # others write in between
    return rows


def _rotate_row(connection: Connection, table: str, key: tuple[Any, ...]) -> int:
    where = " AND ".join(f"{name} = ?" for name in tables()[table].key)
    (cells,) = connection.rows(table, ", ".join(CONTENTS[table]), where, *key)
    return connection.update(table, dict(zip(CONTENTS[table], cells, strict=True)), where, *key)


def _old_rows(
    connection: Connection, seal: Seal, table: str, after: tuple[Any, ...] | None, limit: int = _PIECE_ROWS
) -> list[tuple[Any, ...]]:
    """Return keys and sizes of rows that an earlier data key has encrypted."""
    key, size = ", ".join(tables()[table].key), " + ".join(f"coalesce(length({name}), 0)" for name in CONTENTS[table])
    prefix = seal.prefix
    old = " OR ".join(f"({name} <> '' AND substr({name}, 1, {len(prefix)}) <> ?)" for name in CONTENTS[table])
    beyond = "1" if after is None else f"({key}) > ({', '.join('?' for _ in after)})"
    query = f"SELECT {key}, {size} FROM {table} WHERE {beyond} AND ({old}) ORDER BY {key} LIMIT ?"
    return connection.execute(query, (*(after or ()), *(prefix for _ in CONTENTS[table]), limit)).fetchall()


def _is_left(store: Store, seal: Seal, table: str) -> bool:
    with store.connection.guard:
        return bool(_old_rows(store.connection, seal, table, None, 1))


def _rotate_bytes(store: Store, seal: Seal) -> int:
    after, rows = "", 0
    while True:
        began, left = time.monotonic(), _PIECE_BYTES
        with store.transaction("rekey.piece", lasting=False) as connection:
            while left > 0 and (found := _next_bytes(connection, after)) is not None:
                after, data = found
                left -= len(data)
                if bytes_key(data) != seal.current:
                    sealed = seal.sealed_bytes(after, seal.opened_bytes(connection, after, data))
                    blobs.overwrite(connection, after, sealed)
                    rows += 1
        if left > 0:
            return rows
        time.sleep(min(time.monotonic() - began, 0.1))


def _next_bytes(connection: Connection, after: str) -> tuple[str, bytes] | None:
    query = "SELECT digest, data FROM blobs WHERE digest > ? ORDER BY digest LIMIT 1"
    found: tuple[str, bytes] | None = connection.execute(query, (after,)).fetchone()
    return found


def _are_bytes_left(store: Store, seal: Seal) -> bool:
    rows = store.read("SELECT substr(data, 1, 16) FROM blobs")
    return any(bytes_key(head) != seal.current for (head,) in rows)


def _scrub(store: Store) -> None:
    """Remove what earlier keys have encrypted from the WAL too, unless a reader is in the way."""
    until = time.monotonic() + _SCRUB_SECONDS
    while not store.scrub() and time.monotonic() < until:
        time.sleep(0.05)


# From plain text, and back


def encrypt(path: Path, cipher: Cipher, busy_seconds: float = _BUSY_SECONDS) -> Rekeyed:
    """Encrypt the contents of a store that is in plain text, while no other process has it open."""
    if version_of(path) < FORMAT:
        upgrade(path, busy_seconds)
    key, rows = cipher.new_data_key(str(path)), 0

    def change(connection: Connection) -> None:
        nonlocal rows
        data_keys.install(connection, str(path), cipher, key)
        rows = 1 + _convert(connection, None, connection.seal)

    _alone(path, busy_seconds, change, "encrypted", is_done=data_keys.is_encrypted)
    return Rekeyed(outcome="encrypted", key_id=key.key_id, rows=rows)


def decrypt(path: Path, cipher: Cipher, busy_seconds: float = _BUSY_SECONDS) -> Rekeyed:
    """Write the contents of an encrypted store in plain text, while no other process has it open."""
    rows = 0

    def change(connection: Connection) -> None:
        nonlocal rows
        data_keys.unlock(connection, str(path), cipher)
        seal = connection.seal
        rows = _convert(connection, seal, None)
        connection.seal = seal
        data_keys.uninstall(connection)

    _alone(path, busy_seconds, change, "decrypted", is_done=lambda connection: not data_keys.is_encrypted(connection))
    return Rekeyed(outcome="decrypted", key_id=None, rows=rows)


def _alone(
    path: Path,
    busy_seconds: float,
    change: Callable[[Connection], None],
    how: str,
    *,
    is_done: Callable[[Connection], bool],
) -> None:
    def begun(connection: Connection) -> bool:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                return False
            raise
        connection.has_sums = True
        if not is_done(connection):  # otherwise another process was at it
            change(connection)
            connection.settle()
        reach("rekey.convert:before")
        connection.execute("COMMIT")
        reach("rekey.convert:after")
        return True

    try:
        if exclusively(path, busy_seconds, begun):
            return
    except sqlite3.Error as error:
        raise translated(path, error, busy_seconds) from error
    hint = "Nothing was changed. Stop the processes that use it, then run 'strands-durable rekey' again."
    raise BackendUnavailableError(str(path), f"it cannot be {how} while another process has it open", hint)


def _convert(connection: Connection, before: Seal | None, after: Seal | None) -> int:
    """Write all contents again, and large bytes with them; return how many rows there were."""
    rows = 0
    for table, columns in CONTENTS.items():
        if table == "secrets":
            continue
        where = " AND ".join(f"{name} = ?" for name in tables()[table].key)
        for key in connection.execute(f"SELECT {', '.join(tables()[table].key)} FROM {table}").fetchall():
            connection.seal = before
            (cells,) = connection.expanded_rows(table, ", ".join(columns), where, *key)
            connection.seal = after
            changes = {name: cell for name, cell in zip(columns, cells, strict=True) if cell}
            rows += connection.update(table, changes, where, *key) if changes else 0
    for number, text in connection.rows("configs", "id, data", "1"):
        name = config_name(connection, digest(json.loads(text)))
        connection.update("configs", {"digest": name}, "id = ?", number)
    connection.settle()
    blobs.discard_unused(connection)
    return rows
