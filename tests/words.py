"""Phrases that we do not write, and where they still are: `python -m tests.words [PATH PREFIX...]` lists them.

Checked is what people read: pages, comments, docstrings and strings. Names in code are not.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "mkdocs.yml", "pyproject.toml", "bench/README.md")
FOLDERS = ("docs", "examples", "src")

AVOIDED = {
    r"(go|goes|going|gone|went) on": "resume, continue",
    r"told|tells?|telling": "report, notify, log, record, show, return",
    r"whoever|somebody|nobody": "name the process, caller, worker or person; or use the passive",
    r"under ?way": "running, in progress",
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again, new, from the start",
    r"how many-th": "ordinal, number",
    r"say whether": "return whether, or: return True if",
    r"is no agent": "is not an agent",
    r"he|his|him": "it, its; or name the process",
}
"""Patterns, with what to write instead."""

_PATTERNS = {
    re.compile(rf"\b(?:{pattern})\b".replace(" ", r"\s+"), re.IGNORECASE): better for pattern, better in AVOIDED.items()
}
_GENERATED = re.compile(r"<!-- (/?)(?:help|tests)\b")
_FENCE = re.compile(r"^\s*```(\w*)")
_TEXT = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


class Passage(NamedTuple):
    """Text to check, with the place and the line it starts in."""

    place: str
    line: int
    text: str


class Finding(NamedTuple):
    """A phrase to avoid, and what to write instead."""

    place: str
    line: int
    phrase: str
    better: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.phrase!r}; write: {self.better}"


def findings() -> list[Finding]:
    """Return all phrases to avoid, also those in what is pending."""
    return [found for path in _files() for passage in _passages(path) for found in _found_in(passage)]


def _files() -> Iterator[Path]:
    yield from (ROOT / page for page in PAGES)
    for folder in FOLDERS:
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in {".md", ".py", ".yaml"})


def _found_in(passage: Passage) -> Iterator[Finding]:
    for pattern, better in _PATTERNS.items():
        for match in pattern.finditer(passage.text):
            line = passage.line + passage.text.count("\n", 0, match.start())
            yield Finding(passage.place, line, " ".join(match[0].split()), better)


def _passages(path: Path) -> Iterator[Passage]:
    place, text = path.relative_to(ROOT).as_posix(), path.read_text()
    if path.suffix == ".py":
        yield from _of_code(place, text)
    elif path.suffix == ".md":
        yield from _of_page(place, text)
    else:
        yield Passage(place, 1, text)


def _of_code(place: str, text: str) -> Iterator[Passage]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TEXT:
            yield Passage(place, token.start[0], re.sub(r"\{[^{}]*\}", "{}", token.string))


def _of_page(place: str, text: str) -> Iterator[Passage]:
    """Yield a page in passages; what it quotes from the program or from test names is a place of its own.

    Such text changes with its source, which is checked itself.
    """
    quoted, fence, lines = False, "", [""]
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if generated := _GENERATED.search(line):
            quoted = not generated[1]
        if opened := _FENCE.match(line):
            fence = "" if fence else opened[1] or "text"
        is_output = fence in {"console", "text"} and not line.startswith("$ ")
        if quoted or is_output or not line:
            yield Passage(place, number - len(lines), "\n".join(lines))
            yield Passage(f"{place} (quoted)", number, line)
            lines = [""]
        else:
            lines.append(line)


if __name__ == "__main__":
    prefixes = tuple(sys.argv[1:]) or ("",)
    wanted = [found for found in findings() if found.place.startswith(prefixes)]
    print(*wanted, f"{len(wanted)} phrases to avoid", sep="\n")
