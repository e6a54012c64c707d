"""Encryption at rest: a cipher, and the data keys that it wraps.

What is stored is encrypted with data keys, by AES-256-GCM. A data key is random, belongs to one store or one process, and is
stored beside what it encrypts, wrapped with one of the user's keys. So a key management service is asked once for each data
key rather than once for each value, and a new user key needs no new format.

The library ``cryptography`` is imported when something is encrypted, not with this module.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol, cast

from ..errors import CipherError, UnsupportedFeatureError
from .secret_texts import MASK

KEY_BYTES = 32
_NONCE_BYTES = 12
_WRAPPED_FOR = b"strands-durable data key"
_LIKE_A_KEY = re.compile(r"[\w+/-]{43}", re.ASCII)
"""So long are 32 bytes in base64 without padding; in hexadecimal they are longer."""
_KEY_IN_TEXT = re.compile(r"(?<![\w+/-])(?:[\w+/-]{43}=?|[0-9a-f]{64})(?![\w+/=-])", re.ASCII | re.I)
_INSTALL = "Install it: pip install 'strands-durable[encryption]'"


class KeyService(Protocol):
    """Wraps data keys with keys that may never leave it: what a key management service (KMS) offers.

    Methods are called from any thread, when a store is opened or a worker starts, and never once per step. An error that they
    raise becomes a `CipherError`.
    """

    @property
    def current(self) -> str:
        """The id of the key that new data keys are wrapped with. It is stored in plain text.

        It is asked for each value that is encrypted: return what is known, and make no request.
        """

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        """Return a data key of 32 bytes, encrypted with a key."""

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the data key that was wrapped with a key; raise if the key is unknown or is another one."""


class Cipher:
    """Encrypts what is stored, with keys by id.

    Args:
        keys: Keys of 32 bytes by id, as bytes or as base64 text; or a `KeyService`. Keep earlier keys for as long as something
            is encrypted with them: ``strands-durable rekey`` encrypts a store again.
        current: The id of the key for what is encrypted from now on; may be omitted if there is only one.

    Raises:
        CipherError: A key is not usable, or ``current`` names none.
    """

    def __init__(self, keys: Mapping[str, bytes | str] | KeyService, current: str | None = None) -> None:
        if isinstance(keys, Mapping):
            self._service: KeyService = _Keys(keys, current)
        elif not all(hasattr(keys, name) for name in ("wrap", "unwrap")):
            what = f"keys is a {type(keys).__name__}, neither a mapping nor a key service"
            raise CipherError("The cipher", what, "Pass keys by id, as in Cipher({'2026-11': key}).")
        elif current is not None:
            raise CipherError("The cipher", "a key service decides itself which key is current", "Leave out current.")
        else:
            self._service = keys
        self._known: dict[tuple[str, bytes], DataKey] = {}
        """The data keys that were unwrapped: a service is asked once for each."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Cipher(current={self.current!r})"

    def __reduce__(self) -> Any:
        raise TypeError("A Cipher holds keys and is not pickled; build it in each process.")

    @property
    def current(self) -> str:
        """The id of the key for what is encrypted from now on."""
        return self._service.current

    def new_data_key(self, where: str, key_id: str | None = None) -> WrappedKey:
        """Return a new data key, wrapped with the current key if none is named; ``where`` is named in errors."""
        key_id, secret = key_id or self.current, os.urandom(KEY_BYTES)
        try:
            wrapped = self._service.wrap(key_id, secret)
        except (CipherError, UnsupportedFeatureError):
            raise
        except Exception as error:
            raise _refused(where, key_id, error) from error
        found = WrappedKey(key_id, wrapped, DataKey(secret))
        with self._lock:
            self._known[key_id, wrapped] = found.key
        return found

    def data_key(self, key_id: str, wrapped: bytes, where: str) -> DataKey:
        """Return a data key that was wrapped; ``where`` is named in errors."""
        with self._lock:
            found = self._known.get((key_id, wrapped))
        if found is not None:
            return found
        try:
            found = DataKey(self._service.unwrap(key_id, wrapped))
        except CipherError as error:
            raise CipherError(where, error.reason, error.hint, key_id) from None
        except UnsupportedFeatureError:
            raise
        except Exception as error:
            raise _refused(where, key_id, error) from error
        with self._lock:
            self._known[key_id, wrapped] = found
        return found


class DataKey:
    """A key that encrypts values, each together with what it is about: it cannot be read back as anything else."""

    def __init__(self, secret: bytes) -> None:
        self._aead = _aead(secret)

    def seal(self, data: bytes, about: bytes) -> bytes:
        """Return data encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + cast(bytes, self._aead.encrypt(nonce, data, about))

    def open(self, sealed: bytes, about: bytes) -> bytes | None:
        """Return what was encrypted; None if it was changed, is about something else, or has another key."""
        from cryptography.exceptions import InvalidTag

        try:
            return cast(bytes, self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about))
        except (InvalidTag, ValueError):
            return None


