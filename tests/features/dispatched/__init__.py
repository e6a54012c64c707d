"""Features of Strands as agents that any backend runs: what they do to the world is in the ledger of the folder they are given.

A worker that has imported this package can carry all of them.
"""

from . import loop, nesting, outside, people

__all__ = ["loop", "nesting", "outside", "people"]
