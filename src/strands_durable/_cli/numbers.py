"""Numbers that options take: finite ones that every engine and clock can work with."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 10**12
"""More executions, steps or events than there will be; a database and a clock take it."""
_LONG = 60
MOST_SECONDS = 100 * 366 * 86_400.0


def _shown(value: Any) -> str:
    """Return a value for an error: whole, so that a key in the wrong place is recognized and masked, or only its length."""
    text = str(value)
    return repr(text) if len(text) <= _LONG else f"A text of {len(text)} characters"


class Count(click.IntRange):
    """A whole number, at least ``min``."""

    def _describe_range(self) -> str:
        return f"x>={self.min}"

    def __init__(self, min: int = 0) -> None:
        super().__init__(min=min, max=MOST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of a text, if it is one."""
        try:
            found: int = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{_shown(value)} is not a whole number from {self.min} to {MOST}.", param, ctx)
        return found


class Seconds(click.FloatRange):
    """A number of seconds that ends at some time."""

    def _describe_range(self) -> str:
        return "x>=0"

    def __init__(self) -> None:
        super().__init__(min=0, max=MOST_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number of a text, if it is one."""
        try:
            found: float = super().convert(value, param, ctx)
        except click.BadParameter:
            found = math.nan
        if math.isnan(found):
            self.fail(f"{_shown(value)} is not a number of seconds from 0 to {MOST_SECONDS:.0f}.", param, ctx)
        return found
