"""Durable execution for Strands agents: kill the process anywhere, run it again, it goes on exactly there."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import durable, errors
    from ._connect import connect
    from ._context import CurrentStep, current_step
    from ._durability import Durability
    from ._handle import DurableBackend, ExecutionHandle, StreamEvent
    from ._policy import DoubtfulStep, FailedAttempt, ToolPolicy, policy
    from ._records import ExecutionRecord, ExecutionStatus
    from ._registry import DurableAgent, durable_agent
    from ._result import ExecutionResult, NodeOutcome, OpenInterrupt
    from ._spec import AgentSpec
    from ._summaries import CallSummary, ExecutionDetail, StepSummary
    from ._sync import SyncBackend, SyncHandle
    from ._types import register_type

__all__ = [
    "AgentSpec",
    "CallSummary",
    "CurrentStep",
    "DoubtfulStep",
    "Durability",
    "DurableAgent",
    "DurableBackend",
    "ExecutionDetail",
    "ExecutionHandle",
    "ExecutionRecord",
    "ExecutionResult",
    "ExecutionStatus",
    "FailedAttempt",
    "NodeOutcome",
    "OpenInterrupt",
    "StepSummary",
    "StreamEvent",
    "SyncBackend",
    "SyncHandle",
    "ToolPolicy",
    "connect",
    "current_step",
    "durable",
    "durable_agent",
    "errors",
    "policy",
    "register_type",
]
__version__ = "0.1.0"

# Looked up on first use: `strands-durable ls` must not pay for importing strands.
_HOMES = {
    "AgentSpec": "._spec",
    "CallSummary": "._summaries",
    "CurrentStep": "._context",
    "DoubtfulStep": "._policy",
    "Durability": "._durability",
    "DurableAgent": "._registry",
    "DurableBackend": "._handle",
    "ExecutionDetail": "._summaries",
    "ExecutionHandle": "._handle",
    "ExecutionRecord": "._records",
    "ExecutionResult": "._result",
    "ExecutionStatus": "._records",
    "FailedAttempt": "._policy",
    "NodeOutcome": "._result",
    "OpenInterrupt": "._result",
    "StepSummary": "._summaries",
    "StreamEvent": "._handle",
    "SyncBackend": "._sync",
    "SyncHandle": "._sync",
    "ToolPolicy": "._policy",
    "connect": "._connect",
    "current_step": "._context",
    "durable": ".durable",
    "durable_agent": "._registry",
    "errors": ".errors",
    "policy": "._policy",
    "register_type": "._types",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name], __name__)
    return module if _HOMES[name] == f".{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
