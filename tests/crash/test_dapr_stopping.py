"""A worker on Dapr is told to stop while its sidecar does not answer: it ends in time and says what it left."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.sidecars import DaprSite
from tests.processes import Child
from tests.stopping import LIMIT_SECONDS, ended, terminated, typed, until_told
from tests.waiting import until

BOOK = {"tool": "book", "city": "Rome"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DaprSite]:
    with DaprSite(tmp_path, 1) as site:
        yield site


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a sidecar that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"dapr://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("is_there", [False, True], ids=["absent", "silent"])
def test_c08_a_worker_whose_sidecar_never_answered_ends_in_time(silent: str, is_there: bool, tmp_path: Path) -> None:
    url = silent if is_there else "dapr://127.0.0.1:9"
    worker = Child(until_told, url, str(tmp_path))
    until((tmp_path / f"begun-{worker.pid}").exists)
    _, seconds, closed = ended(worker)
    assert seconds < LIMIT_SECONDS
    assert closed < LIMIT_SECONDS + 1


def test_c08_the_process_of_a_worker_whose_sidecar_never_answered_ends_in_time(tmp_path: Path) -> None:
    worker = typed("dapr://127.0.0.1:9", tmp_path, "--health", "127.0.0.1:0")
    assert worker.stderr is not None
    worker.stderr.readline()
    _, seconds, log = terminated(worker)
    assert seconds < LIMIT_SECONDS, log


def started(site: DaprSite, *given: Any) -> Child:
    """Start a worker, and return once it has run something."""
    worker = site.worker(*given, target=until_told)
    assert str(site.result(site.dispatch("first", BOOK, "Done."))) == "Done.\n"
    return worker


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_c08_a_worker_whose_sidecar_does_not_answer_ends_in_time(
    site: DaprSite, how: signal.Signals, is_busy: bool
) -> None:
    worker = started(site)
    if is_busy:
        site.dispatch("second", BOOK, "Done.", waits_for="go")  # a thread would keep the process of the test
        site.until_logged(what="model", execution_id="second")
    sidecar = site.sidecar_of(worker)
    os.kill(sidecar.pid, how)
    is_clean, seconds, closed = ended(worker)
    assert not (is_clean and is_busy)
    assert seconds < LIMIT_SECONDS
    assert closed < LIMIT_SECONDS + 1
