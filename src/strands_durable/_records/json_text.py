"""JSON text, written and read without what `json` does again for each value: make an encoder, and look for blanks around it.

Both took longer than the small values of a step themselves. Values must not hold themselves: nothing here looks for cycles.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_make_encoder: Any = getattr(json.encoder, "c_make_encoder", None)  # only CPython has it
_read = json.JSONDecoder().raw_decode


def writer(*, separators: tuple[str, str] = (",", ":"), **options: Any) -> Callable[[Any], str]:
    """Return what writes JSON with these options of `json.JSONEncoder`."""
    slow = json.JSONEncoder(separators=separators, check_circular=False, **options)
    if _make_encoder is None:
        return slow.encode
    basic = json.encoder.encode_basestring_ascii if slow.ensure_ascii else json.encoder.encode_basestring
    item, key = separators
    chunks = _make_encoder(None, slow.default, basic, None, key, item, slow.sort_keys, slow.skipkeys, slow.allow_nan)
    return lambda value: "".join(chunks(value, 0))


def loads(text: str) -> Any:
    """Return the value of a JSON text, as `json.loads` does."""
    try:
        value, end = _read(text)
    except ValueError:  # blanks may lead it
        return json.loads(text)
    return value if end == len(text) else json.loads(text)
