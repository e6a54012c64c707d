"""The contents that one process stores in an engine: encrypted with a data key of the process, which is stored with each.

    0x00 0x01 | length and id of the key | length and wrapped form of the data key | nonce, encrypted data and tag

A value is authenticated together with what it is and where it belongs, so that it cannot be read as anything else. What is in
plain text begins with another byte: it is compressed JSON, JSON or text of ours. Without a cipher, everything stays as it is.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..._records.cipher import Cipher, WrappedKey
from ..._records.logs import safe_logger
from ...errors import CipherError

logger = safe_logger(__name__)

_MARK = b"\x00\x01"
_LEAST_BYTES = 28
"""Those of a nonce and a tag."""
_VALUE = "strands-durable sealed"
"""The only key of an encrypted JSON value."""


class ChangedError(CipherError):
    """A value is not what was encrypted: no key opens it."""


class Contents:
    """Encrypts and decrypts contents.

    Args:
        cipher: The keys; None: contents are in plain text.
        where: Where they are stored, for errors.
        reads_plain: Whether a process with a cipher reads plain text, too: for engines whose record cannot be changed. Where
            it is refused, no one who can write to the store can pass off plain text as a recorded value.
    """

    def __init__(self, cipher: Cipher | None, where: str, *, reads_plain: bool = False) -> None:
        self.cipher, self.where, self._reads_plain = cipher, where, reads_plain
        self._keys: dict[str, WrappedKey] = {}

    @property
    def is_sealing(self) -> bool:
        """Whether there is a cipher."""
        return self.cipher is not None

    # Bytes

    def seal(self, data: bytes, about: str, key_id: str | None = None) -> bytes:
        """Return data encrypted, with the current key if none is named; ``about`` says what it is and where it belongs."""
        if self.cipher is None:
            return data
        key = self._data_key(self.cipher, key_id)
        named = key.key_id.encode()
        head = len(named).to_bytes(2, "big") + named + len(key.wrapped).to_bytes(2, "big") + key.wrapped
        return _MARK + head + key.key.seal(data, _bound(about))

    def open(self, data: bytes, about: str) -> bytes:
        """Return data as it was; raise `CipherError` if it cannot be decrypted, or must not be in plain text."""
        if not data.startswith(_MARK):
            return self._plain(data, about)
        key_id, wrapped, sealed = _parts(data)
        if not _is_whole(data):
            raise ChangedError(self.where, f"{about} is damaged: no key opens it", _RESTORE)
        if self.cipher is None:
            reason = f"{about} is encrypted with the key {key_id!r}, and no cipher was given"
            raise CipherError(self.where, reason, _GIVE, key_id)
        found = self.cipher.data_key(key_id, wrapped, self.where).open(sealed, _bound(about))
        if found is None:
            reason = f"{about} is not what was encrypted with the key {key_id!r}: it was changed, or is from elsewhere"
            raise ChangedError(self.where, reason, _RESTORE, key_id)
        return found

    def key_id(self, data: bytes) -> str | None:
        """Return the id of the key that data is encrypted with; None if it is in plain text."""
        return _parts(data)[0] if data.startswith(_MARK) else None

    def _plain(self, data: bytes, about: str) -> bytes:
        if self.cipher is not None and not self._reads_plain:
            reason = f"{about} is in plain text, and a cipher was given"
            raise CipherError(self.where, reason, "Nothing was written. Leave out the cipher, or encrypt it: rekey.")
        return data

    def prepare(self) -> None:
        """Have a data key, so that what is encrypted next does not wait for a key service; raise `CipherError` if it fails."""
        if self.cipher is not None:
            self._data_key(self.cipher)

    def _data_key(self, cipher: Cipher, key_id: str | None = None) -> WrappedKey:
        """Return the data key of this process that is wrapped with a key, by default with the current one."""
        named = key_id or cipher.current
        if named not in self._keys:
            self._keys[named] = cipher.new_data_key(self.where, named)
        return self._keys[named]

    @contextmanager
    def hidden(self, what: str) -> Iterator[None]:
        """Replace the text of an error that an engine would record: it may repeat contents."""
        try:
            yield
        except Exception as error:
            if self.cipher is None:
                raise
            logger.warning("error=<%s> | %s failed", error, what)
            raise RuntimeError(f"{what} failed with {type(error).__name__}; the log of this process says why") from None

    # JSON values, in records that are JSON themselves

    def seal_value(self, value: Any, about: str, key_id: str | None = None) -> Any:
        """Return a JSON value encrypted, as a JSON value."""
        if self.cipher is None:
            return value
        sealed = self.seal(json.dumps(value, separators=(",", ":")).encode(), about, key_id)
        return {_VALUE: base64.b64encode(sealed).decode()}

    def open_value(self, value: Any, about: str) -> Any:
        """Return a JSON value as it was; raise as `open` does. Without a cipher, one that only looks encrypted is plain."""
        if not is_sealed(value):
            self._plain(b"", about)
            return value
        data = _decoded(value[_VALUE])
        return value if self.cipher is None and not _is_whole(data) else json.loads(self.open(data, about))

    def value_key_id(self, value: Any) -> str | None:
        """Return the id of the key that a JSON value is encrypted with; None if it is in plain text."""
        return self.key_id(_decoded(value[_VALUE])) if is_sealed(value) else None


_RESTORE = "Restore what is stored, or remove the execution."
_GIVE = "Nothing was written. Pass cipher=, or set STRANDS_DURABLE_CIPHER_KEYS or STRANDS_DURABLE_CIPHER."


def is_sealed(value: Any) -> bool:
    """Return whether a JSON value is encrypted."""
    return isinstance(value, dict) and value.keys() == {_VALUE}


def _bound(about: str) -> bytes:
    return f"strands-durable\0{about}".encode("utf-8", "surrogatepass")


def _decoded(text: Any) -> bytes:
    """Return the bytes of an encrypted value; damaged ones are no value of ours, and are refused like changed ones."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return _MARK + b"\0" * 32


def _is_whole(data: bytes) -> bool:
    """Return whether encrypted data has all its parts."""
    key_id, wrapped, sealed = _parts(data)
    return data.startswith(_MARK) and bool(key_id and wrapped) and len(sealed) >= _LEAST_BYTES


def _parts(data: bytes) -> tuple[str, bytes, bytes]:
    """Return the id of a key, a wrapped data key, and what it encrypts; damaged data has parts that open with no key."""
    rest = data[len(_MARK) :]
    size = int.from_bytes(rest[:2], "big")
    key_id, rest = rest[2 : 2 + size], rest[2 + size :]
    size = int.from_bytes(rest[:2], "big")
    return key_id.decode("utf-8", "replace"), rest[2 : 2 + size], rest[2 + size :]
