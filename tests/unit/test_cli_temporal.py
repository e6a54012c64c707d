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
from dataclasses import dataclass
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

CODED = """
import dataclasses, os
from strands import Agent
from strands_durable import durable_agent
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing import ScriptedModel
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec

class Codec(PayloadCodec):
    async def encode(self, payloads):
        return [Payload(metadata={"encoding": b"secret"}, data=payload.SerializeToString()[::-1]) for payload in payloads]

    async def decode(self, payloads):
        return [Payload.FromString(payload.data[::-1]) for payload in payloads]

converter = dataclasses.replace(DataConverter.default, payload_codec=Codec())
backend = TemporalBackend(os.environ["STRANDS_DURABLE_BACKEND"], connect={"data_converter": converter})

@durable_agent(durable_backend=backend)
def greeter() -> Agent:
    return Agent(model=ScriptedModel(["Hello."]))
"""


@pytest.fixture
def url(temporal: TemporalServer) -> str:
    """Where nobody works."""
    name = uuid.uuid4().hex[:8]
    return f"{temporal.url}?task_queue={name}&prefix={name}-"


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker process, the same for all tests of this file."""

    url: str
    folder: Path
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def worker(temporal: TemporalServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Have a worker at work on the agents of travel.py; in the end it is stopped in order."""
    url, folder = f"{temporal.url}?task_queue=travel&prefix=travel-", tmp_path_factory.mktemp("worker")
    process = start("worker", AGENTS, "--backend", url, cwd=folder)
    try:
        yield Worker(url=url, folder=folder, process=process)
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert out.startswith(f"Worker {process.pid} on {url}: asker, broken, ")
    assert "agent=<" in err
    assert ", alone=<False> | claimed" in err


def on(url: str, *args: str) -> Result:
    return cli(*args, "--backend", url)


def listed(url: str, *args: str) -> list[Any]:
    found: list[Any] = json.loads(on(url, "ls", "--json", *args).stdout)
    return found


def shown(url: str, execution_id: str) -> Any:
    return json.loads(on(url, "show", execution_id, "--json").stdout)


def named(url: str, execution_id: str) -> list[tuple[str, int]]:
    return [(found["status"], found["steps"]) for found in listed(url) if found["execution_id"] == execution_id]


def test_an_execution_is_dispatched_seen_answered_and_forgotten(worker: Worker) -> None:
    url = worker.url
    assert on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip", "--detach").stdout == "trip\n"
    asked = on(url, "watch", "trip")
    lines = asked.stdout.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [["1", "model", "1"], ["2", "1.0", "approve"]]
    assert (asked.exit_code, lines[2]) == (5, "trip is SUSPENDED.")
    assert lines[-1] == f"Next: answer its questions with strands-durable respond trip --backend '{url}'"
    busy = on(url, "rm", "trip", "--yes")
    assert (busy.exit_code, busy.stderr.count("\n")) == (1, 1)
    assert "'strands-durable cancel trip'" in busy.stderr
    assert on(url, "respond", "trip", "--answer", "no-such-id=1").exit_code == 1
    given = json.loads(on(url, "respond", "trip", "--answer", '"yes"', "--json").stdout)
    assert (len(given["answered"]), given["questions"]) == (1, [])
    done = on(url, "watch", "trip", "--after", "2")
    assert done.exit_code == 0
    assert "1.0 approve            done        attempt 2  trip: yes" in done.stdout.splitlines()[0]
    assert [step["attempt"] for step in shown(url, "trip")["calls"][0]["steps"]] == [1, 1, 2, 1]
    assert on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip").stdout == "Approved.\n"
    assert on(url, "run", f"{AGENTS}:asker", "Stop", "--id", "trip").exit_code == 1
    assert on(url, "respond", "trip").stderr == "Error: Execution 'trip' is COMPLETED and has no open question.\n"
    assert on(url, "resume", "trip").stdout == "trip is COMPLETED: nothing to resume.\n"
    assert on(url, "cancel", "trip").stdout == "trip is COMPLETED: nothing to cancel.\n"
    until(lambda: named(url, "trip") == [("COMPLETED", 4)])
    assert json.loads(on(url, "rm", "--all-completed", "--yes", "--json").stdout)["removed"] == ["trip"]
    assert named(url, "trip") == []
    assert on(url, "show", "trip").exit_code == 3
    assert on(url, "run", f"{AGENTS}:asker", "Another", "--id", "trip", "--detach").stdout == "trip\n"


def test_failures_are_tried_again(worker: Worker) -> None:
    url = worker.url
    failed = on(url, "run", f"{AGENTS}:broken", "Go", "--id", "bad")
    assert failed.exit_code == 4
    assert "failed: EventLoopException: The model was asked for turn 1" in failed.stderr
    assert on(url, "resume", "bad").stdout.startswith("Requested. Next: ")
    assert on(url, "watch", "bad").exit_code == 4
    until(lambda: named(url, "bad") == [("FAILED", 4)])
    assert [found["execution_id"] for found in listed(url, "--status", "failed")] == ["bad"]


def test_what_is_at_work_is_seen_and_cancelled(worker: Worker) -> None:
    url, owner = worker.url, f"process {worker.process.pid} on {os.uname().nodename}"
    on(url, "run", f"{AGENTS}:waiter", "Go", "--id", "long", "--detach")
    until((worker.folder / "waiting").exists)
    until(lambda: [found["owner"] for found in listed(url, "--status", "running")] == [owner])
    text = on(url, "show", "long").stdout
    assert f"owner   {owner}\n" in text
    assert "running" in text.splitlines()[-1]
    assert f"next    follow it with strands-durable watch long --backend '{url}'\n" in text
    asked = on(url, "cancel", "long").stdout
    assert asked == f"Requested. long is CANCELLED as soon as {owner} has stopped it.\n"
    (worker.folder / "go").touch()
    until(lambda: shown(url, "long")["execution"]["status"] == "CANCELLED")
    assert on(url, "watch", "long").exit_code == on(url, "run", f"{AGENTS}:waiter", "--id", "long").exit_code == 6
    assert on(url, "cancel", "long").stdout == "long is CANCELLED.\n"


