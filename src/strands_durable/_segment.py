"""Segments: a long call in pieces that nobody can see.

Strands nests three generators per turn and dies of recursion at about 320. The stage around a whole pass is entered once per
call and may run its inside many times: after every few turns the inner loop stops at a limit of ours, its frames are gone,
and it is entered again on the same messages. Hooks, callbacks, spans, metrics, limits and the lock see one invocation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from strands import Agent

from ._strands import AgentStreamContext, EventLoopStopEvent


class Segments:
    """The turn limit of one call: the user's own, and ours that moves ahead of the loop."""

    def __init__(self, agent: Agent, turns: int, limits: Any) -> None:
        self._agent, self._turns = agent, turns
        self._own = (limits or {}).get("turns")
        self.limits: dict[str, Any] = dict(limits or {})
        """What Strands is given; it reads the dict anew in every turn."""
        self.limits.setdefault("turns", turns)

    async def run(self, context: AgentStreamContext, next_fn: Any) -> AsyncGenerator[Any, None]:
        """Run one pass of the loop, segment after segment."""
        while True:
            self._advance()
            stop: Any = None
            async for event in next_fn(context):
                if isinstance(event, EventLoopStopEvent):
                    stop = event
                else:
                    yield event
            if stop is None or not self._is_ours(stop):
                if stop is not None:
                    yield stop
                return
            context = AgentStreamContext(
                agent=context.agent,
                messages=[],
                invocation_state=context.invocation_state,
                _interrupts=context._interrupts,
            )

    def _made(self) -> int:
        invocation = self._agent.event_loop_metrics.latest_agent_invocation
        return 0 if invocation is None else len(invocation.cycles)

    def _advance(self) -> None:
        ahead = self._made() + self._turns
        self.limits["turns"] = ahead if self._own is None else min(self._own, ahead)

    def _is_ours(self, stop: Any) -> bool:
        return stop["stop"][0] == "limit_turns" and (self._own is None or self._made() < self._own)