class WrappedKey:
    """A data key, and the form in which it is stored."""

    def __init__(self, key_id: str, wrapped: bytes, key: DataKey) -> None:
        self.key_id, self.wrapped, self.key = key_id, wrapped, key


class _Keys:
    """Keys that this process has."""

    def __init__(self, keys: Mapping[str, bytes | str], current: str | None) -> None:
        numbered = enumerate(keys.items(), 1)
        self._secrets = {_checked_id(key_id, at): _secret(key, at) for at, (key_id, key) in numbered}
        self._keys: dict[str, DataKey] = {}
        known = ", ".join(map(repr, self._secrets))
        if current is None:
            if len(self._secrets) != 1:
                hint = f"Name the key for new data: current=... (keys: {known or 'none'})."
                raise CipherError("The cipher", f"it has {len(self._secrets)} keys, and none is current", hint)
            (current,) = self._secrets
        if current not in self._secrets:  # not shown: it may be a key
            raise CipherError("The cipher", "it has no key with the id given as current", f"Its keys: {known}.")
        self.current = current

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        return self._key(key_id).seal(data_key, _about(key_id))

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        found = self._key(key_id).open(wrapped, _about(key_id))
        if found is None:
            hint = "Nothing was written. Use the key that it was encrypted with."
            raise CipherError("", f"the key {key_id!r} is not the one that it was encrypted with", hint, key_id)
        return found

    def _key(self, key_id: str) -> DataKey:
        if key_id not in self._secrets:
            known = ", ".join(map(repr, self._secrets))
            hint = f"Nothing was written. Add the key to the cipher (it has: {known})."
            raise CipherError(
                "", f"it is encrypted with the key {key_id!r}, which the cipher does not have", hint, key_id
            )
        if key_id not in self._keys:
            self._keys[key_id] = DataKey(self._secrets[key_id])
        return self._keys[key_id]


def _about(key_id: str) -> bytes:
    return _WRAPPED_FOR + b"\0" + key_id.encode()


# What is wrong with a key or an id is said without showing either: who confuses the two has given a key as an id.


def _checked_id(key_id: str, position: int) -> str:
    is_id = isinstance(key_id, str) and 0 < len(key_id) <= 200 and key_id.isprintable() and " " not in key_id
    if not is_id or _LIKE_A_KEY.search(key_id):
        what = f"the id of its key no. {position} is empty, too long, has blanks, or could be a key itself"
        raise CipherError("The cipher", what, "Ids are stored in plain text. Use a short name, such as '2026-11'.")
    return key_id


def _secret(key: bytes | str, position: int) -> bytes:
    """Return the bytes of a key."""
    found = bytes(key) if isinstance(key, (bytes, bytearray, memoryview)) else b""
    if isinstance(key, str):
        with suppress(binascii.Error, ValueError):
            found = base64.b64decode(key, validate=True)
    if len(found) != KEY_BYTES:
        what = f"its key no. {position} is not {KEY_BYTES} bytes, or their base64 text"
        raise CipherError("The cipher", what, "Make one with: openssl rand -base64 32")
    return found


def without_keys(text: str) -> str:
    """Return text that a person has typed in which everything that is as long as a key is masked."""
    return _KEY_IN_TEXT.sub(MASK, text)


def _refused(where: str, key_id: str, error: Exception) -> CipherError:
    return CipherError(
        where, f"the key service failed for the key {key_id!r}: {type(error).__name__}: {error}", "", key_id
    )


def _aead(secret: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError("Encryption", "cryptography is not installed", _INSTALL) from error
    return AESGCM(secret)
