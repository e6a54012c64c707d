"""Says once that an agent or orchestrator which code in a step calls is part of that step, as it cannot be attached."""

from __future__ import annotations

from .._calls.context import StepContext
from .._records.logs import safe_logger

logger = safe_logger(__name__)


def say(step_context: StepContext, name: str, reason: str) -> None:
    """Warn, once for each tool or hook and reason in an execution here."""
    call = step_context.call
    known = (step_context.kind, step_context.name, name, reason)
    if known in call.local.said:
        return
    call.local.said.add(known)
    logger.warning(
        "execution_id=<%s>, %s=<%s>, agent=<%s>, reason=<%s> | the agent that it calls is part of the step: after a crash "
        "inside, all of it runs again",
        call.execution_id, step_context.kind, step_context.name, name, reason,
    )  # fmt: skip
