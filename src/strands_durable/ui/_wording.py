"""Times, numbers and values as people read them. Foreign text passes through here: masked, without control characters."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from .._records.printable import masked_beginning, printable
from .._records.views import short

MOST_CHARACTERS = 100_000
_REASON_CHARACTERS = 20_000
MORE = "… This is its beginning: strands-durable show prints all of it."
_UNBROKEN = 500
_RUNS = re.compile(rf"[^ \t\n]{{1,{_UNBROKEN}}}|[ \t\n]+")
_LINE_LENGTH = 1_000
_BREAK = Markup("<wbr>")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def text(value: object) -> str:
    """Return foreign text of several lines; of what is longer than a browser can show, its beginning."""
    return _shown(str(value))


def line(value: object) -> str:
    """Return foreign text as one line."""
    return short(str(value), _LINE_LENGTH)


def brief(value: Any, length: int = 90) -> str:
    """Return a value as one short line."""
    return short(value, length)


def written(value: Any) -> str:
    """Return a value as text, or as indented JSON; of what is longer than a browser can show, its beginning."""
    return _shown(value)


def beginning(value: Any) -> tuple[Any, bool]:
    """Return as much of a question's reason as a page shows, masked, and whether there is more: an inbox has many of them."""
    return masked_beginning(value, _REASON_CHARACTERS)


def _shown(value: Any) -> str:
    found, is_cut = masked_beginning(value, MOST_CHARACTERS)
    shown = printable(found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False))
    if len(shown) <= MOST_CHARACTERS and not is_cut:
        return shown
    return f"{shown[:MOST_CHARACTERS]}\n{MORE}"


def breakable(shown: str) -> str:
    """Return text for HTML in which a browser may break what has no blank: some scripts take it the square of their length."""
    runs = _RUNS.findall(shown)
    if max(map(len, runs), default=0) < _UNBROKEN:
        return shown
    return Markup("").join(escape(run) + (_BREAK if len(run) == _UNBROKEN else "") for run in runs)


def age(seconds: float, now: float | None = None) -> str:
    """Return how long ago a time was."""
    past = max(0.0, (time.time() if now is None else now) - seconds)
    return "now" if past < 1 else f"{_coarse(past)} ago"


def _coarse(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def took(seconds: float | None) -> str:
    """Return a duration."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def iso(seconds: float) -> str:
    """Return a time for machines."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def moment(seconds: float | None) -> str:
    """Return a time for people, in UTC."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: int) -> str:
    """Return a number with thin groups of digits."""
    return f"{number:,}".replace(",", "\u2009")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count(number)} {noun if number == 1 else many}"


def slug(state: str) -> str:
    """Return a status or state as a CSS class."""
    return state.lower().replace(" ", "-")
