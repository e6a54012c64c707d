"""Encryption of what engines keep in a log of ours. Does not depend on Strands or any engine."""

from .contents import Contents, is_sealed
from .outline import facts_of, outline

__all__ = ["Contents", "facts_of", "is_sealed", "outline"]
