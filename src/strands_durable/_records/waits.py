"""When an execution has waited for people: from the end of the last step before an answer, which asked, to the answer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Span = tuple[float, float]


def spans_of(answered: Iterable[tuple[float, float]], ends: Iterable[float]) -> list[Span]:
    """Return from when to when it has waited, in order and without overlaps.

    Args:
        answered: When each answer was given, and when the call began that it was given to.
        ends: When each step has ended.
    """
    spans: list[Span] = []
    ended = sorted(ends)
    for at, began in sorted(answered):
        before = bisect_right(ended, at)
        begin = max(began, ended[before - 1] if before else began, spans[-1][1] if spans else began)
        if at > begin:
            spans.append((begin, at))
    return spans


def seconds_in(spans: Iterable[Span], began: float, ended: float) -> float:
    """Return how much of a time it has waited."""
    return sum(max(0.0, min(ended, end) - max(began, begin)) for begin, end in spans)
