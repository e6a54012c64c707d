"""Strands' own unit tests, with `Durability` attached to everything they build."""
