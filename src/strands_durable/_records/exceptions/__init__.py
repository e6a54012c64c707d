"""Exceptions as data: recorded with type, text, cause and traceback, and restored as the same type with the same text.

A class is looked up only in modules that are already imported: a record never makes Python run code. If the class is not
found, `RecordedError` replaces it, with the same text.
"""

from __future__ import annotations

import sys
from typing import Any

from ...errors import DurableError
from ..codec import encodable
from .tracebacks import text_of, traceback_of

_MAX_CAUSES = 8
TRACEBACK = "traceback"
"""A key of a recorded exception: where it and its causes were raised. Records of earlier versions do not have it."""

RENAMED = {
    "strands_durable._failure:RecordedError": "strands_durable._records.exceptions:RecordedError",
    "strands_durable._files:AgentFileError": "strands_durable._dispatch.agent_files:AgentFileError",
    "strands_durable._journal.lease:ExecutionReleasedError": "strands_durable._calls.control:ExecutionReleasedError",
    "strands_durable._journal.sqlite.checksums:DamageError": "strands_durable._sqlite.checksums:DamageError",
    "strands_durable._keyboard:Interrupted": "strands_durable._execution.keyboard_interrupt:Interrupted",
    "strands_durable._lease:Released": "strands_durable._calls.control:ExecutionReleasedError",
    "strands_durable._phases:PhaseError": "strands_durable._records.phases:PhaseError",
    "strands_durable._root:AgentBusyError": "strands_durable._execution.entry:AgentBusyError",
    "strands_durable._sums:DamageError": "strands_durable._sqlite.checksums:DamageError",
    **{
        f"strands_durable.backends.temporal._durability:{name}": f"strands_durable.backends.temporal._inside_workflow:{name}"
        for name in ("WorkflowAgentFailedError", "WorkflowAgentCancelledError", "WorkflowAgentRefusedError")
    },
}
"""Our own classes by the names in records of earlier versions, and where they are now. Add to it, but never remove."""


class RecordedError(DurableError):
    """Replaces a recorded exception whose class is not available in this process."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(type_name, text)
        self.type_name, self.text = type_name, text

    def __str__(self) -> str:
        return self.text


def describe(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """Return the recorded form of ``error``."""
    kind = type(error)
    record: dict[str, Any] = {"type": f"{kind.__module__}:{kind.__qualname__}", "text": text_of(error)}
    if encodable(error.args):
        record["args"] = list(error.args)
    attributes = {name: _describe_attribute(value, depth) for name, value in vars(error).items()}
    record["attributes"] = {name: value for name, value in attributes.items() if value is not None}
    if error.__cause__ is not None and depth < _MAX_CAUSES:
        record["cause"] = describe(error.__cause__, depth + 1)
    if depth == 0 and (traceback := traceback_of(error)) is not None:
        record[TRACEBACK] = traceback
    return record


def without_traceback(record: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded form of an exception without its traceback, which is for people."""
    return {name: value for name, value in record.items() if name != TRACEBACK}


def revive(record: dict[str, Any]) -> Exception:
    """Return the exception that ``record`` describes."""
    error = _instance(record)
    for name, value in record.get("attributes", {}).items():
        setattr(error, name, revive(value["error"]) if "error" in value else value["value"])
    if "cause" in record:
        error.__cause__ = revive(record["cause"])
    if text_of(error) != record["text"]:
        return RecordedError(record["type"].replace(":", "."), record["text"])
    return error


def summary(record: dict[str, Any]) -> str:
    """Return one line for people: the type's name and the text."""
    return f"{record['type'].rpartition(':')[2]}: {record['text']}"


def _describe_attribute(value: Any, depth: int) -> dict[str, Any] | None:
    if isinstance(value, BaseException):
        return {"error": describe(value, depth + 1)} if depth < _MAX_CAUSES else None
    return {"value": value} if encodable(value) else None


def _instance(record: dict[str, Any]) -> Exception:
    module, _, qualname = RENAMED.get(record["type"], record["type"]).partition(":")
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)) or "args" not in record:
        return RecordedError(f"{module}.{qualname}", record["text"])
    try:
        error = found.__new__(found, *record["args"])
    except TypeError:
        return RecordedError(f"{module}.{qualname}", record["text"])
    error.args = tuple(record["args"])
    return error
