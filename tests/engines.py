"""Fill docs/engines.md with the number of tests for each rule on each backend: `python -m tests.engines`.

A test is counted by its id. It belongs to the backend whose name is in it: in its file, its class or its parameters; where
there is none, to SQLite. Tests of engines that only tests use count for none. A test with several sets of parameters counts
once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "engines.md"
COLLECTED = pytest.StashKey[list[str]]()
"""The ids of all tests that a run has found, also of those that it leaves out."""
BACKENDS = {"sqlite": "SQLite", "temporal": "Temporal", "lambda": "AWS Lambda", "dapr": "Dapr"}
"""Names as they are in the ids of tests, and as people know them."""
PLACES = ("tests/contract", "tests/crash", "tests/temporal", "tests/aws_lambda", "tests/dapr")
_BLOCK = re.compile(r"<!-- contracts -->\n.*?<!-- /contracts -->", re.DOTALL)
_ID = re.compile(r"(?P<file>[\w/]+\.py)::(?:(?P<group>\w+)::)?(?P<name>test_c(?P<rule>\d\d)_\w+)(?P<given>\[.*\])?")
_OTHERS = ("toy", "memory")
"""Backends that only tests use: what holds on them says nothing about the others."""

RULES = {
    1: "the same id, in every state",
    2: "what a failure is",
    3: "cancelling",
    4: "answers from people",
    5: "agent state before and after a call",
    6: "calls without an id",
    7: "one call at a time",
    8: "leases and fencing",
    9: "step keys",
    10: "order of commits",
    11: "unfinished model calls",
    12: "tools in doubt, retries, timeouts",
    13: "only one layer retries",
    14: "state of agent, invocation and request",
    15: "values that cannot be stored",
    16: "tools that stay in the loop",
    17: "`durable.step`, `sleep`, `now`, `uuid`",
    18: "`current_step()`",
    19: "redaction",
    20: "agents inside an execution",
    21: "paths of nested steps",
    22: "where the plugin is attached",
    23: "Graph and Swarm",
    24: "failed nodes",
    25: "drift",
    26: "versions and deploys",
    27: "results",
    28: "streams",
    29: "no duplicate hooks, callbacks or spans",
    30: "long calls in segments",
    31: "unsupported combinations",
    32: "factories and call arguments",
    33: "`resume()`",
    34: "runs that kill their worker",
    35: "inline executions belong to their script",
    36: "tags, lists and open questions",
    37: "notifications",
    38: "questions with a deadline",
    39: "forks",
    43: "exports",
    44: "exports without contents",
    45: "imports",
    46: "replays of exported runs",
    47: "one command for many executions",
    48: "backup",
    49: "verify",
    50: "retention",
    51: "contents removed before the record",
    52: "held executions",
    53: "encryption: what is readable",
    54: "encryption: wrong and missing keys",
    55: "encryption: changed contents",
    56: "encryption: new keys",
    57: "encryption: where keys come from",
    58: "encryption: forks, exports and imports",
    59: "encryption: verify, backup and retention",
    60: "encryption: what needs no key",
    61: "what is on record was decided",
    62: "agents that a step builds",
    63: "direct calls",
    64: "inputs that tools change",
    65: "streams that begin with what has finished",
}
INLINE = {
    6: "inline only: a dispatch always has an id",
    7: "inline only: a dispatch is one call",
    35: "inline only: its journal is always on SQLite",
    37: "refused by name",
    51: "refused by name",
    52: "refused by name",
    55: "its codec notices changed payloads, not exchanged ones",
    59: "refused by name",
    60: "what needs no key is in docs/encryption.md",
    65: "inline only: the stream of a handle has every step anyway",
}
"""Rules that apply to SQLite alone, and why."""


def counted(ids: Iterable[str]) -> dict[int, dict[str, int]]:
    """Return the number of tests for each rule on each backend."""
    found: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in ids:
        test = _ID.match(each)
        if test is not None:
            found[int(test["rule"])][_backend_of(test)].add(f"{test['file']} {test['name']}")
    return {rule: {name: len(found[rule][name]) for name in BACKENDS} for rule in RULES}


def _backend_of(test: re.Match[str]) -> str:
    where = f"{test['file']} {test['group']}".lower()
    given = (test["given"] or "").strip("[]").split("-")  # exactly: another parameter may be a lambda, or :memory:
    named = (name for name in (*BACKENDS, *_OTHERS) if name != "sqlite" and (name in where or name in given))
    return next(named, "sqlite")


def filled(text: str, ids: Iterable[str]) -> str:
    """Return the page with its table brought up to date."""
    lines = [f"| | rule | {' | '.join(BACKENDS.values())} |", "|---|---|" + "---:|" * len(BACKENDS)]
    for rule, count in counted(ids).items():
        cells = [str(number) if number or rule not in INLINE else INLINE[rule] for number in count.values()]
        lines.append(f"| C{rule} | {RULES[rule]} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return _BLOCK.sub(lambda _: f"<!-- contracts -->\n{table}\n<!-- /contracts -->", text)


def unheld(ids: Iterable[str]) -> set[str]:
    """Return the rules without a test on a backend to which they apply."""
    return {
        f"C{rule} on {name}"
        for rule, count in counted(ids).items()
        for name in BACKENDS
        if not count[name] and (name == "sqlite" or rule not in INLINE)
    }


def unnamed(ids: Iterable[str]) -> set[str]:
    """Return the rules that tests name and the table does not."""
    return {f"C{int(test['rule'])}" for test in map(_ID.match, ids) if test and int(test["rule"]) not in RULES}


def collected() -> list[str]:
    """Return the ids of all tests, as pytest collects them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *PLACES]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(ended.stdout[-2000:])
    return ended.stdout.splitlines()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), collected()))
