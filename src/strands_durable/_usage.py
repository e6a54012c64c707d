"""Metrics given back: what recorded steps cost counts in a resumed agent as if this process had made them.

Traces and spans tell of this process alone and are not given back.
"""

from __future__ import annotations

from typing import Any

from strands.telemetry.metrics import AgentInvocation, EventLoopCycleMetric, EventLoopMetrics, ToolMetrics

from ._journal import Journal
from ._records import Progress


def recorded_usage(usage: Any, metrics: Any) -> dict[str, int]:
    """Return the form in which a model step keeps what it cost."""
    return {**usage, "latencyMs": metrics.get("latencyMs", 0)}


class Past:
    """What the recorded steps of a call cost, ready to be added to an agent's metrics."""

    def __init__(self, journal: Journal, call_id: int, progress: Progress) -> None:
        found = [(int(key.split("/")[0]), usage) for key, usage in journal.usages(call_id)]
        self._usages = [(ordinal, usage) for ordinal, usage in found if ordinal <= progress.ordinal]
        self._tools = journal.tool_counts(call_id)
        self._legs = progress.legs
        under_way = progress.resume == "tools" and progress.phase not in ("done", "waiting")
        self._in_tools = under_way and progress.ordinal > progress.legs[-1]
        self._ordinal = progress.ordinal
        self._is_given = False

    def give_back_once(self, metrics: EventLoopMetrics) -> None:
        """Add it to the invocation that has begun; a pass that a hook adds to it begins none."""
        if not self._is_given:
            self._is_given = True
            self.give_back(metrics, current=metrics.agent_invocations[-1])

    def give_back(self, metrics: EventLoopMetrics, *, current: AgentInvocation | None) -> None:
        """Add it all; the last leg goes to ``current``, the invocation under way, if there is one."""
        last = len(self._legs) - 1
        for leg, begin in enumerate(self._legs):
            end = self._legs[leg + 1] if leg < last else None
            usages = [
                (ordinal, usage)
                for ordinal, usage in self._usages
                if ordinal > begin and (end is None or ordinal <= end)
            ]
            if leg == last and current is not None:
                self._add_leg(metrics, current, leg, usages)
            else:
                metrics.reset_usage_metrics()
                self._add_leg(metrics, metrics.agent_invocations[-1], leg, usages)
                if current is not None:
                    metrics.agent_invocations.insert(-1, metrics.agent_invocations.pop())
        for name, calls, successes, seconds in self._tools:
            tool = metrics.tool_metrics.setdefault(name, ToolMetrics({"name": name, "toolUseId": "", "input": {}}))
            tool.call_count += calls
            tool.success_count += successes
            tool.error_count += calls - successes
            tool.total_time += seconds

    def carry(self, metrics: EventLoopMetrics) -> None:
        """Going on among tools starts a cycle without a model call: give that cycle the usage of the recorded answer."""
        if self._in_tools and metrics.agent_invocations[-1].cycles:
            cycle = metrics.agent_invocations[-1].cycles[-1]
            for ordinal, usage in self._usages:
                if ordinal == self._ordinal:
                    _add(cycle.usage, usage)
        self._in_tools = False

    def _add_leg(
        self, metrics: EventLoopMetrics, invocation: AgentInvocation, leg: int, usages: list[tuple[int, Any]]
    ) -> None:
        cycles: dict[int, EventLoopCycleMetric] = {}
        if leg > 0 and usages:
            cycles[0] = _cycle()  # an answered leg begins with a cycle of tools alone
        for ordinal, usage in usages:
            _add(metrics.accumulated_usage, usage)
            _add(invocation.usage, usage)
            metrics.accumulated_metrics["latencyMs"] += usage["latencyMs"]
            if self._in_tools and ordinal == self._ordinal:
                continue
            _add(cycles.setdefault(ordinal, _cycle()).usage, usage)
        invocation.cycles.extend(cycles.values())
        metrics.cycle_count += len(cycles)


def _cycle() -> EventLoopCycleMetric:
    return EventLoopCycleMetric("", {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0})


def _add(target: Any, usage: dict[str, int]) -> None:
    for name, count in usage.items():
        if name != "latencyMs":
            target[name] = target.get(name, 0) + count
