"""Named points of a run that tests can stop at: before and after every commit, and wherever a test adds its own.

In production nothing listens, and reaching a point costs one attribute look-up. `strands_durable.testing` installs listeners.
"""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[str], None]
_listener: Listener | None = None


def reach(point: str) -> None:
    """Tell the listener, if there is one, that ``point`` was reached."""
    if _listener is not None:
        _listener(point)


def listen(listener: Listener | None) -> Listener | None:
    """Install ``listener`` and return the one before it."""
    global _listener
    before, _listener = _listener, listener
    return before
