"""Fill docs/engines.md with how many tests hold each rule on each backend: `python -m tests.engines`.

A test is counted by its id. It belongs to the backend whose name is in it: in its file, its class or its parameters; where
there is none, to SQLite. A test with several sets of parameters counts once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "engines.md"
BACKENDS = ("sqlite", "temporal")
PLACES = ("tests/contract", "tests/crash", "tests/temporal")
_BLOCK = re.compile(r"<!-- contracts -->\n.*?<!-- /contracts -->", re.DOTALL)
_ID = re.compile(r"(?P<file>[\w/]+\.py)::(?:(?P<group>\w+)::)?(?P<name>test_c(?P<rule>\d\d)_\w+)(?P<given>\[.*\])?")
_OTHERS = ("toy",)
"""Backends of nobody: they stand on SQLite."""

RULES = {
    1: "the same id, in every state",
    2: "what a failure is",
    3: "cancelling",
    4: "answers of people",
    5: "the agent as a call finds and leaves it",
    6: "calls without an id",
    7: "one call at a time",
    8: "one owner, and none that was given up",
    9: "which step is which",
    10: "when what is committed",
    11: "unfinished model calls",
    12: "tools in doubt, retries, timeouts",
    13: "one layer retries",
    14: "state of agent, invocation and request",
    15: "what cannot be stored",
    16: "tools that stay in the loop",
    17: "`durable.step`, `sleep`, `now`, `uuid`",
    18: "`current_step()`",
    19: "redaction",
    20: "agents inside an execution",
    21: "where a nested step stands",
    22: "where we are attached",
    23: "Graph and Swarm",
    24: "nodes that failed",
    25: "drift",
    26: "versions and deploys",
    27: "results",
    28: "streams",
    29: "nothing twice because of a replay",
    30: "long calls in segments",
    31: "wrong combinations",
    32: "factories and what a call takes",
    33: "`resume()`",
    34: "runs that kill their worker",
    35: "inline executions belong to their script",
}
INLINE = {
    6: "of inline calls: a dispatch has an id",
    7: "of inline calls: a dispatch is one call",
    35: "of inline calls, which keep their journal on SQLite",
}
"""Rules of which Temporal knows nothing, and why."""


def counted(ids: Iterable[str]) -> dict[int, dict[str, int]]:
    """Return how many tests hold each rule on each backend."""
    found: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in ids:
        test = _ID.match(each)
        if test is not None:
            whole = f"{test['file']} {test['group']} {test['given']}".lower()
            named = [name for name in (*BACKENDS[1:], *_OTHERS) if name in whole] or [BACKENDS[0]]
            found[int(test["rule"])][named[0]].add(f"{test['file']} {test['name']}")
    return {rule: {name: len(found[rule][name]) for name in BACKENDS} for rule in RULES}


def filled(text: str, ids: Iterable[str]) -> str:
    """Return the page with its table brought up to date."""
    lines = ["| | what it is about | SQLite | Temporal |", "|---|---|---:|---:|"]
    for rule, count in counted(ids).items():
        elsewhere = INLINE[rule] if rule in INLINE and not count["temporal"] else str(count["temporal"])
        lines.append(f"| C{rule} | {RULES[rule]} | {count['sqlite']} | {elsewhere} |")
    table = "\n".join(lines)
    return _BLOCK.sub(lambda _: f"<!-- contracts -->\n{table}\n<!-- /contracts -->", text)


def unheld(ids: Iterable[str]) -> set[str]:
    """Return the rules that no test holds on a backend that has to do with them."""
    return {
        f"C{rule} on {name}"
        for rule, count in counted(ids).items()
        for name in BACKENDS
        if not count[name] and not (name == "temporal" and rule in INLINE)
    }


def collected() -> list[str]:
    """Return the ids of all tests, as pytest tells them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *PLACES]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(ended.stdout[-2000:])
    return ended.stdout.splitlines()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), collected()))
