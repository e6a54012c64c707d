"""A keyed hash of a call's input: inputs can be compared by it, but not guessed back after a redaction."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from .codec import encode


def input_hash(key: bytes, given: Any) -> str:
    """Return the hash of an input under the key of its store."""
    text = encode(_without_marks(given), "The prompt")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _without_marks(given: Any) -> Any:
    """Strands writes a tracking id into messages that it is given: they are the same input all the same."""
    if not isinstance(given, list):
        return given
    return [_without_mark(block) if isinstance(block, dict) else block for block in given]


def _without_mark(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("tracking_id", "metadata")}
