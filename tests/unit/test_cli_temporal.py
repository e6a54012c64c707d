"""The command line on Temporal: the same commands, words and exit codes as on a file, and what is wrong in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from strands_durable.testing.temporal import TemporalServer
from tests.commands import AGENTS, cli, start
from tests.waiting import until

OTHERS = """
from strands import Agent
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel

@durable_agent
def greeter() -> Agent:
    return Agent(model=ScriptedModel(["Hello."]))
"""


@pytest.fixture
def url(temporal: TemporalServer) -> str:
    name = uuid.uuid4().hex[:8]
    return f"{temporal.url}?task_queue={name}&prefix={name}-"


@contextmanager
def worker(url: str, file: str = AGENTS) -> Iterator[subprocess.Popen[str]]:
    """Have a worker process at work; in the end it is stopped in order."""
    process = start("worker", file, "--backend", url, "--drain-seconds", "5")
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert out.startswith(f"Worker {process.pid} on {url}: ")


def on(url: str, *args: str) -> Result:
    return cli(*args, "--backend", url)


def listed(url: str, *args: str) -> list[Any]:
    found: list[Any] = json.loads(on(url, "ls", "--json", *args).stdout)
    return found


def status(url: str, execution_id: str) -> str:
    return str(json.loads(on(url, "show", execution_id, "--json").stdout)["execution"]["status"])


def test_an_execution_is_dispatched_seen_answered_and_forgotten(url: str) -> None:
    assert on(url, "ls").stdout == "No executions yet.\n"
    assert on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip", "--detach").stdout == "trip\n"
    text = on(url, "show", "trip").stdout
    assert "agent   asker (dispatched)\nstatus  PENDING\n" in text
    assert f"next    a worker takes it up: strands-durable worker FILE --backend '{url}'\n" in text
    with worker(url):
        asked = on(url, "watch", "trip")
        assert asked.exit_code == 5
        assert "Nobody is at work on it now; a worker takes it up" in asked.stderr
        lines = asked.stdout.splitlines()
        assert [line.split()[:4] for line in lines[:2]] == [
            ["1", "model", "1", "done"],
            ["2", "1.0", "approve", "interrupted"],
        ]
        assert "trip is SUSPENDED." in lines
        assert f"Next: strands-durable respond trip --backend '{url}' answers it." in lines
        busy = on(url, "rm", "trip", "--yes")
        assert (busy.exit_code, busy.stderr.count("\n")) == (1, 1)
        assert "cancel it first" in busy.stderr
        assert on(url, "respond", "trip", "--answer", "no-such-id=1").exit_code == 1
        given = json.loads(on(url, "respond", "trip", "--answer", '"yes"', "--json").stdout)
        assert (len(given["answered"]), given["questions"]) == (1, [])
        done = on(url, "watch", "trip", "--after", "2")
        assert done.exit_code == 0
        assert "1.0 approve            done        attempt 2  trip: yes" in done.stdout.splitlines()[0]
        assert on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip").stdout == "Approved.\n"
        assert on(url, "run", f"{AGENTS}:asker", "Stop", "--id", "trip").exit_code == 1
        assert on(url, "respond", "trip").stderr == "Error: Execution 'trip' is COMPLETED and waits for no answer.\n"
        assert on(url, "resume", "trip").stdout == "trip is COMPLETED: there is nothing to resume.\n"
        assert on(url, "cancel", "trip").stdout == "trip is COMPLETED: there is nothing to cancel.\n"
    until(lambda: [(found["status"], found["steps"]) for found in listed(url)] == [("COMPLETED", 4)])
    assert json.loads(on(url, "rm", "--all-completed", "--yes", "--json").stdout) == {"removed": ["trip"]}
    assert listed(url) == []
    assert on(url, "show", "trip").exit_code == 3
    assert on(url, "run", f"{AGENTS}:asker", "Another", "--id", "trip", "--detach").stdout == "trip\n"
    assert on(url, "cancel", "trip").stdout == "trip is CANCELLED.\n"


def test_failures_and_cancels(url: str) -> None:
    with worker(url) as process:
        failed = on(url, "run", f"{AGENTS}:broken", "Go", "--id", "bad")
        assert failed.exit_code == 4
        assert "has failed: EventLoopException: The model was asked for turn 1" in failed.stderr
        assert on(url, "resume", "bad").stdout.startswith("Recorded. Next: ")
        assert on(url, "watch", "bad").exit_code == 4
        until(lambda: [(found["status"], found["steps"]) for found in listed(url)] == [("FAILED", 4)])
        assert [found["execution_id"] for found in listed(url, "--status", "failed")] == ["bad"]

        on(url, "run", f"{AGENTS}:waiter", "Go", "--id", "long", "--detach")
        until(Path("waiting").exists)
        owner = f"process {process.pid} on {os.uname().nodename}"
        until(lambda: [found["owner"] for found in listed(url, "--status", "running")] == [owner])
        assert on(url, "ls").stdout.splitlines()[2].split()[:3] == ["long", "waiter", "RUNNING"]
        text = on(url, "show", "long").stdout
        assert f"owner   {owner}\n" in text
        assert "running" in text.splitlines()[-1]
        late = start("run", f"{AGENTS}:waiter", "--id", "long", "--timeout", "0.1", "--backend", url)
        assert "A worker goes on with it, or: " in late.communicate(timeout=60)[1]
        assert late.returncode == 7
        asked = on(url, "cancel", "long").stdout
        assert asked == f"Asked {owner} to stop; long is CANCELLED as soon as it has.\n"
        Path("go").touch()
        until(lambda: status(url, "long") == "CANCELLED")
        assert on(url, "watch", "long").exit_code == on(url, "run", f"{AGENTS}:waiter", "--id", "long").exit_code == 6


def test_run_needs_no_worker_and_takes_nothing_else_up(url: str) -> None:
    on(url, "run", f"{AGENTS}:waiter", "Go", "--id", "other", "--detach")
    found = on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip", "--json")
    assert (found.exit_code, json.loads(found.stdout)["interrupts"][0]["name"]) == (5, "approval")
    assert on(url, "respond", "trip", "--answer", '"yes"').stdout.startswith("Recorded. Next: a worker takes it up")
    again = on(url, "run", f"{AGENTS}:asker", "--id", "trip")
    assert (again.exit_code, again.stdout) == (0, "Approved.\n")
    assert status(url, "other") == "PENDING"
    assert not Path("waiting").exists()


def test_a_note_says_why_an_execution_waits(url: str) -> None:
    Path("others.py").write_text(OTHERS)
    on(url, "run", f"{AGENTS}:planner", "Go", "--id", "trip", "--detach")
    why = "no agent 'planner' here (there are greeter); start a worker with the version that dispatched it"
    with worker(url, "others.py"):
        until(lambda: listed(url)[0]["note"] == why)
        assert on(url, "ls").stdout.splitlines()[-1] == f"trip waits: {why}"
        assert f"waits   {why}\n" in on(url, "show", "trip").stdout


# What is wrong


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?namespace=nowhere", "is not usable: there is no namespace 'nowhere'. Name another one in the URL"),
        ("?name_space=x", "there is no name_space in it; a Temporal URL is temporal://HOST:PORT, with namespace, "),
        ("?heartbeat_seconds=soon", "could not convert string to float: 'soon'; a Temporal URL is"),
        ("?heartbeat_seconds=0", "heartbeat_seconds is more than 0, max_events not less; a Temporal URL is"),
        ("/path", "there is more in it than a host and a port; a Temporal URL is"),
    ],
)
@pytest.mark.parametrize("args", [["ls"], ["show", "trip"], ["run", f"{AGENTS}:planner", "Go"], ["worker", AGENTS]])
def test_what_is_wrong_with_a_url_is_one_line(temporal: TemporalServer, args: list[str], query: str, text: str) -> None:
    result = on(temporal.url + query, *args)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert text in result.stderr


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    for args in (["ls"], ["worker", AGENTS]):
        result = on("temporal://me:hush@127.0.0.1:7233", *args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "TLS and API keys come from Temporal's own environment variables" in result.stderr
        assert "hush" not in result.output


@pytest.mark.parametrize("args", [["ls"], ["respond", "trip"], ["run", f"{AGENTS}:planner", "Go"], ["worker", AGENTS]])
def test_a_server_that_is_not_there_is_one_line_and_soon(args: list[str]) -> None:
    begin = time.monotonic()
    result = on("temporal://127.0.0.1:1", *args)
    assert time.monotonic() - begin < 12
    assert result.exit_code == 1
    assert "Error: temporal://127.0.0.1:1 is not usable: no Temporal server answers at 127.0.0.1:1 (" in result.stderr
    assert "Start one ('temporal server start-dev' on your own machine), or mend the address." in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_address_that_is_not_in_the_url_comes_from_temporals_environment(temporal: TemporalServer) -> None:
    env = {"TEMPORAL_ADDRESS": temporal.address, "STRANDS_DURABLE_BACKEND": "temporal://?task_queue=nobody-is-here"}
    assert cli("ls", env=env).stdout == "No executions yet.\n"
    assert cli("ls", env={**env, "TEMPORAL_NAMESPACE": "nowhere"}).exit_code == 1


CODE = """
import sys
if sys.argv[1] == "without": sys.modules["temporalio"] = None
from strands_durable._cli import main
try:
    main(sys.argv[2:], standalone_mode=False)
finally:
    print(sorted({name.split(".")[0] for name in sys.modules} & {"strands", "rich"}), "temporalio.worker" in sys.modules)
    sys.stdout.flush()
    __import__("os")._exit(0)
"""


def test_commands_that_run_no_agent_import_no_strands(url: str) -> None:
    assert on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip").exit_code == 5
    for args, expected in (
        (["ls"], "['rich'] False"), (["ls", "--json"], "[] False"), (["show", "trip", "--json"], "[] False"),
        (["watch", "trip"], "[] False"), (["respond", "trip", "--answer", '"yes"'], "[] True"),
        (["cancel", "trip"], "[] False"), (["rm", "nobody", "--yes"], "[] False"),
    ):  # fmt: skip
        command = [sys.executable, "-c", CODE, "with", *args, "--backend", url]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.stdout.splitlines()[-1] == expected, ended.stderr


def test_without_the_extra_the_command_that_installs_it_is_named() -> None:
    command = [sys.executable, "-c", CODE, "without", "ls", "--backend", "temporal://127.0.0.1:7233"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stderr == (
        "Error: A temporal:// backend is not supported: temporalio is not installed. "
        "Install it: pip install 'strands-durable[temporal]'\n"
    )
