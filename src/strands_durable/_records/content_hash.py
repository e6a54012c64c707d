"""Detects whether a value has changed, by a hash of its content that is valid within one process only."""

from __future__ import annotations

import marshal
from typing import Any

from .codec import encode


def content_hash(value: Any, what: str = "A message") -> int:
    """Return a hash of the content of ``value``. Marshal format 2 has no references, so equal values have equal bytes."""
    try:
        return hash(marshal.dumps(value, 2))
    except ValueError:
        return hash(encode(value, what))
