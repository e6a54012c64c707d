"""Durations as people write them: 30m, 12h, 7d."""

from __future__ import annotations

import re
from datetime import timedelta

_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")

_MOST_SECONDS = 1000 * 366 * 86_400.0

Duration = str | float | timedelta
"""A text such as ``30d``, seconds, or a `timedelta`."""


def seconds_in(given: Duration) -> float:
    """Return the seconds of a duration, or raise `ValueError`."""
    if isinstance(given, timedelta):
        found = given.total_seconds()
    elif isinstance(given, str):
        match = _FORM.fullmatch(given.strip())
        if match is None:
            raise ValueError(f"{given!r} is not a duration. Use a form such as 30m, 2h or 7d.")
        found = float(match[1]) * _UNIT_SECONDS[match[2]]
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        found = float(given)
    else:
        raise ValueError(f"{given!r} is not a duration. Use a form such as 30m, 2h or 7d.")
    if not 0 <= found <= _MOST_SECONDS:
        raise ValueError("A duration must not be negative, nor more than 1000 years.")
    return found
