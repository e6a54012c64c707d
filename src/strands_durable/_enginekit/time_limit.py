"""How long a process may run, for an engine that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeLimit:
    """The time that a process has, as its engine limits it.

    Args:
        remaining_ms: Returns how many milliseconds are left.
    """

    def __init__(self, remaining_ms: Callable[[], int]) -> None:
        self._remaining_ms = remaining_ms
        self.seconds = remaining_ms() / 1000
        self._began = time.monotonic()

    @property
    def is_time_to_leave(self) -> bool:
        """Whether no more steps should start: each gets two thirds of the whole time."""
        return time.monotonic() - self._began > self.seconds / 3

    @property
    def is_urgent(self) -> bool:
        """Whether steps that wait for others inside them should be left, too."""
        return time.monotonic() - self._began > self.seconds * 2 / 3

    @property
    def is_over(self) -> bool:
        """Whether the process is ended in a moment."""
        return self._remaining_ms() / 1000 < min(10.0, self.seconds / 10)
