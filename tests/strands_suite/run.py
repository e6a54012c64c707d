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
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from .source import CACHE, fetched, strands_version

HERE = Path(__file__).parent
MOST_EXCEPTIONS = 15
MOST_RUN_AGAIN = 25
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
"""Files whose tests look at how calls end, chosen after a run over all of them: here a crash disturbs few tests, and each of
those was looked into. In the others many count hooks, callbacks, spans and stream events, which come again in the process that
goes on, or have threads race each other, where a simulated crash hits all of them. Not every failure there is explained."""

Report = dict[str, dict[str, Any]]


class Suite:
    """The runs so far, and what was wrong with them."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._exceptions = tomllib.loads((HERE / "exceptions.toml").read_text())
        self.baseline = self._run("off", SUITE)
        self._sound = _passed(self.baseline)
        self.wrong: list[str] = []

    def attach(self) -> str:
        """Run everything with us attached."""
        report = self._checked("attach", SUITE)
        refused = {name: "it was built without us" for name, found in report.items() if found["counts"].get("refused")}
        self._compare("refused", refused)
        listed = len(self._exceptions["attach"]) + len(self._exceptions["refused"])
        if listed > MOST_EXCEPTIONS:
            self.wrong.append(f"exceptions.toml: {listed} exceptions, at most {MOST_EXCEPTIONS} are good")
        self._sound &= _passed(report)
        return f"attached {_total(report, 'attached')} times: {_figures(report)}, {listed} exceptions"

    def resume(self, name: str, files: list[str], *options: str) -> str:
        """Run what passed with us attached again, with every call made twice."""
        report = self._checked(name, files, f"--durable-only={_report_path('attach')}", *options)
        resumed = _total(report, "resumed")
        if resumed < LEAST_RESUMED[name]:
            self.wrong.append(f"{name}: only {resumed} calls were resumed, expected {LEAST_RESUMED[name]}")
        return f"{name} {resumed} calls resumed: {_figures(report)}"

    def _checked(self, name: str, files: list[str], *options: str) -> Report:
        """Run, and note every test that is sound and fails."""
        report = self._run(name, files, *options)
        failed = self._sound - _passed(report) if name == "attach" else self._sound & set(report) - _passed(report)
        odd = sorted(failed - set(self._exceptions[name]))
        if 0 < len(odd) <= MOST_RUN_AGAIN:  # some of Strands' tests race with the clock
            again = self._run(name, odd, *options, report_as=f"{name}-again")
            report |= {test: found for test, found in again.items() if found["outcome"] == "passed"}
        self._compare(
            name, {test: report.get(test, {}).get("error", "it did not run") for test in failed - _passed(report)}
        )
        return report

    def _compare(self, table: str, found: dict[str, str]) -> None:
        """Hold what was found against what is listed."""
        listed = set(self._exceptions[table])
        self.wrong += [f"{table}: {name}\n    {found[name].strip()}" for name in sorted(set(found) - listed)]
        judged = {name for name in listed if name in self._sound or name not in self.baseline}
        self.wrong += [f"{table}: {name} is in exceptions.toml, and is none" for name in sorted(judged - set(found))]

    def _run(self, name: str, files: list[str], *options: str, report_as: str | None = None) -> Report:
        path = _report_path(report_as or name)
        path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-p", "strands_suite.plugin", "-p", "no:cacheprovider"]
        command += ["--config-file=pyproject.toml", "--rootdir=.", "-o", "addopts="]
        command += ["-n", "2", "--dist", "worksteal", "--timeout", "30", "--timeout-method", "thread"]
        command += ["-q", "--tb", "short", "-W", "ignore", f"--durable-report={path}"]
        command += ["--durable", name.partition("-")[0], *options]
        command += [file if "::" in file else f"tests/strands/{file}" for file in files]
        command += [f"--ignore=tests/strands/{file}" for file in LEFT_OUT]
        places = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(places), "AWS_EC2_METADATA_DISABLED": "true"}
        with path.with_suffix(".log").open("w") as log:
            subprocess.run(command, cwd=self._source, stdout=log, stderr=log, env={**os.environ, **environment})
        if not path.exists():
            sys.exit(f"{name}: pytest did not run:\n{path.with_suffix('.log').read_text()[-3000:]}")
        report: Report = json.loads(path.read_text())
        print(f"{report_as or name}: {_figures(report)}", flush=True)
        return report


def _passed(report: Report) -> set[str]:
    return {name for name, found in report.items() if found["outcome"] == "passed"}


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
    lines += [suite.resume("crash-answer", CRASHED, "--durable-crash-at=model.done:after@1")]
    lines += [suite.resume("crash-tool", CRASHED, "--durable-crash-at=tool.done:after@1")]
    for line in suite.wrong:
        print(line)
    print("; ".join(lines))
    if suite.wrong:
        sys.exit(f"{len(suite.wrong)} not as expected; the logs are in {CACHE.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
