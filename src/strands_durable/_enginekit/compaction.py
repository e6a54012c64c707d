"""Removes what an execution no longer needs to resume: results of steps, and messages, that are out of sight.

An engine that continues with an empty history copies the whole execution, and an agent that drops old messages should not have
to copy them forever. Steps stay on record with everything but their results. Does not depend on Strands.
"""

from __future__ import annotations

import json
from typing import Any

from .._records.change_sets import pack
from .._sqlite import blobs
from .._sqlite.connection import Connection
from .replica import Replica

_OLD = """
SELECT s.id FROM steps s JOIN calls c ON c.id = s.call JOIN heads h ON h.call = c.id AND h.part = 'progress'
WHERE s.result IS NOT NULL AND s.status IN ('done', 'failed', 'discarded') AND c.kind = 'agent' AND s.kind <> 'node'
    AND s.key GLOB '[0-9][0-9][0-9][0-9][0-9][0-9]/*'
    AND CAST(substr(s.key, 1, 6) AS INTEGER) < json_extract(h.data, '$.ordinal')
    AND json_extract(s.result, '$.rerun') IS NULL
"""
"""Steps that the next process has to run again keep their results, which contain their input."""


def prune(replica: Replica) -> None:
    """Delete what no resume will read again."""
    with replica.transaction("prune") as connection:
        seen = _in_sight(connection)
        _forget_messages(connection, seen)
        kept = _sources(connection)
        old = [step_id for (step_id,) in connection.execute(_OLD) if step_id not in kept]
        for step_id in old:
            connection.update("steps", {"result": None}, "id = ?", step_id)
        blobs.discard(connection, {digest for (digest,) in connection.execute("SELECT digest FROM blobs")})


def packed_size(replica: Replica) -> int:
    """Return how many bytes an execution has that is handed over to another log, without what no resume reads."""
    copy = Replica(f"{replica.path.name} copy")
    copy.apply(replica.export())
    prune(copy)
    return len(pack(copy.export()))


def _in_sight(connection: Connection) -> dict[int, set[int]]:
    """Return, by conversation, the messages that a call may still read."""
    found: dict[int, set[int]] = {}
    rows = connection.execute(
        "SELECT c.lineage, c.base, h.data FROM calls c LEFT JOIN heads h ON h.call = c.id AND h.part IN ('progress', 'closing')"
    )
    for lineage, base, head in rows:
        ranges = json.loads(base) + ([] if head is None else json.loads(head).get("ranges", []))
        seen = found.setdefault(lineage, set())
        for first, last in ranges:
            seen.update(range(first, last + 1))
    return found


def _forget_messages(connection: Connection, seen: dict[int, set[int]]) -> None:
    rows = connection.execute("SELECT lineage, seq, max(seq) OVER (PARTITION BY lineage) FROM messages").fetchall()
    gone = [(lineage, seq) for lineage, seq, last in rows if seq != last and seq not in seen.get(lineage, ())]
    for lineage, seq in gone:
        connection.delete("messages", "lineage = ? AND seq = ?", lineage, seq)


def _sources(connection: Connection) -> set[int]:
    """Return the steps whose results are part of messages that are kept."""
    found: set[int] = set()
    for (data,) in connection.execute("SELECT data FROM messages"):
        form: Any = json.loads(data)
        if "step" in form:
            found.add(form["step"])
        found.update(block for block in form.get("blocks", ()) if isinstance(block, int))
    return found
