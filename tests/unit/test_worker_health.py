"""The health of a worker over HTTP: real workers in processes of their own, asked as Kubernetes asks."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect
from strands_durable._cli import health as module
from strands_durable._cli.health import Health, HealthServer
from tests.waiting import until, until_async

AGENTS = """
import asyncio, time
from pathlib import Path
from strands import Agent, tool
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel, call

@tool
async def wait() -> str:
    "Wait for a file."
    Path("waiting").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return "waited"

@durable_agent
def waiter() -> Agent:
    return Agent(model=ScriptedModel([call("wait"), "Done."]), tools=[wait])
"""


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


@contextmanager
def worker(*options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a worker with a health port of its choice; give the port and the process."""
    Path("agents.py").write_text(AGENTS)
    command = [sys.executable, "-m", "strands_durable", "worker", "agents.py", "--backend", "runs.db", *options]
    process = subprocess.Popen(
        [*command, "--health", "127.0.0.1:0", "--log-format", "json"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        port = next(json.loads(line)["port"] for line in process.stderr if "health is answered" in line)
        yield port, process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_worker_is_live_and_ready_until_it_drains() -> None:
    with worker("--drain-seconds", "20") as (port, process):
        until(lambda: ask(port, "ready")[0] == 200)
        assert ask(port, "ready") == (200, {"status": "ok", "reasons": []})
        assert ask(port, "live") == (200, {"status": "ok", "reasons": []})
        command = [
            sys.executable,
            "-m",
            "strands_durable",
            "run",
            "agents.py",
            "Go",
            "--backend",
            "runs.db",
            "--detach",
        ]
        subprocess.run(command, check=True, capture_output=True)
        until(lambda: Path("waiting").exists())
        process.send_signal(signal.SIGTERM)
        until(lambda: ask(port, "ready")[0] == 503)
        assert ask(port, "ready")[1]["reasons"] == ["the worker is draining"]
        assert ask(port, "live")[0] == 200, "it must not be killed while it drains"
        Path("go").touch()
        assert process.wait(30) == 0


def test_a_worker_whose_store_is_gone_is_not_ready_and_says_why_but_is_not_restarted() -> None:
    with worker() as (port, _):
        until(lambda: ask(port, "ready")[0] == 200)
        Path("runs.db").rename("moved.db")
        until(lambda: ask(port, "ready")[0] == 503)
        assert "does not exist" in ask(port, "ready")[1]["reasons"][0]
        assert ask(port, "live")[0] == 200
        Path("moved.db").rename("runs.db")
        until(lambda: ask(port, "ready")[0] == 200)


def test_a_loop_that_does_not_turn_and_a_backend_that_stays_away_are_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    health, clock = Health(), [time.monotonic()]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    assert health.live() == []
    clock[0] += module.STUCK_SECONDS + 1
    assert re.search(r"has not turned for 3\d s", health.live()[0])
    health._turned_at = clock[0] = clock[0] + module.OUTAGE_SECONDS
    assert "has not answered for" in health.live()[0]


def test_a_loop_that_is_blocked_is_noticed_from_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.2)
    monkeypatch.setattr(module, "TURN_SECONDS", 0.02)
    health = Health()
    server = HealthServer(("127.0.0.1", 0), health)
    answers: list[Any] = []

    async def main() -> None:
        async with health.watching(connect("memory://health"), asyncio.Event()):
            await until_async(lambda: asyncio.to_thread(lambda: ask(server.port, "ready")[0] == 200))
            until(lambda: ask(server.port, "live")[0] == 503)  # blocks the loop
            answers.append(ask(server.port, "live"))
            await until_async(lambda: asyncio.to_thread(lambda: ask(server.port, "live")[0] == 200))

    asyncio.run(main())
    server.close()
    assert answers[0][1]["status"] == "unavailable"
    assert "a tool or hook blocks it" in answers[0][1]["reasons"][0]


def test_any_other_path_is_unknown() -> None:
    server = HealthServer(("127.0.0.1", 0), Health())
    assert ask(server.port, "metrics")[0] == 404
    server.close()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    Path("agents.py").write_text(AGENTS)
    command = [sys.executable, "-m", "strands_durable", "worker", "agents.py", "--health", address]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "is not an address" in ended.stderr


def test_a_port_that_is_taken_is_an_error_of_one_line() -> None:
    Path("agents.py").write_text(AGENTS)
    server = HealthServer(("127.0.0.1", 0), Health())
    command = [sys.executable, "-m", "strands_durable", "worker", "agents.py", "--health", f"127.0.0.1:{server.port}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    server.close()
    assert ended.returncode == 1
    assert "Choose another address or port" in ended.stderr
    assert "Traceback" not in ended.stderr
