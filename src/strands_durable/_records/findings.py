"""What a check of a backend or a worker has found, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

FindingLevel = Literal["ok", "warning", "problem", "unknown"]
"""``unknown``: it cannot be checked from here."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    check: str
    level: FindingLevel
    text: str
    remedy: str = ""
    """What to do; empty if there is nothing to do."""


_FEW = 3
ANY_ID = "ID"
"""Stands for the id of an execution in a reason that several have in common."""


def by_reason(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the ids of executions by what is wrong with them, in the order in which it was found.

    Args:
        found: Ids with reasons. The id of an execution in its own reason does not make it another one.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for execution_id, reason in found:
        name = re.compile(rf"(?<![\w.-]){re.escape(execution_id)}(?![\w.-])")
        alike.setdefault(name.sub(ANY_ID, reason), []).append((execution_id, reason))
    reasons: dict[str, list[str]] = {}
    for common, each in alike.items():
        reasons.setdefault(each[0][1] if len(each) == 1 else common, []).extend(name for name, _ in each)
    return reasons


def few(execution_ids: Collection[str]) -> str:
    """Return a few of the ids, and how many more there are."""
    shown = list(execution_ids)[: _FEW if len(execution_ids) > _FEW + 1 else _FEW + 1]
    more = len(execution_ids) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
