"""The data keys of an encrypted store, and whether a store is encrypted.

A store is encrypted as a whole or not at all. The secret of the store, with which inputs are compared, shows which: it is the
first thing that is read. A process that lacks the key is refused before anything else is read or written.
"""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Callable

from ..._records.cipher import Cipher, WrappedKey
from ...errors import CipherError
from ..connection import Connection
from .sealing import Seal, is_sealed

CONTRADICTION = "it has data keys, and its secret is not encrypted: it was changed"
_SECRET = "name = 'hash_key'"
_PLAIN = (
    "Nothing was written. To encrypt what it holds, stop the processes that use it and run 'strands-durable rekey'; to use it "
    "as it is, leave out the cipher."
)


def unlock(connection: Connection, where: str, cipher: Cipher | None) -> None:
    """Let a connection read and write the contents of a store.

    Raises:
        CipherError: The store is encrypted and there is no cipher, or one with other keys; or it is not, and there is one.
    """
    value = _secret(connection)
    if not is_sealed(value):
        if _has_keys(connection):
            raise CipherError(where, CONTRADICTION, "Nothing was written. Restore the file from a backup.")
        if cipher is not None:
            raise CipherError(where, "it is not encrypted, and a cipher was given", _PLAIN, cipher.current)
        return
    if cipher is None:
        raise _locked(connection, where)
    connection.seal = seal = Seal(where, cipher)
    seal.learn(connection)
    seal.use_hash_key(bytes.fromhex(seal.opened(connection, "secrets", "value", ("hash_key",), value)))


def accept(connection: Connection, other: Connection, where: str, cipher: Cipher | None) -> None:
    """Raise as `unlock` does if a cipher is not one for a store, by a connection of its own; else use its keys as well."""
    unlock(other, where, cipher)
    if cipher is not None and connection.seal is not None:
        connection.seal.accept(cipher)


def is_encrypted(connection: Connection) -> bool:
    """Return True if a store is encrypted, or says so in one of two places."""
    return is_sealed(_secret(connection)) or _has_keys(connection)


def is_contradictory(connection: Connection) -> bool:
    """Return True if a store has data keys, and a secret that is not encrypted: no process of ours has left it so."""
    return not is_sealed(_secret(connection)) and _has_keys(connection)


def installer(where: str, cipher: Cipher | None) -> Callable[[Connection], None] | None:
    """Return what makes a new file an encrypted one; its key is made before there is a file."""
    if cipher is None:
        return None
    key = cipher.new_data_key(where)
    return lambda connection: install(connection, where, cipher, key)


def install(connection: Connection, where: str, cipher: Cipher, key: WrappedKey) -> None:
    """Make a store an encrypted one whose other tables are empty, or are about to be encrypted in the same transaction."""
    (secret,) = connection.execute(f"SELECT value FROM secrets WHERE {_SECRET}").fetchone()
    add(connection, key)
    connection.seal = seal = Seal(where, cipher)
    seal.learn(connection)
    seal.use_hash_key(bytes.fromhex(secret))
    connection.update("secrets", {"value": secret}, _SECRET)


def uninstall(connection: Connection) -> None:
    """Make a store one in plain text whose contents have just been decrypted."""
    (secret,) = connection.expanded_rows("secrets", "value", _SECRET)[0]
    connection.seal = None
    connection.update("secrets", {"value": secret}, _SECRET)
    connection.delete("data_keys", "1")


def add(connection: Connection, key: WrappedKey) -> int:
    """Record a data key; from the next transaction on, every process encrypts with it."""
    wrapped = base64.b64encode(key.wrapped).decode()
    return connection.insert("data_keys", key_id=key.key_id, wrapped=wrapped, made_at=time.time())


def _has_keys(connection: Connection) -> bool:
    try:
        return connection.execute("SELECT 1 FROM data_keys LIMIT 1").fetchone() is not None
    except sqlite3.OperationalError:
        return False  # a format without encryption


def _secret(connection: Connection) -> object:
    try:
        row = connection.execute(f"SELECT value FROM secrets WHERE {_SECRET}").fetchone()
    except sqlite3.DatabaseError:
        if connection.has_sums:
            raise
        return None  # damaged: a list shows what can be read
    return None if row is None else row[0]


def _locked(connection: Connection, where: str) -> CipherError:
    rows = connection.execute("SELECT key_id FROM data_keys ORDER BY id").fetchall()
    key_id = str(rows[-1][0]) if rows else None
    hint = (
        "Nothing was written. Pass cipher=Cipher(...) with this key, or set STRANDS_DURABLE_CIPHER or "
        "STRANDS_DURABLE_CIPHER_KEYS."
    )
    return CipherError(where, f"it is encrypted with the key {key_id!r}, and no cipher was given", hint, key_id)
