"""What an export is made of: the tables and columns that it may have. Anything else is refused on import, by name.

Left out is what belongs to the store or to the process that runs the execution: keys of hashes, the owner and its lease, chunks
of running steps, marks of retention, counts and checksums, and numbers that a file gives to its rows.
"""

from __future__ import annotations

from functools import cache

from .._sqlite.tables import tables

_NAMES = """
executions dispatches tags calls failures answers replies steps messages heads state past_heads past_state configs blobs
"""
TABLES = frozenset(_NAMES.split())
_OF_THE_STORE = {
    "executions": frozenset({"owner", "lease_until", "lease_seconds", "fence", "beat", "listened_until"}),
    "calls": frozenset({"input_hash", "kept"}),
}


@cache
def columns(table: str) -> frozenset[str]:
    """Return the columns that a row of an export may have. Failures have no key but the number of their row."""
    found = frozenset(tables()[table].columns) - _OF_THE_STORE.get(table, frozenset())
    return found | {"rowid"} if table == "failures" else found


class MisfitError(Exception):
    """A row does not fit."""
