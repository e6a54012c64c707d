"""Attachments for one call: undone when the last call of a guest has ended, or kept if it is attached for good meanwhile."""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

Events = AsyncGenerator[Any, None]

_lock = threading.Lock()
_visits: weakref.WeakKeyDictionary[Any, tuple[int, ExitStack]] = weakref.WeakKeyDictionary()
"""How many calls of a guest have not ended, and what undoes its attachment: Strands refuses all but the first of them."""


def attached_during(guest: Any, hook_into: Callable[[ExitStack], None], open_call: Callable[[], Events]) -> Events:
    """Return the events of a call, during which the guest is attached."""
    with _lock, ExitStack() as new:
        count, undo = _visits.get(guest, (0, new))
        if count == 0:
            hook_into(new)
            undo = new.pop_all()
        _visits[guest] = count + 1, undo
    try:
        events = open_call()
    except BaseException:
        _leave(guest)
        raise
    return _until_over(events, partial(_leave, guest))


def keep_hooks(subject: Any) -> bool:
    """Keep the hooks of a guest whose call runs, because it is attached for good; return False if it has none."""
    with _lock:
        found = _visits.get(subject)
        if found is None:
            return False
        found[1].pop_all()
        return True


def _leave(guest: Any) -> None:
    with _lock:
        count, undo = _visits.pop(guest)
        if count > 1:
            _visits[guest] = count - 1, undo
        else:
            undo.close()


async def _until_over(events: Events, leave: Callable[[], None]) -> Events:
    """Pass on the events of a call, and give back what attaching changed when it is over."""
    try:
        async for event in events:
            yield event
    finally:
        try:
            await events.aclose()
        finally:
            leave()
