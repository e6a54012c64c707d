"""Retries of a tool call: which error results are tried again, and the wait before each retry.

The attempt that failed is on record before the wait begins, with its time: a process that resumes waits for the rest. Other
tools of the same answer run meanwhile. Where an engine gives out turns, a wait of a second or more is a timer of its own.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .._calls.agent_call import Call
from .._calls.context import enclosing_steps
from .._calls.durable_call import journal_guard
from .._calls.tool_steps import ToolRequest
from .._records.logs import safe_logger
from .._records.outcomes import ToolOutcome
from .._records.policy import FailedAttempt, ToolPolicy
from .._records.steps import StepRecord
from .._strands.agents import cancel_flags
from .in_doubt import tool_result, unknown

logger = safe_logger(__name__)

_LOOK_SECONDS = 0.1
"""How soon a cancel ends a wait."""
_SHORT_SECONDS = 1.0
"""Shorter waits are not worth a timer of an engine."""


def is_tried_again(
    policy: ToolPolicy, request: ToolRequest, attempt: int, errors: int, result: Any, exception: Exception | None
) -> bool:
    """Say whether a result is an error that the policy has another attempt for, after so many earlier errors."""
    if result.get("status") != "error" or errors >= policy.retries:
        return False
    failed = FailedAttempt(tool=request.name, input=request.input, result=result, exception=exception, attempt=attempt)
    try:
        return policy.repeats(failed)
    except Exception as error:
        logger.warning(
            "tool=<%s>, attempt=<%d>, error=<%r> | retry_on raised, the error result stays",
            request.name,
            attempt,
            error,
        )
        return False


async def wait_for_retry(
    call: Call, policy: ToolPolicy, request: ToolRequest, last: StepRecord, retry: int
) -> ToolOutcome | None:
    """Return when the how many-th retry is due; if the agent is cancelled before, with what its last attempt gave."""
    seconds = policy.wait_before(retry)
    if last.ended_at is not None:
        seconds = min(seconds, last.ended_at + seconds - time.time())
    if seconds <= 0:
        return None
    logger.info(
        "execution_id=<%s>, tool=<%s>, attempt=<%d>, seconds=<%.1f> | waiting before the next attempt",
        call.execution_id, request.name, last.attempt, seconds,
    )  # fmt: skip
    with journal_guard(call):
        if await _has_waited(call, seconds, f"retry {request.name}"):
            return None
        outcome = ToolOutcome(result=tool_result(request, unknown(request, policy.timeout)))
        if last.status == "failed":
            outcome = ToolOutcome.from_json(last.result)
        return call.tools.finish(request, None, last.attempt + 1, outcome)


async def _has_waited(call: Call, seconds: float, what: str) -> bool:
    """Wait; return False if the agent is cancelled meanwhile, and unwind if nothing more may start."""
    waiting = asyncio.ensure_future(_pause(call, seconds, what))
    try:
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
            call.check()
            cancelled = cancel_flags(call.agent)
            if cancelled is not None and not cancelled["after_current_tools"]:
                return False
        waiting.result()
        return True
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _pause(call: Call, seconds: float, what: str) -> None:
    gate = call.control.gate
    if gate is None or seconds < _SHORT_SECONDS:
        await asyncio.sleep(seconds)
    else:
        await gate.pause(time.time() + seconds, what, enclosing_steps(call.made_in))
