"""The cipher that the environment names: for the command line, the web page and workers, which no code configures."""

from __future__ import annotations

import functools
import importlib
import os
import sys

from ..errors import CipherError
from .cipher import Cipher

OBJECT_VARIABLE = "STRANDS_DURABLE_CIPHER"
"""Names a `Cipher`, or a function that returns one: ``module:object``."""
KEYS_VARIABLE = "STRANDS_DURABLE_CIPHER_KEYS"
"""Keys in base64 by id, the current one first: ``2026-11=...,2025-03=...``."""


def cipher_or_default(given: Cipher | None) -> Cipher | None:
    """Return the cipher that was given, else the one that the environment names; None if it names none."""
    if given is not None:
        if not isinstance(given, Cipher):
            raise TypeError(f"cipher must be a strands_durable.Cipher, not {type(given).__name__}")
        return given
    named, keys = os.environ.get(OBJECT_VARIABLE), os.environ.get(KEYS_VARIABLE)
    if named and keys:
        raise CipherError(
            "The environment", f"both {OBJECT_VARIABLE} and {KEYS_VARIABLE} are set", "Set only one of them."
        )
    return _imported(named) if named else _of_keys(keys) if keys else None


@functools.cache
def _of_keys(text: str) -> Cipher:
    pairs = [part.partition("=") for part in text.replace("\n", ",").split(",") if part.strip()]
    if not pairs or any(not sign for _, sign, _ in pairs):
        raise CipherError(KEYS_VARIABLE, "it is not of the form ID=BASE64,ID=BASE64", "The current key comes first.")
    return Cipher({key_id.strip(): key.strip() for key_id, _, key in pairs}, current=pairs[0][0].strip())


@functools.cache
def _imported(named: str) -> Cipher:
    module, _, name = named.partition(":")
    if not module or not name:
        raise CipherError(OBJECT_VARIABLE, f"{named!r} is not of the form module:object", "")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CipherError(OBJECT_VARIABLE, f"{named!r} cannot be imported: {error}", "") from error
    made = found if isinstance(found, Cipher) else found()
    if not isinstance(made, Cipher):
        raise CipherError(OBJECT_VARIABLE, f"{named!r} is a {type(made).__name__}, not a strands_durable.Cipher", "")
    return made