def test_a_note_says_why_an_execution_waits(worker: Worker) -> None:
    Path("others.py").write_text(OTHERS)
    on(worker.url, "run", "others.py", "Go", "--id", "other", "--detach")
    why = "no agent 'greeter' here (there are asker, broken, hasty, killer, planner, seasonal, twice, unbuilt, waiter)"
    until(lambda: any((found["note"] or "").startswith(why) for found in listed(worker.url, "--status", "pending")))
    assert f"other waits: {why}; start a worker with" in on(worker.url, "ls").stdout
    assert f"waits   {why}; start a worker with" in on(worker.url, "show", "other").stdout
    assert on(worker.url, "cancel", "other").stdout == "other is CANCELLED.\n"


def test_run_and_respond_need_no_worker_and_take_nothing_else_up(url: str) -> None:
    assert on(url, "ls").stdout == "No executions yet.\n"
    on(url, "run", f"{AGENTS}:waiter", "Go", "--id", "other", "--detach")
    text = on(url, "show", "other").stdout
    assert "agent   waiter (dispatched)\nstatus  PENDING\n" in text
    assert (
        f"next    a worker runs it; if none is running, start one with strands-durable worker FILE --backend '{url}'\n"
        in text
    )
    found = on(url, "run", f"{AGENTS}:asker", "Go", "--id", "trip", "--json")
    assert (found.exit_code, json.loads(found.stdout)["interrupts"][0]["name"]) == (5, "approval")
    assert on(url, "respond", "trip", "--answer", '"yes"').stdout.startswith("Answer recorded. Next: a worker runs it")
    again = on(url, "run", f"{AGENTS}:asker", "--id", "trip")
    assert (again.exit_code, again.stdout) == (0, "Approved.\n")
    assert named(url, "other") == [("PENDING", 0)]
    assert not Path("waiting").exists()


def test_what_a_file_says_of_its_backend_counts_for_run(url: str) -> None:
    Path("coded.py").write_text(CODED)
    found = cli("run", "coded.py", "Go", "--id", "trip", env={"STRANDS_DURABLE_BACKEND": url})
    assert (found.exit_code, found.stdout) == (0, "Hello.\n"), found.stderr
    unread = on(url, "show", "trip")
    assert (unread.exit_code, unread.stderr.count("\n")) == (1, 1), unread.stderr
    assert "codec" in unread.stderr


# What is wrong


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?namespace=nowhere", "cannot be used: namespace 'nowhere' does not exist. Name another one in the URL"),
        (
            "?name_space=x",
            "unknown option name_space; a Temporal URL is temporal://HOST:PORT, with the options namespace, ",
        ),
        ("?heartbeat_seconds=soon", "could not convert string to float: 'soon'; a Temporal URL is"),
        (
            "?heartbeat_seconds=0",
            "heartbeat_seconds must be greater than 0, and max_events 0 or more; a Temporal URL is",
        ),
        ("/path", "it has more than a host and a port; a Temporal URL is"),
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
    assert "Error: temporal://127.0.0.1:1 cannot be used: no Temporal server answers at 127.0.0.1:1 (" in result.stderr
    assert "Start one ('temporal server start-dev' on your own machine), or fix the address." in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_address_that_is_not_in_the_url_comes_from_temporals_environment(temporal: TemporalServer) -> None:
    env = {"TEMPORAL_ADDRESS": temporal.address, "STRANDS_DURABLE_BACKEND": "temporal://?task_queue=nobody-is-here"}
    assert cli("ls", env=env).stdout == "No executions yet.\n"
    assert cli("ls", env={**env, "TEMPORAL_NAMESPACE": "nowhere"}).exit_code == 1


def program(*before: str) -> list[str]:
    """Return a command that runs commands of ours, one for each argument, and tells after each what it has imported."""
    code = (
        "import shlex, sys\n{}\nfrom strands_durable._cli import main\n"
        "for words in sys.argv[1:]:\n"
        "    main(shlex.split(words), standalone_mode=False)\n"
        "    found = {{name.split('.')[0] for name in sys.modules}} & {{'strands', 'rich'}}\n"
        "    print('imported', *sorted(found), flush=True)\n"
        "__import__('os')._exit(0)"
    )
    return [sys.executable, "-c", code.format("\n".join(before))]


def test_commands_that_run_no_agent_import_no_strands(worker: Worker) -> None:
    on(worker.url, "run", f"{AGENTS}:asker", "Go", "--id", "looked-at")
    commands = [
        "ls --json",
        "show looked-at --json",
        "watch looked-at",
        "respond looked-at --answer 1",
        "cancel looked-at",
    ]
    on_it = [f"{command} --backend '{worker.url}'" for command in [*commands, "ls", "rm nobody --yes"]]
    ended = subprocess.run([*program(), *on_it], capture_output=True, text=True, timeout=60)
    told = [line for line in ended.stdout.splitlines() if line.startswith("imported")]
    assert told == [*["imported"] * 5, *["imported rich"] * 2], ended.stdout + ended.stderr


def test_without_the_extra_the_command_that_installs_it_is_named() -> None:
    command = [*program("sys.modules['temporalio'] = None"), "ls --backend temporal://127.0.0.1:7233"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stderr == (
        "Error: A temporal:// backend is not supported: temporalio is not installed. "
        "Install it: pip install 'strands-durable[temporal]'\n"
    )
