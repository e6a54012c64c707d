"""A recorded step, as plain frozen data: one attempt of a model call, tool call, node or side effect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

_LOOP = ("leg", "cycle", "latencyMs", "runs")


StepKind = Literal["model", "tool", "effect", "node"]


StepStatus = Literal["started", "done", "failed", "interrupted", "unstorable", "discarded"]
"""started: no result yet, in doubt if its owner is gone. failed: an attempt that ended in an error and may be followed by
another. interrupted: waits for a person. unstorable: it ran, but its result has no recorded form. discarded: a model answer
dropped after a change of the agent."""

ShownStatus = Literal["started", "done", "error", "failed", "interrupted", "unstorable", "discarded"]
"""A status as everything outside of a store names it. error: a tool call that ended in an error, which the model got as its
result; a store has it as ``done`` with an error."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One attempt of one step."""

    step_id: int
    key: str
    attempt: int
    kind: StepKind
    name: str
    status: StepStatus
    title: str = ""
    result: Any = None
    error: Any = None
    usage: dict[str, int] | None = None
    """What it cost, as the provider says."""
    config_id: int | None = None
    started_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True)
class StepEnd:
    """How a step ended, in recorded forms."""

    status: StepStatus
    result: str | None = None
    error: Any = None
    usage: dict[str, int] | None = None
    """What it cost, as the provider says."""
    loop: dict[str, int] | None = None
    """Of a model step: its place in the loop, and how long it took. Of a tool step: that the tool itself did not run."""


@dataclass(frozen=True, kw_only=True)
class FinishedTool:
    """A tool call that has succeeded, without its result."""

    step_id: int
    call_id: int
    key: str
    name: str


def split_usage(recorded: dict[str, int] | None) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """Return usage and loop of a step that was recorded before format 5, when both were one."""
    if recorded is None:
        return None, None
    usage = {name: count for name, count in recorded.items() if name not in _LOOP}
    loop = {name: count for name, count in recorded.items() if name in _LOOP}
    return usage or None, loop or None


def shown_status(status: StepStatus, *, has_error: bool) -> ShownStatus:
    """Return the status of a step as it is named outside of a store."""
    return "error" if status == "done" and has_error else status


def shown_result(kind: StepKind, recorded: Any) -> Any:
    """Return a step's result, without the state changes that are recorded beside a tool's result."""
    return recorded.get("result", recorded) if kind == "tool" and isinstance(recorded, dict) else recorded


def shown_changes(kind: StepKind, recorded: Any) -> dict[str, Any] | None:
    """Return what a tool changed in the state of its agent and in the invocation state; None if it changed nothing."""
    if kind != "tool" or not isinstance(recorded, dict):
        return None
    written = recorded.get("state") or {}
    agent = [([name], *(() if value is None else (json.loads(value),))) for name, value in written.items()]
    parts = {"state": _changes(agent), "invocation_state": _changes(recorded.get("invocation") or [])}
    return {name: part for name, part in parts.items() if part} or None


def _changes(changes: list[Any]) -> dict[str, Any]:
    """Return changes by their path: keys with a dot between them."""
    paths = [(".".join(map(str, path)), value) for path, *value in changes]
    found = {
        "set": {path: value[0] for path, value in paths if value},
        "deleted": [path for path, value in paths if not value],
    }
    return {name: part for name, part in found.items() if part}
