"""The options of a `Durability`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .cipher import Cipher
from .policy import ModelInDoubt, ToolPolicy
from .step_player import StepPlayer

OnDrift = Literal["raise", "warn", "rerun"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of a `Durability`, checked. Those of the root call apply to every call inside it."""

    path: Path
    execution_id: str | None
    on_drift: OnDrift = "raise"
    on_failed: Literal["resume", "raise"] = "resume"
    on_completed: Literal["return", "restart"] = "return"
    lease_seconds: float = 10.0
    segment_turns: int = 20
    busy_seconds: float = 10.0
    model_in_doubt: ModelInDoubt = "retry"
    tool_policies: dict[str, ToolPolicy] = field(default_factory=dict)
    replay_events: bool = False
    """Whether streams begin with what is recorded."""
    tags: dict[str, str] = field(default_factory=dict)
    player: StepPlayer | None = None
    """What is asked for the outcome of each step, in place of running it."""
    cipher: Cipher | None = None

    def __post_init__(self) -> None:
        check("on_drift", self.on_drift, "raise", "warn", "rerun")
        check("on_failed", self.on_failed, "resume", "raise")
        check("on_completed", self.on_completed, "return", "restart")
        check("model_in_doubt", self.model_in_doubt, "retry", "ask", "fail")
        if self.lease_seconds <= 0 or self.busy_seconds <= 0 or self.segment_turns < 1:
            raise ValueError("lease_seconds, busy_seconds and segment_turns must be positive")


def check(name: str, value: str, *allowed: str) -> None:
    """Raise if an option has a value that is not allowed."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: use one of {', '.join(map(repr, allowed))}")
