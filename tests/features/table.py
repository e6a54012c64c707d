"""The table of features in docs/guarantees.md: filled by `FEATURES=write make test`, and compared by every other run."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
_TABLE = re.compile(r"<!-- features -->\n(.*?)<!-- /features -->", re.DOTALL)
_LINES = {
    1: "Interrupts",
    2: "State",
    3: "Structured output",
    4: "Conversation managers",
    5: "Model errors",
    6: "Sub-agents",
    7: "Graph and Swarm",
    8: "MCP",
    9: "Streaming",
    10: "Session managers",
    11: "The loop and its hooks",
    12: "Multimodal",
    13: "What is refused",
    14: "A real model client",
    15: "Effects in the process",
    16: "Agents that tools build",
}
Outcome = tuple[int, str, int, bool]
"""Line, name, kills, and whether an unfinished step may leave a second mark in the outside world."""


def row(outcome: Outcome) -> str:
    """Return the line of the table for a feature."""
    line, name, kills, lossy = outcome
    again = "none; code before an interrupt runs again with its answer" if lossy else "none"
    return f"| {_LINES[line]} | {name} | {kills} | {kills} | {again} |"


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("|")]


def name_in(text: str) -> str:
    """Return the name of the program that a line of the table is about."""
    return _cells(text)[2]


def documented() -> set[str]:
    """Return the lines that the page has."""
    found = _TABLE.search(PAGE.read_text())
    return set() if found is None else {text for text in found[1].splitlines() if text.startswith("|")}


def write(outcomes: list[Outcome], names: Collection[str]) -> None:
    """Update the page's table: rewrite the lines of what ran, and remove those that are not among ``names``."""
    head = "| | what runs | killed at | same outcome | finished steps repeated |\n|---|---|---|---|---|\n"
    rows = {found: text for text in documented() if (found := name_in(text)) in names}
    rows.update((found[1], row(found)) for found in outcomes)
    order = list(_LINES.values())
    table = head + "\n".join(sorted(rows.values(), key=lambda text: (order.index(_cells(text)[1]), text))) + "\n"
    PAGE.write_text(_TABLE.sub(lambda _: f"<!-- features -->\n{table}<!-- /features -->", PAGE.read_text()))
