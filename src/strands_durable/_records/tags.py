"""Tags: a few names and values that people find executions by. Recorded once, with the execution."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidTagError

MOST = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}")
_LONGEST = 200


def checked_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """Return tags in the order of their names, or raise `InvalidTagError`."""
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise InvalidTagError("tags", f"it is a {type(tags).__name__}, and must be a dict")
    if len(tags) > MOST:
        raise InvalidTagError("tags", f"there are {len(tags)}, and an execution has at most {MOST}")
    return dict(sorted(checked_tag(name, value) for name, value in tags.items()))


def checked_tag(name: Any, value: Any) -> tuple[str, str]:
    """Return one tag, or raise `InvalidTagError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTagError(name, "a name has 1 to 63 letters, digits and any of . _ : / -")
    if not isinstance(value, str):
        raise InvalidTagError(name, f"its value is a {type(value).__name__}, and must be a string")
    if not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise InvalidTagError(name, f"a value has 1 to {_LONGEST} printable characters")
    return name, value


def has_tags(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether all wanted tags are among those found."""
    return wanted.items() <= found.items()
