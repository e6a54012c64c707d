"""Named points of a run at which tests can stop it: before and after every commit, and wherever a test adds its own.

In production there is no listener, and reaching a point costs one attribute lookup. `strands_durable.testing` installs one.
"""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[str], None]
_listener: Listener | None = None


def reach(point: str) -> None:
    """Notify the listener, if there is one, that ``point`` was reached."""
    if _listener is not None:
        _listener(point)


def listen(listener: Listener | None) -> Listener | None:
    """Install ``listener`` and return the previous one."""
    global _listener
    before, _listener = _listener, listener
    return before
