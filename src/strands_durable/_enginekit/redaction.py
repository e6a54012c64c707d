"""An execution without its contents: what ran when, for how long, how often and how it ended, for a bug report.

Kept are the id of the execution, statuses, phases, times, numbers of steps and tokens, and the names that come from code: of
agents, nodes, models, tags, exception classes, and of the tools that an agent has; a model may ask for others. Ids that models
and Strands make are numbered, see `redacted_keys`. Texts become their lengths, other values their types. The keys of objects
are contents too (a state may be keyed by customers): kept are those that Strands' messages and our own records always have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from .._records.exceptions import without_traceback
from .redacted_keys import Known, length

Row = dict[str, Any]

_COLUMNS = {
    "executions": "id execution_id kind status run created_at updated_at cancel_asked_at",
    "dispatches": "execution agent is_suspected is_alone deaths tries not_before",
    "tags": "execution name",
    "calls": "id execution run parent position kind member lineage state_of status attempt base config"
    " started_at taken_up_at ended_at",
    "failures": "rowid call attempt at",
    "answers": "call at",
    "replies": "call at",
    "steps": "id call attempt kind status config started_at ended_at usage loop number",
    "messages": "lineage seq",
    "heads": "call part version",
    "past_heads": "call part until since",
    "state": "call version",
    "past_state": "call until since",
    "configs": "id",
}
"""The columns that are kept as they are; what is in others is reduced to its shape, or left out."""
_LEFT_OUT = {"blobs": ("digest",), "configs": ("digest",), "dispatches": ("fingerprint",), "calls": ("input_hash",)}
"""Digests: a content that can be guessed could be verified with them."""
_NAME = re.compile(r"[A-Za-z_][\w.:]*")
_WORDS_OF_STRANDS = """
role content text toolUse toolResult toolUseId name input status json image document video source bytes format reasoningContent
reasoningText signature redactedContent guardContent cachePoint citationsContent metadata metrics usage inputTokens outputTokens
totalTokens cacheReadInputTokens cacheWriteInputTokens latencyMs timeToFirstByteMs tracking_id interruptResponse interruptId
response description inputSchema properties required type context activated
"""
_WORDS_OF_OURS = """
stop_reason message model_state result state invocation cancel tools rerun exception error interrupts id reason
structured_output last phase resume ordinal retry attempt waits cycles passes forced in_loop ranges step blocks block call over
time count model system_prompt kind model_id tool_names tool_schemas session_id nodes edges arguments invocation_state limits
trace accepted_drift request_state interrupt_state conversation_manager_state $ v n of
"""
_WORDS = frozenset(f"{_WORDS_OF_STRANDS} {_WORDS_OF_OURS}".split())
_VALUES = {
    "role": {"user", "assistant"},
    "status": {"success", "error", "pending", "executing", "completed", "failed", "interrupted", "cancelled"},
    "stop_reason": {"end_turn", "tool_use", "interrupt", "max_tokens", "guardrail_intervened", "content_filtered", "cancelled",
                    "stop_sequence", "pause_turn"},
    "phase": {"ready", "model", "tools", "waiting", "done", "failed"},
    "resume": {"ready", "model", "tools"},
    "kind": {"agent", "graph", "swarm"},
    "$": {"blob", "bytes", "bytearray"},
}  # fmt: skip
"""The texts that are kept under a key: words of a fixed vocabulary."""
_IDS = frozenset({"toolUseId", "interruptId", "id"})
_NAMED: dict[tuple[str, str], Callable[[Known, Row], str]] = {
    ("steps", "key"): Known.key_of,
    ("steps", "name"): Known.name_of,
    ("calls", "place"): lambda known, row: known.place(row["place"]),
    ("calls", "scope"): lambda known, row: known.scope(row),
    ("answers", "interrupt_id"): lambda known, row: known.ids[row["interrupt_id"]],
    ("replies", "interrupt_id"): lambda known, row: known.ids[row["interrupt_id"]],
}
"""The columns that hold ids and names of which some are contents."""
_COUNTS = frozenset({"progress", "closing"})
"""The parts of a head that hold numbers of ours."""


def redacted(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the rows of an execution without contents."""
    known = Known.of(rows)
    return {table: [_row(table, row, known) for row in found] for table, found in rows.items()}


def _row(table: str, row: Row, known: Known) -> Row:
    kept = _COLUMNS.get(table, "").split()
    found = {name: cell for name, cell in row.items() if name in kept}
    for name, cell in row.items():
        if name not in kept and name not in _LEFT_OUT.get(table, ()):
            found[name] = _cell(table, row, name, cell, known)
    return found


def _cell(table: str, row: Row, column: str, cell: Any, known: Known) -> Any:
    if (table, column) in _NAMED:
        return _NAMED[table, column](known, row)
    if table == "blobs":
        return {"bytes": len(cell["b"]) * 3 // 4 - cell["b"][-2:].count("=")}
    if table == "configs" and isinstance(cell, dict):
        return {**_shape(cell, known), **({"model": cell["model"]} if isinstance(cell.get("model"), str) else {})}
    if table == "messages" and isinstance(cell, dict) and "message" not in cell:
        return _source(cell, known)
    if column == "error" and isinstance(cell, dict):
        return {**_shape(without_traceback(cell), known), **_class_of(cell)}
    if table in ("heads", "past_heads") and row.get("part") in _COUNTS:
        return _shape(cell, known, counts=True)
    return _shape(_parsed(cell), known)


def _source(form: Row, known: Known) -> Row:
    """Return the form of a message that names the steps or the input that it came from."""
    found = _shape(form, known)
    numbers = {name: item for name, item in form.items() if name in ("step", "input") and type(item) is int}
    blocks = [item if type(item) is int else _shape(item, known) for item in form.get("blocks") or ()]
    return {**found, **numbers, **({"blocks": blocks} if blocks else {})}


def _class_of(error: Row) -> Row:
    """Return the class of a recorded exception."""
    found = error.get("type")
    return {"type": found} if isinstance(found, str) and _NAME.fullmatch(found) else {}


def _parsed(cell: Any) -> Any:
    """Return the value of a recorded form that is no object and no list."""
    try:
        return json.loads(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell


def _shape(value: Any, known: Known, key: str = "", *, counts: bool = False) -> Any:
    """Return what is known of a value without its contents; with ``counts``, numbers are ours and are kept."""
    if isinstance(value, dict):
        if value.get("$") == "blob":
            return {"$": "blob", "n": value["n"] if type(value.get("n")) is int else None}
        return _object(value, known, counts=counts)
    if isinstance(value, list):
        return [_shape(item, known, key, counts=counts) for item in value]
    if isinstance(value, str):
        if key in _IDS and value in known.ids:
            return known.ids[value]
        is_word = value in _VALUES.get(key, ()) or (key in ("name", "tool_names") and value in known.names)
        return value if is_word else length(value)
    if value is None or counts:
        return value
    return f"<{type(value).__name__}>"


def _object(value: Row, known: Known, *, counts: bool) -> Row:
    found: Row = {}
    for number, (key, item) in enumerate(value.items(), 1):
        is_name = key in _WORDS or key in known.names
        found[key if is_name else f"<key {number}>"] = _shape(item, known, key, counts=counts)
    return found
