"""What `rekey` has done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Rekeyed:
    """What became of the contents of a store."""

    outcome: Literal["encrypted", "rotated", "decrypted", "unchanged"]
    """``encrypted``: they were in plain text before. ``rotated``: they had earlier keys. ``decrypted``: they are in plain text
    now. ``unchanged``: there was nothing to do."""
    key_id: str | None
    """The key that they are encrypted with now."""
    rows: int
    """How many rows and large bytes, or batches of a log, were written again."""
    damaged: int = 0
    """Rows and large bytes that stay as they were, because they cannot be read: `verify` names them. The earlier keys are kept
    for them."""
