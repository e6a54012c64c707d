"""The cipher that the environment names: for the command line, the web page and workers, which no code configures."""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys

from ..errors import CipherError
from .cipher import Cipher

OBJECT_VARIABLE = "STRANDS_DURABLE_CIPHER"
"""Names a `Cipher`, or a function that returns one: ``module:object``."""
KEYS_VARIABLE = "STRANDS_DURABLE_CIPHER_KEYS"
"""Keys in base64 by id, the current one first: ``2026-11=...,2025-03=...``."""
_FORM = "Give each key an id of its own, the current key first: 2026-11=BASE64,2025-03=BASE64."
_OBJECT = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")
_MOST_CHARACTERS = 43
"""So long is a key."""


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


# No error shows what a variable holds, or a part of it: it may be a key that was put into the wrong place.


@functools.cache
def _of_keys(text: str) -> Cipher:
    pairs = [part.partition("=") for part in text.replace("\n", ",").split(",") if part.strip()]
    if not pairs or any(not key.strip() for _, _, key in pairs):  # the only sign of a key without an id is its padding
        raise CipherError(KEYS_VARIABLE, "it is not of the form ID=BASE64,ID=BASE64", _FORM)
    keys = {key_id.strip(): key.strip() for key_id, _, key in pairs}
    if len(keys) < len(pairs):
        raise CipherError(KEYS_VARIABLE, "two of its keys have the same id", _FORM)
    try:
        return Cipher(keys, current=next(iter(keys)))
    except CipherError as error:
        raise CipherError(KEYS_VARIABLE, error.reason, error.hint) from None


@functools.cache
def _imported(named: str) -> Cipher:
    match = _OBJECT.fullmatch(named)
    if match is None or len(match["module"]) >= _MOST_CHARACTERS:
        raise CipherError(OBJECT_VARIABLE, "it is not of the form module:object", f"Keys belong into {KEYS_VARIABLE}.")
    module, name = match["module"], match["name"]
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise CipherError(OBJECT_VARIABLE, f"the module {module!r} cannot be imported: {error}") from error
    if found is None:
        raise CipherError(OBJECT_VARIABLE, f"the module {module!r} has no object of the name that follows the colon")
    made = found() if callable(found) else found
    if not isinstance(made, Cipher):
        what = f"what it names in {module!r} is a {type(made).__name__}, and no strands_durable.Cipher"
        raise CipherError(OBJECT_VARIABLE, what, "Name a Cipher, or a function that returns one.")
    return made
