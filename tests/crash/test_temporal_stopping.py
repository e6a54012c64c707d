"""A worker on Temporal is told to stop while the server, or the SDK, does not answer: it ends in time and says what it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_durable.backends.temporal import _worker
from strands_durable.testing.temporal import TemporalServer
from tests.crash.temporal import Site
from tests.processes import Child
from tests.stopping import LIMIT_SECONDS, ended, terminated, typed, until_told
from tests.waiting import until

STUCK = str(Path(__file__).with_name("stuck.py"))
BOOK, WAIT = {"tool": "book", "city": "Rome"}, {"tool": "wait", "path": "go"}
HANGS = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1e6)"]
"""A process for suspected executions that does not listen."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TemporalServer]:
    with TemporalServer() as server:
        yield server
        server.kill()


@pytest.fixture
def site(server: TemporalServer, tmp_path: Path) -> Iterator[Site]:
    with Site(server, tmp_path) as site:
        yield site


def started(site: Site, *trial: Any) -> Child:
    """Start a worker, and return once it has run something."""
    worker = site.worker((), *trial, target=until_told)
    assert str(site.result(site.dispatch("first", BOOK, "Done."))) == "Done.\n"
    return worker


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_c08_a_worker_whose_server_does_not_answer_ends_in_time(
    site: Site, server: TemporalServer, how: signal.Signals, is_busy: bool
) -> None:
    worker = started(site)
    if is_busy:
        site.dispatch("second", BOOK, "Done.", waits_for="go")  # a thread would keep the process of the test
        site.until_logged(what="model", execution_id="second")
    os.kill(server.pid, how)
    is_clean, seconds, closed = ended(worker)
    assert not (is_clean and is_busy)
    assert seconds < LIMIT_SECONDS, f"its run returned after {seconds:.1f} s"
    assert closed < LIMIT_SECONDS + 1, f"its loop was closed after {closed:.1f} s"


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_c08_the_process_of_a_worker_whose_server_is_frozen_ends_in_time(
    site: Site, server: TemporalServer, tmp_path: Path, is_busy: bool
) -> None:
    worker = typed(site.url, tmp_path)
    assert str(site.result(site.dispatch("first", BOOK, "Done."))) == "Done.\n"
    if is_busy:
        site.dispatch("second", WAIT, BOOK, "Done.")
        site.until_logged(what="wait")
    os.kill(server.pid, signal.SIGSTOP)
    _, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log
    assert "left" in log


def test_c08_a_worker_whose_server_dies_while_it_starts_ends_in_time(
    site: Site, server: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = site.worker(server.pid, target=until_told_without_server)
    until((site.folder / f"killed-{worker.pid}").exists)
    _, seconds, closed = ended(worker)
    assert max(seconds, closed - 1) < LIMIT_SECONDS


def until_told_without_server(url: str, folder: str, pid: int) -> Any:
    """Be a worker whose server dies once it is connected to it."""
    work = _worker.work

    async def late(*given: Any, **options: Any) -> bool:
        os.kill(pid, signal.SIGKILL)
        Path(f"killed-{os.getpid()}").touch()
        return await work(*given, **options)

    _worker.work = late
    return until_told(url, folder)


def test_c08_a_worker_whose_trial_process_does_not_listen_ends_in_time(site: Site) -> None:
    handle = site.dispatch("kills", {"tool": "die"}, "Done.")
    for _ in range(2):
        site.worker().join()
    worker = site.worker((), HANGS, target=until_told)
    until(lambda: _children(worker.pid), 60)
    _, seconds, _ = ended(worker)
    assert seconds < LIMIT_SECONDS
    assert site.status(handle) == "RUNNING"


def _children(pid: int) -> list[str]:
    asked = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.split()


def test_c08_a_worker_with_a_stuck_workflow_ends_in_time_and_so_does_its_process(
    server: TemporalServer, tmp_path: Path
) -> None:
    with Site(server, tmp_path) as site:
        worker = typed("", tmp_path, file=STUCK, STUCK_URL=site.url)
        site.dispatch("run", "Done.")
        until((tmp_path / "stuck").exists)
        _, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log
    assert "left" in log
