"""What a check of a backend or a worker has found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingLevel = Literal["ok", "warning", "problem", "unknown"]
"""``unknown``: it cannot be checked from here."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    check: str
    level: FindingLevel
    text: str
    remedy: str = ""
    """What to do; empty if there is nothing to do."""
