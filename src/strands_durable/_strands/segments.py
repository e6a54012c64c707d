"""Segments: split a long call into pieces, invisibly to the user.

Strands nests three generators per turn and hits the recursion limit at about 320 turns. The stage around a whole pass is
entered once per call and may run its inner loop many times: every few turns the loop stops at a limit of ours, its frames are
released, and it is entered again on the same messages. Hooks, callbacks, spans, metrics, limits and the lock see one
invocation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from strands import Agent
from strands.types.exceptions import (
    ContextWindowOverflowException,
    EventLoopException,
    MaxTokensReachedException,
    StructuredOutputException,
)

from .agents import AgentStreamContext, EventLoopStopEvent, ForceStopEvent, InterruptException

_BARE = (
    StructuredOutputException,
    EventLoopException,
    ContextWindowOverflowException,
    MaxTokensReachedException,
    InterruptException,
)
"""Exceptions that Strands passes through its nested turns unchanged."""


class Segments:
    """The turn limits of one call: the user's own, and ours, which advances ahead of the loop."""

    def __init__(self, agent: Agent, turns: int, limits: Any, begin_pass: Callable[[], bool]) -> None:
        self._agent, self._turns, self._begin_pass = agent, turns, begin_pass
        self._own = (limits or {}).get("turns")
        self._begun = 0
        self.limits: dict[str, Any] = dict(limits or {})
        """Passed to Strands, which reads the dict again in every turn."""
        self.limits.setdefault("turns", turns)

    async def run(self, context: AgentStreamContext, next_fn: Any) -> AsyncGenerator[Any, None]:
        """Run one pass of the loop, segment after segment."""
        if self._begin_pass():
            context = _without_input(context)
        while True:
            nested = self._made() > self._begun
            self._advance()
            stop: Any = None
            try:
                async for event in next_fn(context):
                    if isinstance(event, EventLoopStopEvent):
                        stop = event
                    else:
                        yield event
            except _BARE:
                raise
            except Exception as error:
                if not nested:
                    raise
                # Without segments this turn would be nested in another, whose handler wraps exceptions.
                yield ForceStopEvent(reason=error)
                raise EventLoopException(error, context.invocation_state["request_state"]) from error
            if stop is None or not self._is_ours(stop):
                self._begun = self._made()
                if stop is not None:
                    yield stop
                return
            context = _without_input(context)

    def _made(self) -> int:
        invocation = self._agent.event_loop_metrics.latest_agent_invocation
        return 0 if invocation is None else len(invocation.cycles)

    def _advance(self) -> None:
        ahead = self._made() + self._turns
        self.limits["turns"] = ahead if self._own is None else min(self._own, ahead)

    def _is_ours(self, stop: Any) -> bool:
        return stop["stop"][0] == "limit_turns" and (self._own is None or self._made() < self._own)


def _without_input(context: AgentStreamContext) -> AgentStreamContext:
    return AgentStreamContext(
        agent=context.agent, messages=[], invocation_state=context.invocation_state, _interrupts=context._interrupts
    )
