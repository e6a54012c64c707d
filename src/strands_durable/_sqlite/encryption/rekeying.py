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
from typing import Any, Literal

from ..._records.cipher import Cipher
from ..._records.codec import digest
from ..._records.crash_points import reach
from ..._records.logs import safe_logger
from ..._records.rekeyed import Rekeyed
from ...errors import BackendUnavailableError, CipherError
from .. import blobs
from ..checksums import DamageError
from ..connection import Connection
from ..database import Store, translated
from ..schema import exclusively, upgrade
from ..store_file import version_of
from ..tables import FORMAT, tables
from . import data_keys
from .sealing import CONTENTS, CellError, Seal, bytes_key, config_name, prefix_of

logger = safe_logger(__name__)

_PIECE_BYTES = 1_000_000
"""How much is encrypted again in one transaction."""
_PIECE_ROWS, _ROW_BYTES = 200, 5_000
_BUSY_SECONDS = 10.0
_SCRUB_SECONDS = 1.0


def is_encrypted(path: Path) -> bool:
    """Return True if the contents of a store file are encrypted."""
    with closing(_reading(path)) as connection:
        return data_keys.is_encrypted(connection)


def _reading(path: Path) -> Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, factory=Connection)


# A new key


def rotate(store: Store, cipher: Cipher) -> Rekeyed:
    """Encrypt the contents of a store with the current key of a cipher, beside the processes that use it."""
    seal = _seal_of(store)
    _add_key(store, seal, cipher)
    rows = damaged = 0
    while len(numbers := _numbers(store)) > 1:
        last = max(numbers)  # from its commit on, nothing is written with an earlier one
        written = _rotate_rows(store, seal) + _rotate_bytes(store, seal)
        rows += written
        damaged = sum(_left(store, last, table) for table in CONTENTS) + _bytes_left(store, last)
        if damaged and not written:
            break  # what is left cannot be read
        if not damaged:
            with store.transaction("rekey.done") as connection:
                connection.delete("data_keys", "id < ?", last)  # not by what is the last one now: it may be a later one
    if rows:
        _scrub(store)
    outcome: Literal["rotated", "unchanged"] = "rotated" if rows else "unchanged"
    return Rekeyed(outcome=outcome, key_id=seal.key_ids[seal.current], rows=rows, damaged=damaged)


def _seal_of(store: Store) -> Seal:
    seal = store.connection.seal
    if seal is None:
        raise CipherError(str(store.path), "it is not encrypted")
    return seal


def _numbers(store: Store) -> list[int]:
    return [number for (number,) in store.rows("data_keys", "id", "1")]


def _add_key(store: Store, seal: Seal, cipher: Cipher) -> None:
    """Add a data key that is wrapped with the current key, unless the last one is."""
    wanted = cipher.current
    ((last,),) = store.rows("data_keys", "key_id", "1 ORDER BY id DESC LIMIT 1")
    if last == wanted:
        return
    key = cipher.new_data_key(str(store.path))
    with store.transaction("rekey.key") as connection:
        if seal.key_ids[seal.current] != wanted:  # another process may have added one
            data_keys.add(connection, key)
            seal.learn(connection)


def _rotate_rows(store: Store, seal: Seal) -> int:
    """Encrypt the contents of all tables again, in pieces."""
    ahead = [table for table in CONTENTS if _left(store, seal.current, table)]  # no writer waits for the others
    after: tuple[Any, ...] | None = None
    rows = 0
    while ahead:
        began, left = time.monotonic(), _PIECE_BYTES
        with store.transaction("rekey.piece", lasting=False) as connection:
            while ahead and left > 0:
                found = _old_rows(connection, seal.current, ahead[0], after)
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
    try:
        (cells,) = connection.rows(table, ", ".join(CONTENTS[table]), where, *key)
    except (DamageError, CellError) as error:
        logger.warning("table=<%s>, row=<%s>, error=<%s> | not encrypted again", table, key, error)
        return 0
    return connection.update(table, dict(zip(CONTENTS[table], cells, strict=True)), where, *key)


def _old_rows(
    connection: Connection, number: int, table: str, after: tuple[Any, ...] | None, limit: int = _PIECE_ROWS
) -> list[tuple[Any, ...]]:
    """Return keys and sizes of rows that another data key than this one has encrypted."""
    key, size = ", ".join(tables()[table].key), " + ".join(f"coalesce(length({name}), 0)" for name in CONTENTS[table])
    prefix = prefix_of(number)
    old = " OR ".join(f"({name} <> '' AND substr({name}, 1, {len(prefix)}) <> ?)" for name in CONTENTS[table])
    beyond = "1" if after is None else f"({key}) > ({', '.join('?' for _ in after)})"
    query = f"SELECT {key}, {size} FROM {table} WHERE {beyond} AND ({old}) ORDER BY {key} LIMIT ?"
    return connection.execute(query, (*(after or ()), *(prefix for _ in CONTENTS[table]), limit)).fetchall()


def _left(store: Store, number: int, table: str) -> int:
    with store.connection.guard:
        return len(_old_rows(store.connection, number, table, None, -1))


def _rotate_bytes(store: Store, seal: Seal) -> int:
    after, rows = "", 0
    while True:
        began, left = time.monotonic(), _PIECE_BYTES
        with store.transaction("rekey.piece", lasting=False) as connection:
            while left > 0 and (found := _next_bytes(connection, after)) is not None:
                after, data = found
                left -= len(data)
                if bytes_key(data) != seal.current:
                    rows += _rotate_one(connection, seal, after, data)
        if left > 0:
            return rows
        time.sleep(min(time.monotonic() - began, 0.1))


def _rotate_one(connection: Connection, seal: Seal, name: str, data: bytes) -> int:
    try:
        opened = seal.opened_bytes(connection, name, data)
    except CellError as error:
        logger.warning("bytes=<%s>, error=<%s> | not encrypted again", name, error)
        return 0
    blobs.overwrite(connection, name, seal.sealed_bytes(name, opened))
    return 1


def _next_bytes(connection: Connection, after: str) -> tuple[str, bytes] | None:
    query = "SELECT digest, data FROM blobs WHERE digest > ? ORDER BY digest LIMIT 1"
    found: tuple[str, bytes] | None = connection.execute(query, (after,)).fetchone()
    return found


def _bytes_left(store: Store, number: int) -> int:
    return sum(bytes_key(head) != number for (head,) in store.read("SELECT substr(data, 1, 16) FROM blobs"))


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
    with closing(_reading(path)) as connection:
        data_keys.unlock(connection, str(path), cipher)  # before anything is written
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
