"""`make test-repeat N=10`: `make test` again and again, each time in a new clone, every second time on a busy machine.

Each round clones what is committed into a new folder without a virtualenv, runs `make test` there, and then looks for processes
that belong to the folder: none may be left. It is recorded in `tests/repeat.jsonl`, to which lines are only added. Rounds of
the same code count, so a campaign may run over several sittings: commit the log in between. The first bad round ends it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOG = "tests/repeat.jsonl"
LIMIT_SECONDS = 30 * 60.0
_LINGER_SECONDS, _STACK_SECONDS, _LOOK_SECONDS = 10.0, 5.0, 0.2
_BUSY = ["nice", "-n", "10", sys.executable, "-c", "while True: pass"]
_OURS = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV", "PYTHONPATH", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS")
"""What a round must not inherit."""
_TAIL = 30


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Rounds of a command in clones of a repository."""

    source: Path = ROOT
    command: Sequence[str] = ("make", "test")
    limit_seconds: float = LIMIT_SECONDS
    log: str = LOG

    def run(self, rounds: int) -> bool:
        """Make rounds until so many good ones of this code are on record; False at the first that is not good."""
        while (done := self.good_rounds()) < rounds:
            entry = self._round(done + 1)
            with (self.source / self.log).open("a") as file:
                file.write(json.dumps(entry) + "\n")
            print(json.dumps(entry), flush=True)
            if entry["outcome"] != "passed":
                return False
        print(f"{done} of {rounds} rounds of code {self.code()} have passed.")
        return True

    def good_rounds(self) -> int:
        """Return how many rounds of this code are on record and good."""
        log, code = self.source / self.log, self.code()
        entries = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return sum(entry["code"] == code and entry["outcome"] == "passed" for entry in entries)

    def code(self) -> str:
        """Return a hash of all that is committed but the log itself."""
        files = [line for line in self._git("ls-tree", "-r", "HEAD") if not line.endswith(f"\t{self.log}")]
        return hashlib.sha256("\n".join(files).encode()).hexdigest()[:12]

    def _git(self, *words: str) -> list[str]:
        return subprocess.run(
            ["git", *words], cwd=self.source, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    def _round(self, number: int) -> dict[str, Any]:
        is_loaded = number % 2 == 0
        with tempfile.TemporaryDirectory(prefix="repeat-", ignore_cleanup_errors=True) as name, load(is_loaded):
            folder = Path(name).resolve()
            self._git("clone", "--quiet", str(self.source), str(folder / "clone"))
            began = time.monotonic()
            outcome, output = self._made(folder)
            seconds = round(time.monotonic() - began)
            left = _ended(folder)
        if outcome != "passed" or left:
            _, _, failures = output.partition("= FAILURES =")
            print(failures.partition("= warnings summary =")[0], *output.splitlines()[-_TAIL:], sep="\n")
        return {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "code": self.code(),
            "commit": self._git("rev-parse", "--short", "HEAD")[0],
            "round": number,
            "loaded": is_loaded,
            "outcome": "left processes" if outcome == "passed" and left else outcome,
            "seconds": seconds,
            **_counts(output),
            "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE),
            "left": left,
        }

    def _made(self, folder: Path) -> tuple[str, str]:
        """Run the command in a clone; return how it ended, and its output."""
        (folder / "tmp").mkdir()
        env = {name: value for name, value in os.environ.items() if name not in _OURS}
        log = folder / "output"
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command,
                cwd=folder / "clone",
                env={**env, "TMPDIR": str(folder / "tmp")},  # by which all that it starts is known
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(self.limit_seconds)
            except subprocess.TimeoutExpired:
                print(_stacks(folder), file=output)
                return "hung", log.read_text(errors="replace")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return ("passed" if code == 0 else "failed"), log.read_text(errors="replace")


@contextmanager
def load(is_wanted: bool) -> Iterator[None]:
    """Keep every core busy."""
    loops = [subprocess.Popen(_BUSY) for _ in range(os.cpu_count() or 1)] if is_wanted else []
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def _counts(output: str) -> dict[str, int]:
    """Return what pytest counted, of all its runs."""
    found = {name: re.findall(rf"(\d+) {name}", output) for name in ("passed", "failed", "error")}
    return {name: sum(map(int, counts)) for name, counts in found.items()}


def _belonging(folder: Path) -> dict[int, str]:
    """Return the processes that have to do with a folder, by folder, command line or environment, with their names."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            facts = os.fsencode(os.readlink(process / "cwd")) + (process / "cmdline").read_bytes()
            facts += (process / "environ").read_bytes()
            if os.fsencode(folder) in facts and (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found[int(process.name)] = (process / "comm").read_text().strip()
    return found


def _ended(folder: Path) -> list[str]:
    """Wait a moment until nothing of a folder runs; kill what does, and return its names."""
    deadline = time.monotonic() + _LINGER_SECONDS
    while (left := _belonging(folder)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return sorted(left.values())


def _stacks(folder: Path) -> str:
    """List what runs, and have every Python of it print the stacks of its threads, as pytest lets it do when it is aborted."""
    running = _belonging(folder)
    lines = [f"{pid} {' '.join(_words(pid))}" for pid in running]
    for pid, name in running.items():
        if name.startswith(("python", "pytest")):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
    time.sleep(_STACK_SECONDS)
    return "\n".join(["It hangs. What runs:", *lines])


def _words(pid: int) -> list[str]:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def main(given: Sequence[str]) -> int:
    """Run a campaign; return 1 if a round was not good."""
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=10, help="how many good rounds of this code to record")
    parser.add_argument("--limit-seconds", type=float, default=LIMIT_SECONDS, help="after how long a round hangs")
    options = parser.parse_args(given)
    if not Path("/proc").is_dir():
        sys.exit("It needs /proc, to see what is left running: use Linux.")
    return 0 if Campaign(limit_seconds=options.limit_seconds).run(options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
