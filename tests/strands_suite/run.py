"""Run Strands' own tests: as they are, with `Durability` on everything they build, and with every call resumed.

    off            without us: what fails here is Strands' own affair, and is left out of all that follows
    attach         with us; each call is a new execution
    return         each call is made again after its end, from the journal alone
    crash-answer   each call dies after its first model answer is recorded, and goes on
    crash-tool     the same after its first tool result

What passes without us must pass with us. exceptions.toml names the tests of which that cannot be asked, with the reason; it is
checked in both directions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

from .source import CACHE, fetched, strands_version

HERE = Path(__file__).parent
MOST_EXCEPTIONS = 15
LEAST_RESUMED = {"return": 200, "crash-answer": 70, "crash-tool": 20}
"""Fewer would mean that the calls slip through our hands."""

SUITE = ["agent", "event_loop", "hooks", "middleware", "multiagent", "tools/executors", "test_interrupt.py"]
LEFT_OUT = ["agent/test_a2a_agent.py", "multiagent/a2a"]
"""They need a server stack, and build no agent of their own: an A2A agent is somebody else's process."""

CRASHED = [
    "agent/conversation_manager/test_token_usage_middleware.py",
    "agent/test_agent_limits.py",
    "agent/test_agent_model_state.py",
    "agent/test_agent_retry.py",
    "agent/test_agent_state.py",
    "agent/test_conversation_manager.py",
    "middleware/test_agent_middleware.py",
    "middleware/test_execute_tool_middleware.py",
    "middleware/test_middleware_interrupts.py",
    "multiagent/test_spec.py",
]
"""The files whose tests look at how calls end. Others count hooks, callbacks, spans and stream events, which come again in the
process that goes on, or have threads race each other, where a simulated crash hits all of them."""

Report = dict[str, dict[str, Any]]


class Suite:
    """The runs so far, and what was wrong with them."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._exceptions = tomllib.loads((HERE / "exceptions.toml").read_text())
        self.baseline = self._run("off", SUITE)
        self.wrong: list[str] = []

    def attach(self) -> str:
        """Run everything with us attached."""
        report = self._run("attach", SUITE)
        self._compare("attach", report)
        refused = {name for name, found in report.items() if found["counts"].get("refused")}
        self._check("refused", refused, dict.fromkeys(refused, "built without us"))
        listed = len(self._exceptions["attach"]) + len(self._exceptions["refused"])
        if listed > MOST_EXCEPTIONS:
            self.wrong.append(f"exceptions.toml: {listed} exceptions, at most {MOST_EXCEPTIONS} are good")
        return f"attached {_total(report, 'attached')}: {_figures(report)}, {listed} exceptions"

    def resume(self, name: str, files: list[str], *options: str) -> str:
        """Run what had us attached again, with every call made twice."""
        only = ["--durable-only", str(_report_path("attach"))]
        report = self._run(name, files, *only, *options)
        self._compare(name, report)
        resumed = _total(report, "resumed")
        if resumed < LEAST_RESUMED[name]:
            self.wrong.append(f"{name}: only {resumed} calls were resumed, expected {LEAST_RESUMED[name]}")
        return f"{name} {resumed} calls resumed: {_figures(report)}"

    def _run(self, name: str, files: list[str], *options: str) -> Report:
        path = _report_path(name)
        path.unlink(missing_ok=True)
        found = [f"tests/strands/{file}" for file in files]
        found += [f"--ignore=tests/strands/{file}" for file in LEFT_OUT]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "strands_suite.plugin",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
        ]
        command += ["-n", "2", "--dist", "worksteal", "--timeout", "60", "--timeout-method", "thread"]
        command += ["-q", "--tb", "short", "-W", "ignore", "--durable-report", str(path)]
        command += ["--durable", name.partition("-")[0], *options]
        places = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(places), "AWS_EC2_METADATA_DISABLED": "true"}
        with path.with_suffix(".log").open("w") as log:
            subprocess.run(
                [*command, *found], cwd=self._source, stdout=log, stderr=log, env={**os.environ, **environment}
            )
        if not path.exists():
            sys.exit(f"{name}: pytest did not run:\n{path.with_suffix('.log').read_text()[-3000:]}")
        report: Report = json.loads(path.read_text())
        print(f"{name}: {_figures(report)}", flush=True)
        return report

    def _compare(self, table: str, report: Report) -> None:
        """Note every test that passes without us and not with us."""
        sound = {name for name, found in self.baseline.items() if found["outcome"] == "passed"}
        failed = {name for name in sound & set(report) if report[name]["outcome"] != "passed"}
        if table == "attach":
            failed |= sound - set(report)
        self._check(table, failed, {name: report.get(name, {}).get("error", "did not run") for name in failed})

    def _check(self, table: str, found: set[str], why: dict[str, str]) -> None:
        listed = set(self._exceptions[table])
        self.wrong += [f"{table}: {name}\n    {why[name].strip()}" for name in sorted(found - listed)]
        self.wrong += [f"{table}: {name} is in exceptions.toml, and is none" for name in sorted(listed - found)]


def _report_path(name: str) -> Path:
    return CACHE / f"{name}.json"


def _total(report: Report, count: str) -> int:
    return sum(found["counts"].get(count, 0) for found in report.values())


def _figures(report: Report) -> str:
    outcomes = Counter(found["outcome"] for found in report.values())
    return f"{outcomes['passed']} passed, {outcomes['failed']} failed"


def main() -> None:
    """Run it all, and say what came out in one line."""
    suite = Suite(fetched())
    lines = [f"Strands {strands_version()} alone: {_figures(suite.baseline)}", suite.attach()]
    lines += [suite.resume("return", SUITE)]
    lines += [suite.resume("crash-answer", CRASHED, "--durable-crash-at", "model.done:after@1")]
    lines += [suite.resume("crash-tool", CRASHED, "--durable-crash-at", "tool.done:after@1")]
    for line in suite.wrong:
        print(line)
    print("; ".join(lines))
    if suite.wrong:
        sys.exit(f"{len(suite.wrong)} not as expected; the logs are in {CACHE.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
