"""What a tool changed in the invocation state: the difference of two snapshots, leaf by leaf, as data that can be applied.

Unlike the agent's state, the invocation state is a plain dict that cannot be watched. Tools that run at the same time may
see each other's changes here. Applying a change twice is harmless: a change holds what a leaf became, not how.
"""

from __future__ import annotations

from typing import Any

from .content_hash import content_hash

Change = list[Any]
"""``[path, value]`` for a leaf that was set, ``[path]`` for one that was removed; a path is a list of keys."""


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the changes that lead from ``before`` to ``after``."""
    if content_hash(before) == content_hash(after):
        return []
    changes: list[Change] = [[[key]] for key in before if key not in after]
    for key, value in after.items():
        if key in before and type(value) is dict and type(before[key]) is dict:  # a subclass is compared as a whole
            changes += [[[key, *change[0]], *change[1:]] for change in difference(before[key], value)]
        elif key not in before or content_hash(before[key]) != content_hash(value):
            changes.append([[key], value])
    return changes


def apply(changes: list[Change], target: dict[str, Any]) -> None:
    """Apply the changes to ``target``."""
    for path, *value in changes:
        parent = target
        for key in path[:-1]:
            parent = parent.setdefault(key, {})
        if value and type(parent.get(path[-1])) is list and type(value[0]) is list:
            parent[path[-1]][:] = value[0]
        elif value:
            parent[path[-1]] = value[0]
        else:
            parent.pop(path[-1], None)
