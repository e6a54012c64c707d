"""The command line for tests: in this process, in a new one, and on a terminal. Also fills the page that shows its help.

``python -m tests.commands`` writes what ``--help`` says into docs/cli.md.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from strands_durable._cli import main
from strands_durable._dispatch import registry

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cli.md"
AGENTS = str(ROOT / "tests" / "unit" / "travel.py")
COMMAND = [sys.executable, "-m", "strands_durable"]
_HELP = re.compile(r"(?P<begin><!-- help (?P<name>[\w-]+) -->\n).*?(?P<end><!-- /help -->)", re.DOTALL)


@contextmanager
def as_new_process() -> Iterator[None]:
    """Forget afterwards which agents were loaded, and from where."""
    path, modules, agents = list(sys.path), set(sys.modules), dict(registry.agents)
    registry.agents.clear()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in {new for new in set(sys.modules) - modules if not new.startswith("strands_durable._")}:
            if (getattr(sys.modules[name], "__file__", None) or "").endswith(("travel.py", "agents.py")):
                del sys.modules[name]
        registry.agents.clear()
        registry.agents.update(agents)


def cli(*args: str, env: dict[str, str] | None = None, given: str | None = None) -> Result:
    """Run a command in this process, as if it were a new one."""
    with as_new_process():
        return CliRunner().invoke(main, [*args], env={"COLUMNS": None, **(env or {})}, input=given)


def start(*args: str, **options: Any) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([*COMMAND, *args], **pipes)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *args: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(each, signal.SIG_DFL)  # who tests in the background may ignore them, a terminal does not
            os.execv(COMMAND[0], [*COMMAND, *args])
        self.seen = ""

    def read_until(self, text: str) -> None:
        """Read until ``text`` is on the screen."""
        before = len(self.seen)
        while text not in self.seen[before:]:
            assert self._read(), f"{text!r} did not come; there was:\n{self.seen}"

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._file, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        try:
            found = os.read(self._file, 4096)
        except OSError:  # the other side is closed
            return False
        self.seen += found.decode().replace("\r\n", "\n")
        return bool(found)


def help_of(name: str) -> str:
    """Return what ``--help`` says, in the width of a page."""
    command = main if name == "main" else main.commands[name]
    full_name = "strands-durable" if name == "main" else f"strands-durable {name}"
    context = click.Context(command, info_name=full_name, terminal_width=90, help_option_names=["-h", "--help"])
    return command.get_help(context)


def filled(text: str) -> str:
    """Return a page with the help of each command that it has a place for."""
    return _HELP.sub(lambda found: f"{found['begin']}```text\n{help_of(found['name'])}\n```\n{found['end']}", text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
