"""An execution without its contents: what ran when, for how long, how often and how it ended, for a bug report.

Kept are ids, keys, statuses, phases, times, numbers of steps and tokens, and the names that come from code: of agents, nodes,
models, tools, tags and exception classes. Texts become their lengths, other values their types. The keys of objects are
contents too (a state may be keyed by customers): only those are kept that Strands' messages and our own records always have.
"""

from __future__ import annotations

import json
import re
from typing import Any

Row = dict[str, Any]

_COLUMNS = {
    "executions": "id execution_id kind status run created_at updated_at cancel_asked_at",
    "dispatches": "execution agent is_suspected is_alone deaths tries not_before",
    "tags": "execution name",
    "calls": "id execution run parent place position kind member scope lineage state_of status attempt base config"
    " started_at taken_up_at ended_at",
    "failures": "rowid call attempt at",
    "answers": "call interrupt_id at",
    "replies": "call interrupt_id at",
    "steps": "id call key attempt kind name status config started_at ended_at usage loop number",
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
_DIGEST = re.compile(r"aux\.[0-9a-f]+")
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
_COUNTS = frozenset({"progress", "closing"})
"""The parts of a head that hold numbers of ours."""


def redacted(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the rows of an execution without contents."""
    names = _names_in(rows)
    return {table: [_row(table, row, names) for row in found] for table, found in rows.items()}


def _names_in(rows: dict[str, list[Row]]) -> frozenset[str]:
    """Return the names of tools and nodes: those that ran, and those that agents have."""
    found = {row["name"] for row in rows.get("steps", ()) if row.get("kind") in ("tool", "node")}
    for row in rows.get("configs", ()):
        tools = row["data"].get("tools") if isinstance(row["data"], dict) else None
        found.update(tools if isinstance(tools, dict) else ())
    return frozenset(name for name in found if isinstance(name, str))


def _row(table: str, row: Row, names: frozenset[str]) -> Row:
    kept = _COLUMNS.get(table, "").split()
    found = {name: _kept(cell) for name, cell in row.items() if name in kept}
    for name, cell in row.items():
        if name not in kept and name not in _LEFT_OUT.get(table, ()):
            found[name] = _cell(table, row, name, cell, names)
    return found


def _kept(cell: Any) -> Any:
    return _DIGEST.sub("aux", cell) if isinstance(cell, str) else cell


def _cell(table: str, row: Row, column: str, cell: Any, names: frozenset[str]) -> Any:
    if table == "blobs":
        return {"bytes": len(cell["b"]) * 3 // 4 - cell["b"][-2:].count("=")}
    if table == "configs" and isinstance(cell, dict):
        return {**_shape(cell, names), **({"model": cell["model"]} if isinstance(cell.get("model"), str) else {})}
    if table == "messages" and isinstance(cell, dict) and "message" not in cell:
        return _source(cell, names)
    if column == "error" and isinstance(cell, dict):
        return {**_shape(cell, names), **_class_of(cell)}
    if table in ("heads", "past_heads") and row.get("part") in _COUNTS:
        return _shape(cell, names, counts=True)
    return _shape(_parsed(cell), names)


def _source(form: Row, names: frozenset[str]) -> Row:
    """Return the form of a message that names the steps or the input that it came from."""
    found = _shape(form, names)
    numbers = {name: item for name, item in form.items() if name in ("step", "input") and type(item) is int}
    blocks = [item if type(item) is int else _shape(item, names) for item in form.get("blocks") or ()]
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


def _shape(value: Any, names: frozenset[str], key: str = "", *, counts: bool = False) -> Any:
    """Return what is known of a value without its contents; with ``counts``, numbers are ours and are kept."""
    if isinstance(value, dict):
        if value.get("$") == "blob":
            return {"$": "blob", "n": value.get("n")}
        return _object(value, names, counts=counts)
    if isinstance(value, list):
        return [_shape(item, names, key, counts=counts) for item in value]
    if isinstance(value, str):
        is_word = value in _VALUES.get(key, ()) or (key in ("name", "tool_names") and value in names)
        return value if is_word else f"<{len(value)} characters>"
    if value is None or counts:
        return value
    return f"<{type(value).__name__}>"


def _object(value: Row, names: frozenset[str], *, counts: bool) -> Row:
    found: Row = {}
    for number, (key, item) in enumerate(value.items(), 1):
        is_name = key in _WORDS or key in names
        found[key if is_name else f"<key {number}>"] = _shape(item, names, key, counts=counts)
    return found
