"""What a tool changed in the invocation state: the difference of two moments, leaf by leaf, as data that can be applied.

Unlike the agent's state, the invocation state is a plain dict that nobody can watch. Tools that run at the same time may see
each other's changes here; applying a change twice does no harm, since a change says what a leaf became, not how.
"""

from __future__ import annotations

from typing import Any

from .content_hash import content_hash

Change = list[Any]
"""``[path, value]`` for a leaf that was set, ``[path]`` for one that is gone; a path is a list of keys."""


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the changes that lead from ``before`` to ``after``."""
    if content_hash(before) == content_hash(after):
        return []
    found: list[Change] = [[[key]] for key in before if key not in after]
    for key, value in after.items():
        if key in before and type(value) is dict and type(before[key]) is dict:  # what extends it is one value
            found += [[[key, *change[0]], *change[1:]] for change in difference(before[key], value)]
        elif key not in before or content_hash(before[key]) != content_hash(value):
            found.append([[key], value])
    return found


def apply(changes: list[Change], target: dict[str, Any]) -> None:
    """Make the changes again."""
    for path, *value in changes:
        place = target
        for key in path[:-1]:
            place = place.setdefault(key, {})
        if value and type(place.get(path[-1])) is list and type(value[0]) is list:
            place[path[-1]][:] = value[0]
        elif value:
            place[path[-1]] = value[0]
        else:
            place.pop(path[-1], None)
