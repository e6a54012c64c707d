"""Fill docs/guarantees.md with the tests that hold each rule: `python -m tests.guarantees`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guarantees.md"
_BLOCK = re.compile(r"<!-- tests (C\d+) -->\n.*?<!-- /tests -->", re.DOTALL)


def sentences() -> dict[str, list[str]]:
    """Return the names of the contract tests as sentences, by rule."""
    found: dict[str, list[str]] = defaultdict(list)
    ours = sorted((ROOT / "tests" / "contract").glob("test_*.py"))
    everybodys = sorted((ROOT / "src" / "strands_durable" / "testing" / "contract").glob("_*.py"))
    for path in (*ours, *everybodys):
        for node in ast.walk(ast.parse(path.read_text())):
            named = re.match(
                r"test_c(\d\d)_(.+)", node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""
            )
            if named:
                found[f"C{int(named[1])}"].append(named[2].replace("_", " "))
    return found


def filled(text: str) -> str:
    """Return the page with its lists brought up to date."""
    by_rule = sentences()

    def block(found: re.Match[str]) -> str:
        lines = "\n".join(f"- {sentence}" for sentence in by_rule[found[1]])
        return f"<!-- tests {found[1]} -->\n{lines}\n<!-- /tests -->"

    return _BLOCK.sub(block, text)


def missing(text: str) -> set[str]:
    """Return the rules that have tests but no place on the page."""
    return set(sentences()) - {found[1] for found in _BLOCK.finditer(text)}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
