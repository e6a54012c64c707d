"""What this process has done, as plain integers: counting costs a step one addition. Telemetry reads them when it is asked.

OpenTelemetry's own counters take a lock and sort attributes each time. Nothing here imports it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Literal

Metric = Literal["steps", "commits", "in_doubt", "takeovers", "tokens", "pruned"]

_TOKENS = (("input", "inputTokens"), ("output", "outputTokens"))

counts: Counter[tuple[Metric, str, str]] = Counter()
"""By metric, and the values of its attributes."""
os.register_at_fork(after_in_child=counts.clear)  # otherwise a fork would report what its parent did, too


def count(metric: Metric, kind: str = "", status: str = "", number: int = 1) -> None:
    """Add to a counter."""
    counts[metric, kind, status] += number


def count_tokens(usage: Mapping[str, int] | None) -> None:
    """Add what a model call cost."""
    for kind, name in _TOKENS:
        number = None if usage is None else usage.get(name)
        if isinstance(number, int) and number > 0:  # a model of the user's own reports it
            counts["tokens", kind, ""] += number
