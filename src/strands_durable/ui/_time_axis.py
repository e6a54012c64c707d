"""From times to positions in percent. Long pauses, as a night until a person answers, are drawn short: steps stay visible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

_PAUSE_SHARE, _LONG_SHARE, _LEAST_SECONDS = 0.07, 0.2, 2.0
_NICE = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
_TICKS = 5
_APART = 15.0
"""Percent between two ticks, at least: a label has room there."""


@dataclass(frozen=True, kw_only=True)
class Pause:
    """A time in which no step was running, long enough to be drawn short."""

    start: float
    end: float
    x: float
    width: float


@dataclass(frozen=True)
class _Knot:
    """Where a moment is drawn."""

    at: float
    x: float


class TimeAxis:
    """The horizontal axis of a timeline, 0 to 100."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        busy = _merged(spans)
        self.start = busy[0][0] if busy else 0.0
        self.end = busy[-1][1] if busy else 0.0
        work = sum(end - start for start, end in busy)
        longest = max(_LEAST_SECONDS, _LONG_SHARE * work)
        weights: list[tuple[float, float, float, bool]] = []
        for index, (start, end) in enumerate(busy):
            if index:
                idle = start - busy[index - 1][1]
                is_long = idle > longest
                drawn = max(_PAUSE_SHARE * work, 1e-6) if is_long else idle
                weights.append((busy[index - 1][1], start, drawn, is_long))
            weights.append((start, end, end - start, False))
        whole = sum(weight for _, _, weight, _ in weights) or 1.0
        self._knots, self.pauses, x = [_Knot(self.start, 0.0)], [], 0.0
        for start, end, weight, is_pause in weights:
            width = 100.0 * weight / whole
            if is_pause:
                self.pauses.append(Pause(start=start, end=end, x=x, width=width))
            x += width
            self._knots.append(_Knot(end, x))

    def at(self, moment: float) -> float:
        """Return the position of a moment, in percent."""
        index = bisect_right(self._knots, moment, key=lambda knot: knot.at)
        if index == 0:
            return 0.0
        if index == len(self._knots):
            return self._knots[-1].x
        before, after = self._knots[index - 1], self._knots[index]
        share = (moment - before.at) / ((after.at - before.at) or 1.0)
        return before.x + share * (after.x - before.x)

    def ticks(self) -> list[tuple[float, float]]:
        """Return a few moments after the start, in seconds, and where they are; none in a pause."""
        length = self.end - self.start - sum(pause.end - pause.start for pause in self.pauses)
        nice = next((each for each in _NICE if length / each <= _TICKS), _NICE[-1])
        found: list[tuple[float, float]] = []
        moment, last = self.start, -100.0
        while moment <= self.end and len(found) < 2 * _TICKS and length > 0:
            inside = next((pause for pause in self.pauses if pause.start < moment < pause.end), None)
            if inside is not None:
                moment = self.start + nice * -(-(inside.end - self.start) // nice)
                continue
            x = self.at(moment)
            if x - last >= _APART and x < 100 - _APART / 2:
                found.append((moment - self.start, x))
                last = x
            moment += nice
        return found


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
