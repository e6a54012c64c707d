"""Values that no command expects, for every argument and option that there is: an answer with what to do, never a raw error."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from strands import Agent

from strands_durable import Durability
from strands_durable._cli import main
from strands_durable._cli import ui as ui_command
from strands_durable._cli import worker as worker_command
from strands_durable.testing import ScriptedModel

from ..commands import AGENTS, cli

HUGE = "9" * 40
FEW = [HUGE, "-1", "nan", "", "a\0b", "folder", "/proc/nope/x", "file/x", "\udcff"]
"""A huge integer, no number, nothing, a folder, a parent that is no folder or cannot be made, bytes that are no text."""
MORE = [
    *("9" * 5000, f"-{HUGE}", "0", "inf", "-inf", "1e400", "1e-400", "0x10", "1_0", "٣", "1" + "0" * 300),
    *(
        " ",
        "\n",
        "x" * 100_000,
        "é\x1b[31m",
        "%s%n%(x)s",
        "{0}",
        "../..",
        "/",
        ".",
        "~",
        "-",
        "--",
        "=",
        "a=",
        "=b",
        "a=b=c",
    ),
    *(
        "/dev/full",
        "unreadable",
        "no such file",
        "folder/missing/x",
        "file:///etc/passwd",
        "sqlite://",
        "sqlite:///",
        "://",
    ),
    *(
        "sqlite:///runs.db?worker=x",
        "http://[",
        "memory://x?y",
        "postgresql://u:hunter2@127.0.0.1:1/x",
        "9" * 30 + "d",
        "1e9d",
        "nand",
        "-3h",
        "null",
        "{",
    ),
    *(
        "[" * 3000,
        '{"a":' * 3000,
        "[1e999]",
        '"\\ud800"',
        "NaN",
        "2025-13-45",
        "0001-01-01",
        "9999-12-31T23:59:59+14:00",
    ),
    *(
        "127.0.0.1:99999",
        "[::1",
        ":0",
        "host:-1",
        "a:b:c",
        "module:",
        ":agent",
        "travel.py:",
        "os",
        "os:path",
        "runs.db",
    ),
]
"""What is at work beside the value in question: none of it may run for long, wait for a terminal or leave the folder."""
LINES: dict[str, list[str]] = {
    "backup": ["to.db"],
    "cancel": ["trip"],
    "export": ["trip"],
    "fork": ["trip"],
    "hold": ["trip"],
    "import": ["trip.json"],
    "release": ["trip"],
    "respond": ["trip", "--answer", "yes"],
    "resume": ["trip"],
    "rm": ["nothing"],
    "run": [f"{AGENTS}:planner", "Go", "--detach"],
    "show": ["trip"],
    "watch": ["trip"],
    "worker": [AGENTS],
}
OPTION_FOR_MANY = ("--status", "--agent", "--since", "--tag", "--search", "--older-than")


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Return every argument and every option that takes a value, of every command; first of those that add no execution."""
    context = click.Context(main)
    for name in sorted(main.list_commands(context), key=lambda name: name in ("fork", "import", "run")):
        command = main.get_command(context, name)
        assert command is not None
        yield from ((name, each) for each in command.params if not getattr(each, "is_flag", False))


