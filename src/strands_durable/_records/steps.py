"""A recorded step, as plain frozen data: one attempt of a model call, tool call, node or side effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_LOOP = ("leg", "cycle", "latencyMs", "runs")


StepKind = Literal["model", "tool", "effect", "node"]


StepStatus = Literal["started", "done", "failed", "interrupted", "unstorable", "discarded"]
"""started: no result yet, in doubt if its owner is gone. failed: an attempt that ended in an error and may be followed by
another. interrupted: waits for a person. unstorable: it ran, but its result has no recorded form. discarded: a model answer
dropped after a change of the agent."""


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


def split_usage(recorded: dict[str, int] | None) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """Return usage and loop of a step that was recorded before format 5, when both were one."""
    if recorded is None:
        return None, None
    usage = {name: count for name, count in recorded.items() if name not in _LOOP}
    loop = {name: count for name, count in recorded.items() if name in _LOOP}
    return usage or None, loop or None


def shown_result(kind: StepKind, recorded: Any) -> Any:
    """Return a step's result, without the state changes that are recorded beside a tool's result."""
    return recorded.get("result", recorded) if kind == "tool" and isinstance(recorded, dict) else recorded
