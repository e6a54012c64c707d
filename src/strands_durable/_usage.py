"""Metrics given back: what recorded steps cost counts in a resumed agent as if this process had made them.

Traces and spans tell of this process alone and are not given back.
"""

from __future__ import annotations

import copy
from typing import Any

from strands import Agent
from strands.telemetry.metrics import AgentInvocation, EventLoopCycleMetric, EventLoopMetrics, ToolMetrics

from ._journal import Journal
from ._records import Progress

_COUNTED = ("inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
"""What Strands adds up; a provider's other figures stay in the message that they came with."""


def recorded_usage(usage: Any, metrics: Any, leg: int, cycle: int) -> dict[str, int]:
    """Return the form in which a model step keeps what it cost, and the cycle of the loop that it belongs to."""
    return {**usage, "latencyMs": metrics.get("latencyMs", 0), "leg": leg, "cycle": cycle}


def tool_runs(agent: Agent, name: str) -> tuple[int, int]:
    """Return how often a tool has run, and with success, as Strands counts it."""
    found = agent.event_loop_metrics.tool_metrics.get(name)
    return (0, 0) if found is None else (found.call_count, found.success_count)


class Metrics:
    """An agent's metrics as they were before a call, so that a call that failed or was left can be counted anew."""

    def __init__(self, metrics: EventLoopMetrics) -> None:
        self._usage, self._metrics = dict(metrics.accumulated_usage), dict(metrics.accumulated_metrics)
        self._tools = {name: copy.copy(found) for name, found in metrics.tool_metrics.items()}
        self._cycles, self._durations = metrics.cycle_count, list(metrics.cycle_durations)
        self._invocations = list(metrics.agent_invocations)

    def put_back(self, metrics: EventLoopMetrics) -> None:
        """Take back what was counted since."""
        metrics.accumulated_usage.clear()  # type: ignore[attr-defined]
        metrics.accumulated_usage.update(self._usage)  # type: ignore[typeddict-item]
        metrics.accumulated_metrics.clear()  # type: ignore[attr-defined]
        metrics.accumulated_metrics.update(self._metrics)  # type: ignore[typeddict-item]
        metrics.tool_metrics = {name: copy.copy(found) for name, found in self._tools.items()}
        metrics.cycle_count, metrics.cycle_durations = self._cycles, list(self._durations)
        metrics.agent_invocations[:] = self._invocations


class Past:
    """What the recorded steps of a call cost, ready to be added to an agent's metrics."""

    def __init__(self, journal: Journal, call_id: int, progress: Progress) -> None:
        self._usages = [usage for key, usage in journal.usages(call_id) if _is_behind(key, progress)]
        self._tools = journal.tool_counts(call_id)
        self._tools += [(name, runs, successes, 0.0) for name, (runs, successes) in progress.in_loop.items()]
        self._cycles = progress.cycles
        self._carried: list[dict[str, int]] = []
        self._is_given = False

    def give_back_once(self, metrics: EventLoopMetrics) -> None:
        """Add it to the invocation that has begun; a pass that a hook adds to it begins none."""
        if not self._is_given:
            self._is_given = True
            self.give_back(metrics, current=metrics.agent_invocations[-1])

    def give_back(self, metrics: EventLoopMetrics, *, current: AgentInvocation | None) -> None:
        """Add it all; the last leg goes to ``current``, the invocation under way, if there is one."""
        last = len(self._cycles) - 1
        for leg in range(len(self._cycles)):
            if leg == last and current is not None:
                self._add_leg(metrics, current, leg)
                continue
            invocation = AgentInvocation()
            metrics.agent_invocations.insert(len(metrics.agent_invocations) - (current is not None), invocation)
            self._add_leg(metrics, invocation, leg)
        for name, calls, successes, seconds in self._tools:
            tool = metrics.tool_metrics.setdefault(name, ToolMetrics({"name": name, "toolUseId": "", "input": {}}))
            tool.call_count += calls
            tool.success_count += successes
            tool.error_count += calls - successes
            tool.total_time += seconds

    def carry(self, metrics: EventLoopMetrics) -> None:
        """Give the cycle that goes on what its model calls cost in the process that is gone.

        Not before it has begun: limits are checked at the beginning of a cycle, and it had passed that check.
        """
        for usage in self._carried:
            self._count(metrics, metrics.agent_invocations[-1], metrics.agent_invocations[-1].cycles[-1], usage)
        self._carried = []

    def _add_leg(self, metrics: EventLoopMetrics, invocation: AgentInvocation, leg: int) -> None:
        cycles = [
            EventLoopCycleMetric("", {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0})
            for _ in range(self._cycles[leg])
        ]
        for usage in self._usages:
            if usage["leg"] != leg:
                continue
            if usage["cycle"] < len(cycles):
                self._count(metrics, invocation, cycles[usage["cycle"]], usage)
            else:
                self._carried.append(usage)
        invocation.cycles.extend(cycles)
        metrics.cycle_count += len(cycles)

    @staticmethod
    def _count(
        metrics: EventLoopMetrics, invocation: AgentInvocation, cycle: EventLoopCycleMetric, usage: dict[str, int]
    ) -> None:
        for target in (metrics.accumulated_usage, invocation.usage, cycle.usage):
            _add(target, usage)
        metrics.accumulated_metrics["latencyMs"] += usage["latencyMs"]


def _is_behind(key: str, progress: Progress) -> bool:
    """Say whether an answer counts already: it is part of the conversation, or a hook sent it back for good."""
    ordinal, retry = int(key[:6]), int(key.rpartition("~")[2])
    return ordinal <= progress.ordinal or (ordinal == progress.ordinal + 1 and retry < progress.retry)


def _add(target: Any, usage: dict[str, int]) -> None:
    for name in _COUNTED:
        if name in usage:
            target[name] = target.get(name, 0) + usage[name]