def line(command: str, parameter: click.Parameter, value: str) -> list[str]:
    """Return a command line that is right but for one value."""
    given, option = list(LINES.get(command, [])), parameter.opts[0]
    if isinstance(parameter, click.Argument):
        names = [each.name for name, each in parameters() if name == command and isinstance(each, click.Argument)]
        at = names.index(parameter.name)
        options = given[len(names) :]
        return [command, *options, "--backend=runs.db", "--", *[*given[:at], value, *given[at + 1 : len(names)]]]
    if option in OPTION_FOR_MANY and command in ("cancel", "resume", "rm"):
        given = ["--yes"]
    place = [] if option == "--backend" or command == "demo" else ["--backend=runs.db"]
    return [command, *given, *place, f"{option}={value}"]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a finished run, some files, and no server that listens or works for long."""
    Agent(model=ScriptedModel(["Hi."]), plugins=[Durability("runs.db", execution_id="trip")], callback_handler=None)(
        "Go"
    )
    assert cli("export", "trip", "--backend", "runs.db", "--to", "trip.json").exit_code == 0
    Path("folder").mkdir()
    Path("file").write_text("long enough")
    Path("unreadable").write_bytes(b"\xff\xfe\x00")
    Path("unreadable").chmod(0)
    monkeypatch.setattr(worker_command, "_work", lambda request, backend: None)
    monkeypatch.setattr("strands_durable.ui._server._served", lambda server, listener, backend: asyncio.sleep(0))
    monkeypatch.setenv("STRANDS_DURABLE_WEBHOOK_SECRET", "long enough to be a secret")
    assert ui_command


def complaints(*given: str) -> str:
    """Run a command; return what is wrong with how it ended."""
    said = cli(*given)
    if said.exception is not None and not isinstance(said.exception, SystemExit):
        return f"raised {said.exception!r:.300}"
    if said.exit_code not in range(8):
        return f"exit code {said.exit_code}"
    text = said.stderr if said.exit_code else ""
    if "Traceback" in said.output or "STRANDS_DURABLE_TRACEBACK" in text or "Errno" in text:
        return f"raw error: {text:.300}"
    if said.exit_code in (1, 2) and not re.search(r"(?m)^(Error: |PROBLEM|Usage)|Nothing|cannot|damaged", said.output):
        return f"no error: {said.output:.300}"
    if said.exit_code == 1 and len(text) > 3000:
        return f"an error of {len(text)} characters"
    return ""


def ask(values: list[str], which: int = 0, of: int = 1) -> None:
    found, was = [], os.getcwd()
    for number, (command, parameter) in enumerate(parameters()):
        if number % of != which:
            continue
        for value in values:
            given = line(command, parameter, value)
            wrong = complaints(*given)
            os.chdir(was)
            found += [f"{' '.join(given):.200}: {wrong}"] if wrong else []
    assert not found, "\n".join([f"{len(found)} in all", *found])


def test_no_value_of_any_option_gives_a_raw_error(store: None) -> None:
    ask(FEW)


@pytest.mark.long
@pytest.mark.parametrize("which", range(4))
def test_no_odd_value_of_any_option_gives_a_raw_error(store: None, which: int) -> None:
    ask(MORE, which, 4)


def test_every_command_has_a_line() -> None:
    context: Any = click.Context(main)
    needy = {name for name, each in parameters() if isinstance(each, click.Argument) and each.required}
    assert needy <= set(LINES) <= set(main.list_commands(context))


@pytest.mark.parametrize(
    "given",
    [
        *(["worker", AGENTS, "--drain-seconds", value] for value in ("nan", "inf", "-inf", "-1", "1e400", HUGE, "")),
        *(["worker", AGENTS, "--concurrency", value] for value in ("0", "-1", HUGE, "nan", "1.5")),
        *(["run", f"{AGENTS}:planner", "Go", "--detach", "--timeout", value] for value in ("nan", "inf", "-1", HUGE)),
        *(["watch", "trip", "--after", value] for value in ("-1", HUGE, f"-{HUGE}", "nan")),
        *(["ls", "--limit", value] for value in ("0", "-1", HUGE)),
        *(["show", "trip", "--run", value] for value in ("-1", HUGE)),
        *(["fork", "trip", "--at", value] for value in ("-1", HUGE)),
        *(["ui", "--port", value] for value in ("-1", "65536", HUGE)),
        *(["worker", AGENTS, "--health", value] for value in ("-1", "65536", HUGE, "")),
        *(["ls", "--since", value] for value in (f"{HUGE}d", "-3h", "nan", "")),
        *(["ls", option] for option in ("--backend=", "--backend= ")),
        *(["export", "trip", option] for option in ("--to=folder", "--to=", "--to=/proc/nope/x", "--to=file/x")),
    ],
    ids=" ".join,
)
def test_a_number_path_or_time_that_is_none_is_wrong_usage(store: None, given: list[str]) -> None:
    said = cli(*given, *([] if any("--backend" in each for each in given) else ["--backend", "runs.db"]))
    assert (said.exit_code, "Error: " in said.stderr) == (2, True), said.output
    assert len(said.stderr) < 1000


SECRETS = [
    ["ui", "--port=0", "--password-file"],
    ["worker", AGENTS, "--webhook=http://127.0.0.1:1", "--webhook-secret-file"],
]


@pytest.mark.parametrize("given", SECRETS, ids=lambda given: given[0])
def test_a_file_without_an_end_is_not_read_to_its_end(store: None, given: list[str]) -> None:
    limit = "import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3,) * 2)"
    code = f"{limit}; runpy.run_module('strands_durable', run_name='__main__')"
    command = [sys.executable, "-c", code, *given, "/dev/zero", "--backend=runs.db"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode in (1, 2)
    assert "/dev/zero" in ended.stderr
    assert "more than 65,536 bytes" in ended.stderr


def test_an_export_to_a_pipe_is_written_to_it(store: None) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert cli("export", "trip", "--to", "pipe", "--backend", "runs.db").exit_code == 0
        assert stat.S_ISFIFO(os.stat("pipe").st_mode), "it is not replaced by a file"
        assert os.read(reader, 1 << 16).decode() == Path("trip.json").read_text()
    finally:
        os.close(reader)


def test_an_export_to_a_full_device_is_an_error_and_leaves_the_device(store: None) -> None:
    found = cli("export", "trip", "--to", "/dev/full", "--backend", "runs.db")
    assert found.exit_code == 1
    assert "/dev/full cannot be written" in found.stderr
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_device_is_no_store_and_keeps_its_mode(store: None) -> None:
    os.mkfifo("pipe", 0o644)
    found = cli("run", f"{AGENTS}:planner", "Go", "--detach", "--backend", "pipe")
    assert found.exit_code == 1
    assert "it is not a file" in found.stderr
    assert stat.S_IMODE(os.stat("pipe").st_mode) == 0o644


@pytest.mark.parametrize("more", [[], ["--force"]])
def test_a_backup_does_not_replace_a_pipe(store: None, more: list[str]) -> None:
    os.mkfifo("pipe")
    found = cli("backup", "pipe", *more, "--backend", "runs.db")
    assert found.exit_code == 1
    assert "it is not a file" in found.stderr
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
