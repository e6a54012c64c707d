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
import threading
from collections.abc import Mapping
from typing import Any, Protocol, cast

from ..errors import CipherError, UnsupportedFeatureError

KEY_BYTES = 32
_NONCE_BYTES = 12
_WRAPPED_FOR = b"strands-durable data key"
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
        self._secrets = {_checked_id(key_id): _secret(key_id, key) for key_id, key in keys.items()}
        self._keys: dict[str, DataKey] = {}
        known = ", ".join(map(repr, self._secrets))
        if current is None:
            if len(self._secrets) != 1:
                hint = f"Name the key for new data: current=... (keys: {known or 'none'})."
                raise CipherError("The cipher", f"it has {len(self._secrets)} keys, and none is current", hint)
            (current,) = self._secrets
        if current not in self._secrets:
            raise CipherError("The cipher", f"it has no key {current!r}", f"Its keys: {known}.", current)
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


def _checked_id(key_id: str) -> str:
    if not isinstance(key_id, str) or not key_id or len(key_id) > 200 or not key_id.isprintable():
        hint = "Use a short printable text, such as '2026-11'."
        raise CipherError("The cipher", f"{key_id!r} is not an id of a key", hint)
    return key_id


def _secret(key_id: str, key: bytes | str) -> bytes:
    """Return the bytes of a key; no error shows any of them."""
    try:
        found = base64.b64decode(key, validate=True) if isinstance(key, str) else bytes(key)
    except (binascii.Error, ValueError, TypeError):
        found = b""
    if len(found) != KEY_BYTES:
        hint = "Make one with: openssl rand -base64 32"
        raise CipherError(
            "The cipher", f"the key {key_id!r} is not {KEY_BYTES} bytes, or their base64 text", hint, key_id
        )
    return found


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
