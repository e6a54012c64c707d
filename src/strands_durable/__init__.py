"""Durable execution for Strands agents: kill the process anywhere, run it again, it goes on exactly there."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import durable, errors
    from ._context import CurrentStep, current_step
    from ._durability import Durability
    from ._policy import DoubtfulStep, ToolPolicy, policy
    from ._records import ExecutionStatus

__all__ = [
    "CurrentStep",
    "DoubtfulStep",
    "Durability",
    "ExecutionStatus",
    "ToolPolicy",
    "current_step",
    "durable",
    "errors",
    "policy",
]
__version__ = "0.1.0"

# Looked up on first use: `strands-durable ls` must not pay for importing strands.
_HOMES = {
    "CurrentStep": "._context",
    "DoubtfulStep": "._policy",
    "Durability": "._durability",
    "ExecutionStatus": "._records",
    "ToolPolicy": "._policy",
    "current_step": "._context",
    "durable": ".durable",
    "errors": ".errors",
    "policy": "._policy",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name], __name__)
    return module if _HOMES[name] == f".{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
