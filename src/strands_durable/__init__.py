"""Durable execution for Strands agents: kill the process anywhere, run it again, and it resumes exactly there."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import durable, errors
    from ._calls.context import CurrentStep, current_step
    from ._dispatch.connect import connect
    from ._dispatch.handles import ExecutionHandle
    from ._dispatch.notifications.webhooks import Webhook
    from ._dispatch.observe import observe
    from ._dispatch.ports import DurableBackend
    from ._dispatch.registry import DurableAgent, durable_agent
    from ._dispatch.sync import SyncBackend, SyncHandle
    from ._plugin.durability import Durability
    from ._records.cipher import Cipher, KeyService
    from ._records.executions import ExecutionRecord, ExecutionStatus, StatusCount, TokenUsage
    from ._records.findings import Finding
    from ._records.notifications import Notification
    from ._records.origins import ForkPoint, Origin
    from ._records.policy import DoubtfulStep, FailedAttempt, ToolPolicy, policy
    from ._records.registered_types import register_type
    from ._records.rekeyed import Rekeyed
    from ._records.results import ExecutionResult, NodeOutcome, OpenInterrupt, StreamEvent
    from ._records.retention import Pruned, Retention
    from ._records.spec import AgentSpec
    from ._records.verification import DamagedExecution, Problem, Verification
    from ._records.views import CallSummary, ExecutionDetail, OpenQuestion, StepSummary

__all__ = [
    "AgentSpec",
    "CallSummary",
    "Cipher",
    "CurrentStep",
    "DamagedExecution",
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
    "Finding",
    "ForkPoint",
    "KeyService",
    "NodeOutcome",
    "Notification",
    "OpenInterrupt",
    "OpenQuestion",
    "Origin",
    "Problem",
    "Pruned",
    "Rekeyed",
    "Retention",
    "StatusCount",
    "StepSummary",
    "StreamEvent",
    "SyncBackend",
    "SyncHandle",
    "TokenUsage",
    "ToolPolicy",
    "Verification",
    "Webhook",
    "connect",
    "current_step",
    "durable",
    "durable_agent",
    "errors",
    "observe",
    "policy",
    "register_type",
]
__version__ = "0.1.0"

# Imported on first use: `strands-durable ls` must not pay for importing strands.
_HOMES = {
    "AgentSpec": "._records.spec",
    "CallSummary": "._records.views",
    "Cipher": "._records.cipher",
    "CurrentStep": "._calls.context",
    "DamagedExecution": "._records.verification",
    "DoubtfulStep": "._records.policy",
    "Durability": "._plugin.durability",
    "DurableAgent": "._dispatch.registry",
    "DurableBackend": "._dispatch.ports",
    "ExecutionDetail": "._records.views",
    "ExecutionHandle": "._dispatch.handles",
    "ExecutionRecord": "._records.executions",
    "ExecutionResult": "._records.results",
    "ExecutionStatus": "._records.executions",
    "FailedAttempt": "._records.policy",
    "Finding": "._records.findings",
    "ForkPoint": "._records.origins",
    "KeyService": "._records.cipher",
    "NodeOutcome": "._records.results",
    "Notification": "._records.notifications",
    "OpenInterrupt": "._records.results",
    "OpenQuestion": "._records.views",
    "Origin": "._records.origins",
    "Problem": "._records.verification",
    "Pruned": "._records.retention",
    "Rekeyed": "._records.rekeyed",
    "Retention": "._records.retention",
    "StatusCount": "._records.executions",
    "StepSummary": "._records.views",
    "StreamEvent": "._records.results",
    "SyncBackend": "._dispatch.sync",
    "SyncHandle": "._dispatch.sync",
    "TokenUsage": "._records.executions",
    "ToolPolicy": "._records.policy",
    "Verification": "._records.verification",
    "Webhook": "._dispatch.notifications.webhooks",
    "connect": "._dispatch.connect",
    "current_step": "._calls.context",
    "durable": ".durable",
    "durable_agent": "._dispatch.registry",
    "errors": ".errors",
    "observe": "._dispatch.observe",
    "policy": "._records.policy",
    "register_type": "._records.registered_types",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name], __name__)
    return module if _HOMES[name] == f".{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
