"""A worker on SQLite is told to stop while a tool, a factory, a hook, a process or the store keeps it: it ends in time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect
from strands_durable.backends.sqlite import SqliteBackend
from tests.crash import stubborn
from tests.processes import run
from tests.stopping import DRAIN_SECONDS, LIMIT_SECONDS, terminated, typed
from tests.waiting import until

URL, FILE = "sqlite:///runs.db", str(Path(stubborn.__file__))
SECRET = {"STRANDS_DURABLE_WEBHOOK_SECRET": "of sixteen letters"}
pytestmark = pytest.mark.long


def dispatch(agent: Any, **given: Any) -> None:
    asyncio.run(connect(f"{URL}?worker=off").dispatch(agent.spec_with(**given), "Go", execution_id="run"))


def status() -> str:
    async def ask() -> str:
        return (await (await connect(f"{URL}?worker=off").get("run")).status()).value

    return asyncio.run(ask())


@pytest.mark.parametrize("tool", ["ignores", "blocks", "sleeps", "leaves"])
def test_c08_the_process_of_a_worker_ends_in_time_whatever_a_tool_does(tool: str, tmp_path: Path) -> None:
    dispatch(stubborn.stubborn, tool_name=tool)
    worker = typed(URL, tmp_path, file=FILE)
    until(lambda: Path("busy").exists() and (tool != "leaves" or status() == "COMPLETED"))
    code, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log
    assert code == 0
    assert "left" in log
    if tool == "leaves":
        assert "threads=<MainThread, Thread-" in log


def test_c08_a_worker_returns_in_time_although_a_tool_ignores_every_cancel(tmp_path: Path) -> None:
    dispatch(stubborn.stubborn, tool_name="ignores")
    assert run(stop_inside, str(tmp_path)).exitcode == 0
    is_clean, seconds = json.loads(Path("ended").read_text())
    assert not is_clean
    assert seconds < LIMIT_SECONDS


def stop_inside(folder: str) -> None:
    """Write down how a worker ended that was stopped inside a tool, and leave: asyncio.run() would wait for the tool."""
    os.chdir(folder)
    ended = asyncio.new_event_loop().run_until_complete(stopped_inside(SqliteBackend(URL)))
    Path("ended").write_text(json.dumps(ended))
    os._exit(0)


async def stopped_inside(backend: SqliteBackend) -> tuple[bool, float]:
    """Run a worker in this loop, and stop it inside a tool."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    working = asyncio.ensure_future(backend.work(stop=stop, drain_seconds=DRAIN_SECONDS))
    while not Path("busy").exists():
        await asyncio.sleep(0.01)
    began = loop.time()
    stop.set()
    return await working, loop.time() - began


def test_c08_a_worker_whose_factory_does_not_return_ends_in_time(tmp_path: Path) -> None:
    dispatch(stubborn.plain)
    Path("hangs").touch()
    worker = typed(URL, tmp_path, file=FILE)
    until(Path("busy").exists)
    _, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log


def test_c08_a_worker_whose_store_is_locked_ends_in_time(tmp_path: Path) -> None:
    dispatch(stubborn.stubborn, tool_name="sleeps")
    worker = typed(URL, tmp_path, file=FILE)
    until(Path("busy").exists)
    connection = sqlite3.connect("runs.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        _, seconds, log = terminated(worker)
    finally:
        connection.close()
    assert seconds < LIMIT_SECONDS, log


def test_c08_a_worker_whose_hook_does_not_answer_ends_in_time(tmp_path: Path) -> None:
    dispatch(stubborn.plain)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heard = threading.Event()
        threading.Thread(target=lambda: heard.set() if listener.accept() else None, daemon=True).start()
        hook = f"http://127.0.0.1:{listener.getsockname()[1]}"
        worker = typed(URL, tmp_path, "--webhook", hook, file=FILE, **SECRET)
        assert heard.wait(30)
        _, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log


def test_c08_a_worker_that_could_not_begin_ends_although_its_file_has_started_a_thread(tmp_path: Path) -> None:
    Path("keeps").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        worker = typed(URL, tmp_path, "--health", f"127.0.0.1:{listener.getsockname()[1]}", file=FILE)
        assert worker.stderr is not None
        assert "Address already in use" in worker.stderr.readline()
        _, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log
