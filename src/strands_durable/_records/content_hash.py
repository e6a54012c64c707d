"""Whether a value is still what it was: by a hash of its content, which is good for one process only."""

from __future__ import annotations

import marshal
from typing import Any

from .codec import encode


def content_hash(value: Any, what: str = "A message") -> int:
    """Return a hash of the content of ``value``. Format 2 of marshal has no references: equal values look equal."""
    try:
        return hash(marshal.dumps(value, 2))
    except ValueError:
        return hash(encode(value, what))


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same down to their types; False where nobody can tell."""
    try:
        return marshal.dumps(one, 2) == marshal.dumps(other, 2)
    except ValueError:
        return False
