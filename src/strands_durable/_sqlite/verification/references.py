"""What rows say of each other: that a row they refer to is there, how many there are, and how far each call has come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..._records.codec import digest as digest_of
from ..._records.executions import ExecutionStatus
from ..._records.phases import STATUS
from ..._records.verification import Problem
from ..checksums import KEPT
from ..connection import Connection
from ..encryption.sealing import config_name, is_sealed
from ..tables import tables
from .index import Index, Known

_OF_CALLS = ("failures", "answers", "replies", "chunks", "heads", "state", "past_heads", "past_state", "steps")
_OF_EXECUTIONS = ("dispatches", "tags", "notices", "holds", "emptied")
_OPEN = ("PENDING", "RUNNING", "SUSPENDED")
_STATUSES = {status.value for status in ExecutionStatus}
_VERSIONED = 5
"""The first format with past heads."""


def wrong_references(connection: Connection, index: Index, version: int) -> Iterator[Problem]:
    """Yield references to rows that are not there."""
    known = tables(version)
    for table in (name for name in _OF_CALLS if name in known):
        query = f"SELECT DISTINCT call FROM {table} WHERE call NOT IN (SELECT id FROM calls)"
        for (call_id,) in connection.execute(query):
            yield Problem(
                check="reference", text=f"rows of {table!r} belong to call {call_id}, which is not there", table=table
            )
    for table in (name for name in _OF_EXECUTIONS if name in known):
        query = f"SELECT DISTINCT execution FROM {table} WHERE execution NOT IN (SELECT id FROM executions)"
        for (row_id,) in connection.execute(query):
            text = f"rows of {table!r} belong to execution {row_id}, which is not there"
            yield Problem(check="reference", text=text, table=table)
    yield from _of_calls(connection, index)
    yield from _of_messages(connection, index)
    if not index.is_locked:
        yield from _of_configs(connection, index)
    yield from _of_the_file(connection, index)


def _of_calls(connection: Connection, index: Index) -> Iterator[Problem]:
    for call_id, call in index.calls.items():
        cells, execution_id = call.cells, index.id_of(call.execution)
        if call.execution in index.removed:  # some of what it refers to may be deleted by now
            continue
        if call.execution not in index.executions:
            text = f"call {call_id} belongs to execution {call.execution}, which is not there"
            yield Problem(check="reference", text=text, table="calls")
        wanted = {name: cells[name] for name in ("parent", "lineage", "state_of") if cells[name]}
        for name, other in wanted.items():
            if other not in index.calls:
                text = f"call {call_id} refers to call {other} as its {name}, which is not there"
                yield Problem(check="reference", text=text, table="calls", execution_id=execution_id)
        if cells["config"] and cells["config"] not in index.configs:  # 0: it was dispatched, and has not begun
            text = f"what the agent of call {call_id} was made of is not there"
            yield Problem(check="reference", text=text, table="configs", execution_id=execution_id)


def _of_configs(connection: Connection, index: Index) -> Iterator[Problem]:
    """Yield what agents were made of and is recorded under the digest of something else: others would share it."""
    for row_id, (recorded, data) in index.configs.items():
        found = _json(data)
        if isinstance(found, dict) and config_name(connection, digest_of(found)) != recorded:
            text = f"what an agent was made of ({row_id}) is not what its digest was made of"
            yield Problem(check="reference", text=text, table="configs")


def _of_messages(connection: Connection, index: Index) -> Iterator[Problem]:
    """Yield messages in sight of a call that are not there, and steps that messages refer to and that are not there."""
    for call_id, call in index.calls.items():
        if call.execution in index.removed:
            continue
        ranges = [*_ranges(_json(call.cells["base"]))]
        for data in index.heads.get(call_id, {}).values():
            ranges += _ranges(_json(data).get("ranges") if isinstance(_json(data), dict) else None)
        for first, last in dict.fromkeys(ranges):
            count = "SELECT count(*) FROM messages WHERE lineage = ? AND seq BETWEEN ? AND ?"
            (found,) = connection.execute(count, (call.cells["lineage"], first, last)).fetchone()
            if found != last - first + 1:
                text = f"messages {first} to {last} of call {call_id} are not all there"
                yield Problem(check="reference", text=text, table="messages", execution_id=index.id_of(call.execution))
    for lineage, steps in index.cited.items():
        execution = index.execution_of("messages", {"lineage": lineage})
        missing = sorted(steps - index.steps)
        if missing and execution not in index.removed:
            text = f"messages of call {lineage} refer to steps that are not there: {_listed(missing)}"
            yield Problem(check="reference", text=text, table="steps", execution_id=index.id_of(execution))


def _of_the_file(connection: Connection, index: Index) -> Iterator[Problem]:
    key = connection.execute("SELECT value FROM secrets WHERE name = 'hash_key'").fetchone()
    if key is None or not isinstance(key[0], str) or not (len(key[0]) == 64 or is_sealed(key[0])):
        yield Problem(check="reference", text="the key that inputs are compared with is not there", table="secrets")
    (last,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'executions'").fetchone()
    if index.executions and not (isinstance(last, int) and last >= max(index.executions)):
        yield Problem(check="count", text="the number of the last execution is not recorded", table="sqlite_sequence")


def wrong_counts(connection: Connection, index: Index, version: int) -> Iterator[Problem]:
    """Yield recorded numbers of rows that are not right, and columns without a checksum that hold no such value."""
    counts = " + ".join(f"(SELECT count(*) FROM {table} WHERE call = calls.id)" for table in KEPT)
    query = f"SELECT id, execution, kept, {counts} AS found FROM calls WHERE kept != found"
    for call_id, execution, kept, found in connection.execute(query):
        if execution not in index.removed:
            text = f"call {call_id} has {found} rows, and {kept} are recorded"
            yield Problem(check="count", text=text, table="calls", execution_id=index.id_of(execution))
    recorded = dict(connection.execute("SELECT digest, number FROM uses"))
    for digest in sorted(recorded.keys() | index.uses.keys(), key=str):
        if recorded.get(digest) != index.uses.get(digest):
            there, found = recorded.get(digest, 0), index.uses.get(digest, 0)
            text = f"{found} rows refer to the bytes {str(digest)[:12]}, and {there} are recorded"
            yield Problem(check="count", text=text, table="uses")
    query = (
        "SELECT id FROM executions WHERE typeof(fence) != 'integer' OR typeof(beat) != 'integer'"
        " OR typeof(lease_until) != 'real' OR typeof(lease_seconds) != 'real' OR typeof(listened_until) != 'real'"
        " OR (owner IS NOT NULL AND (typeof(owner) != 'text' OR NOT json_valid(owner)))"
    )
    for (row_id,) in connection.execute(query):
        text = "its owner or its lease is no such value"
        yield Problem(check="count", text=text, table="executions", execution_id=index.id_of(row_id))
    if version >= _VERSIONED:
        yield from _wrong_versions(connection, index)


def _wrong_versions(connection: Connection, index: Index) -> Iterator[Problem]:
    for table, past, name in (("heads", "past_heads", "part"), ("state", "past_state", "key")):
        query = f"""SELECT t.call FROM {table} t WHERE typeof(t.version) != 'integer' OR t.version < 0
            OR t.version < (SELECT max(p.until) FROM {past} p WHERE p.call = t.call AND p.{name} = t.{name})"""
        for (call_id,) in connection.execute(query):
            text = f"the version of a row of call {call_id} is before its past"
            execution_id = index.id_of(index.execution_of(table, {"call": call_id}))
            yield Problem(check="count", text=text, table=table, execution_id=execution_id)


def wrong_phases(connection: Connection, index: Index, version: int) -> Iterator[Problem]:
    """Yield calls whose status is not that of their head, and executions whose status is not that of their calls."""
    if not index.is_locked:
        yield from _calls(index)
    yield from _executions(index)


def _calls(index: Index) -> Iterator[Problem]:
    phases = {}
    for call_id, parts in index.heads.items():
        if "progress" in parts:
            progress = _json(parts["progress"])
            phases[call_id] = progress.get("phase", "ready") if isinstance(progress, dict) else None
    for call_id, call in index.calls.items():
        if call.execution in index.removed:
            continue
        wrong = _phase(call, phases.get(call_id, ""))
        if wrong is not None:
            text, execution_id = f"call {call_id} {wrong}", index.id_of(call.execution)
            yield Problem(check="phase", text=text, table="calls", execution_id=execution_id)


def _phase(call: Known, phase: Any) -> str | None:
    """Return what is wrong with the status of a call; None if its head agrees."""
    if call.status not in _STATUSES:
        return f"has the status {call.status!r}, which does not exist"
    if phase == "":
        return None if call.status in ("PENDING", "CANCELLED") else f"is {call.status}, and has no head"
    if phase not in STATUS:
        return f"has the phase {phase!r}, which does not exist"
    ends = {"done": "COMPLETED", "waiting": "SUSPENDED"}
    of_status = {status: name for name, status in ends.items()}
    if phase == "done" and call.status != "COMPLETED":
        return f"is {call.status}, and its head is done"
    if call.status in of_status and of_status[call.status] != phase:
        return f"is {call.status}, and its head is in the phase {phase!r}"
    return None


def _executions(index: Index) -> Iterator[Problem]:
    last: dict[int, Known] = {}
    open_ones: set[int] = set()
    for call in index.calls.values():
        known = index.executions.get(call.execution)
        if known is None or call.cells["run"] != known.cells["run"]:
            continue
        if call.status in _OPEN:
            open_ones.add(call.execution)
        before = last.get(call.execution)
        if call.cells["parent"] == 0 and (before is None or _later(call, before)):
            last[call.execution] = call
    for row_id, known in index.executions.items():
        wrong = _status(known.status, last.get(row_id), row_id in open_ones)
        if wrong is not None:
            yield Problem(check="phase", text=wrong, table="executions", execution_id=index.id_of(row_id))


def _later(call: Known, before: Known) -> bool:
    here, there = call.cells["position"], before.cells["position"]
    return isinstance(here, int) and isinstance(there, int) and here > there


def _status(status: Any, last: Known | None, is_open: bool) -> str | None:
    """Return what is wrong with the status of an execution; None if its calls agree."""
    if status not in _STATUSES:
        return f"its status {status!r} does not exist"
    if status == "CANCELLED":
        return "it is CANCELLED, and one of its calls has not ended" if is_open else None
    if last is None or status == "PENDING":
        return None  # not begun, or queued again: a call that waits or has failed is resumed
    return None if last.status == status else f"it is {status}, and its last call is {last.status}"


def _ranges(found: Any) -> Iterator[tuple[int, int]]:
    for each in found if isinstance(found, list) else ():
        if isinstance(each, list) and len(each) == 2 and all(isinstance(number, int) for number in each):
            yield each[0], each[1]


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
