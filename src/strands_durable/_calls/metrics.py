"""Restored metrics: a resumed agent counts recorded steps as if this process had run them.

Traces and spans cover this process only and are not restored.
"""

from __future__ import annotations

from typing import Any

from strands import Agent
from strands.telemetry.metrics import AgentInvocation, EventLoopCycleMetric, EventLoopMetrics, ToolMetrics

from .._journal.port import Journal
from .._records.calls import CallProgress

_COUNTED = ("inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
"""What Strands sums up; a provider's other figures stay in the message they came with."""
_SOMETIMES = ("cacheReadInputTokens", "cacheWriteInputTokens")
_OF_TOOL = ("call_count", "success_count", "error_count", "total_time")

Sum = tuple[str, str]
"""A part of an agent's metrics, and a name in it."""


def place_in_loop(metrics: Any, leg: int, cycle: int) -> dict[str, int]:
    """Return what a model step records besides its usage: its latency, and its cycle of the loop."""
    return {"latencyMs": metrics.get("latencyMs", 0), "leg": leg, "cycle": cycle}


def tool_runs(agent: Agent, name: str) -> tuple[int, int]:
    """Return how often a tool has run, and with success, as Strands counts it."""
    found = agent.event_loop_metrics.tool_metrics.get(name)
    return (0, 0) if found is None else (found.call_count, found.success_count)


class Metrics:
    """A snapshot of an agent's metrics, to find out what a call adds to them."""

    def __init__(self, metrics: EventLoopMetrics) -> None:
        self._sums, self._durations = _sums(metrics), len(metrics.cycle_durations)
        self._invocations = list(metrics.agent_invocations)

    def added(self, metrics: EventLoopMetrics) -> Added:
        """Return what was counted since the snapshot."""
        sums = {name: value - self._sums.get(name, 0) for name, value in _sums(metrics).items()}
        known = {id(found) for found in self._invocations}
        invocations = [found for found in metrics.agent_invocations if id(found) not in known]
        return Added(sums, metrics.cycle_durations[self._durations :], invocations)


class Added:
    """What an unfinished call has added to an agent's metrics."""

    def __init__(self, sums: dict[Sum, float], durations: list[float], invocations: list[AgentInvocation]) -> None:
        self._sums, self._durations, self._invocations = sums, durations, invocations

    def take_back(self, metrics: EventLoopMetrics) -> None:
        """Subtract it, so that the call can be counted again."""
        for (part, name), value in self._sums.items():
            if part == "usage":
                _take(metrics.accumulated_usage, name, value)
            elif part == "metrics":
                _take(metrics.accumulated_metrics, name, value)
            elif part in _OF_TOOL and name in metrics.tool_metrics:
                _take(vars(metrics.tool_metrics[name]), part, value)
        metrics.tool_metrics = {name: found for name, found in metrics.tool_metrics.items() if found.call_count > 0}
        metrics.cycle_count -= int(self._sums["cycles", ""])
        for duration in self._durations:
            if duration in metrics.cycle_durations:
                metrics.cycle_durations.remove(duration)
        gone = {id(found) for found in self._invocations}
        metrics.agent_invocations[:] = [found for found in metrics.agent_invocations if id(found) not in gone]


def _sums(metrics: EventLoopMetrics) -> dict[Sum, float]:
    """Return all values that only grow, by part and name."""
    found: dict[Sum, float] = {("cycles", ""): metrics.cycle_count}
    found |= {("usage", name): value for name, value in _numbers(metrics.accumulated_usage)}
    found |= {("metrics", name): value for name, value in _numbers(metrics.accumulated_metrics)}
    for part in _OF_TOOL:
        found |= {(part, name): getattr(tool, part) for name, tool in metrics.tool_metrics.items()}
    return found


def _numbers(values: Any) -> list[tuple[str, float]]:
    return [(name, value) for name, value in values.items() if isinstance(value, (int, float))]


def _take(target: Any, name: str, value: float) -> None:
    """Subtract a value; remove a figure that drops to zero if only some providers report it."""
    if name in target:
        target[name] = max(0, target[name] - value)
        if not target[name] and value and name in _SOMETIMES:
            del target[name]


class RecordedMetrics:
    """What the recorded steps of a call cost, ready to be added to an agent's metrics."""

    def __init__(self, journal: Journal, call_id: int, progress: CallProgress) -> None:
        self._usages = [usage for key, usage in journal.usages(call_id) if _is_behind(key, progress)]
        self._tools = journal.tool_counts(call_id)
        self._tools += [(name, runs, successes, 0.0) for name, (runs, successes) in progress.in_loop.items()]
        self._cycles = progress.cycles
        self._carried: list[dict[str, int]] = []
        self._is_given = False

    def restore_once(self, metrics: EventLoopMetrics) -> None:
        """Add them to the invocation that has begun; a pass added by a hook does not begin one."""
        if not self._is_given:
            self._is_given = True
            self.restore(metrics, current=metrics.agent_invocations[-1])

    def restore(self, metrics: EventLoopMetrics, *, current: AgentInvocation | None) -> None:
        """Add everything; the last leg is added to ``current``, the running invocation, if there is one."""
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

    def carry_over(self, metrics: EventLoopMetrics) -> None:
        """Add to the resumed cycle what its model calls cost in the previous process.

        Not before it has begun: limits are checked at the beginning of a cycle, and it had passed that check.
        """
        for usage in self._carried:
            self._count(metrics, metrics.agent_invocations[-1], usage)
            _add(metrics.agent_invocations[-1].cycles[-1].usage, usage)
        self._carried = []

    def _add_leg(self, metrics: EventLoopMetrics, invocation: AgentInvocation, leg: int) -> None:
        cycles = [
            EventLoopCycleMetric("", {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0})
            for _ in range(self._cycles[leg])
        ]
        here = [usage for usage in self._usages if usage["leg"] == leg]
        self._carried += [usage for usage in here if usage["cycle"] >= len(cycles)]
        counted = [usage for usage in here if usage["cycle"] < len(cycles)]
        for usage in counted:
            _add(cycles[usage["cycle"]].usage, usage)
        names = [name for name in _COUNTED if any(name in usage for usage in counted)]
        total = {name: sum([usage.get(name, 0) for usage in counted]) for name in (*names, "latencyMs")}
        self._count(metrics, invocation, total)
        invocation.cycles.extend(cycles)
        metrics.cycle_count += len(cycles)

    @staticmethod
    def _count(metrics: EventLoopMetrics, invocation: AgentInvocation, usage: dict[str, int]) -> None:
        for target in (metrics.accumulated_usage, invocation.usage):
            _add(target, usage)
        metrics.accumulated_metrics["latencyMs"] += usage["latencyMs"]


def _is_behind(key: str, progress: CallProgress) -> bool:
    """Return True if an answer already counts: it is part of the conversation, or a hook rejected it for good."""
    ordinal = int(key[:6])
    if ordinal <= progress.ordinal:
        return True
    return ordinal == progress.ordinal + 1 and int(key.rpartition("~")[2]) < progress.retry


def _add(target: Any, usage: dict[str, int]) -> None:
    for name in _COUNTED:
        if name in usage:
            target[name] = target.get(name, 0) + usage[name]
