"""The README's own path, as printed, beside a fresh clone: installed, killed, dispatched, killed, recovered, answered."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.unit.test_documents import FENCE, README, ROOT, shown, unexpected

STATUS = {"Killed": 128 + signal.SIGKILL, "is SUSPENDED": 5}
"""What a command ends with whose output has these words; all others end with 0."""


def fresh_environment(folder: Path) -> dict[str, str]:
    """Return an environment with a virtualenv of its own, in which pip finds no release of this package.

    The dependencies are those that are installed already: there need be no network.
    """
    venv.create(folder / "venv")
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = folder / "venv" / "bin" / "pip"
    pip.write_text(
        '#!/bin/sh\nexec python -m pip "$@"\n'
    )  # pip is among the dependencies; a copy of its own takes seconds
    pip.chmod(0o755)
    found = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "STRANDS_"))}
    return {
        **found,
        "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip takes this as the value of --build-isolation
        "PIP_FIND_LINKS": "",
        "PIP_IGNORE_INSTALLED": "1",
    }


def commands() -> list[tuple[str, str]]:
    """Return the commands of the blocks marked `run`, with what is shown of each; scripts are put where they are run."""
    found: list[tuple[str, str]] = []
    for language, is_run, block in FENCE.findall(README):
        if is_run and language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name is not None
            Path(name[1]).write_text(block)
        elif is_run:
            found += re.findall(r"^\$ (.+)\n((?:[^$].*\n|\n)*)", block, re.MULTILINE)
    return found


def performed(commands: list[str], environment: dict[str, str]) -> list[tuple[int, str, str]]:
    """Return the status, the output and the errors of commands that are typed into one shell."""
    Path("ends").mkdir()
    commands = [f"sleep 1\n{each}" if "respond" in each else each for each in commands]  # a person takes a moment
    to = "ends/{0}.out 2> ends/{0}.err; echo $? > ends/{0}.status"
    typed = [f"{{\n{command}\n}} > {to.format(number)}" for number, command in enumerate(commands)]
    end = "for job in $(jobs -p); do wait $job; echo $? >> ends/jobs; done"
    shell = subprocess.Popen(["bash", "-c", "\n".join([*typed, end])], env=environment, start_new_session=True)
    try:
        shell.wait(timeout=100)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        raise

    def read(number: int, what: str) -> str:
        return Path(f"ends/{number}.{what}").read_text()

    return [(int(read(n, "status")), read(n, "out"), read(n, "err")) for n in range(len(commands))]


def test_the_path_of_the_readme(tmp_path: Path) -> None:
    path = commands()
    Path("strands-durable").symlink_to(ROOT)  # what `git clone` leaves
    ends = performed([command for command, _ in path], fresh_environment(tmp_path / "fresh"))
    for (command, output), (status, said, errors) in zip(path, ends, strict=True):
        told = f"$ {command}\n{said}{errors}"
        assert status == next((STATUS[word] for word in STATUS if word in output), 0), told
        said = f"{said}Killed\n" if status == STATUS["Killed"] else said  # that is what an interactive shell says
        expected = re.escape(shown(output)).replace(re.escape("..."), ".*")
        assert not output or re.fullmatch(expected, shown(said), re.DOTALL), told
        assert not unexpected(errors), told
    assert Path("ends/jobs").read_text() == "0\n", "what was left to run beside it has ended in order"
    assert (tmp_path / "fresh" / "venv" / "bin" / "strands-durable").exists()
    assert [command.split()[0] for command, _ in path][:2] == ["pip", "python"]
    listed = [said for (command, _), (_, said, _) in zip(path, ends, strict=True) if command == "strands-durable ls"]
    assert set(re.findall(r"^trip-\d+", listed[-1], re.MULTILINE)) == {"trip-42", "trip-43"}, "all blocks use one store"
    assert {"run", "worker", "watch", "respond", "show"} <= {command.split()[1] for command, _ in path}
