"""Encryption of what engines keep in a log of ours. Does not depend on Strands or any engine."""

from .contents import ChangedError, Contents, is_sealed
from .outline import facts_of, outline

__all__ = ["ChangedError", "Contents", "facts_of", "is_sealed", "outline"]
