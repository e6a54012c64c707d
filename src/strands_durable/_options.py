"""What a `Durability` was told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ._policy import ModelInDoubt, ToolPolicy


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of a `Durability`, checked. Those of the root call hold for every call inside it."""

    path: Path
    execution_id: str | None
    on_drift: Literal["raise", "warn", "rerun"]
    on_failed: Literal["resume", "raise"]
    on_completed: Literal["return", "restart"]
    lease_seconds: float
    segment_turns: int
    busy_seconds: float
    model_in_doubt: ModelInDoubt = "retry"
    tool_policies: dict[str, ToolPolicy] = field(default_factory=dict)
