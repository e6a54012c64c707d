"""The root of the tree."""

from __future__ import annotations


class DurableError(Exception):
    """Base class of every error of this package: catch it to catch them all."""
