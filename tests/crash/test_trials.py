"""C34 where the process that tries suspected executions alone cannot start: the worker tries them itself, and says so."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect
from strands_durable._cli.wait_reasons import waits
from strands_durable._enginekit.log import RecordedExecution
from tests.crash import site
from tests.waiting import until

BOUND = str(Path(__file__).with_name("bound.py"))
BOOK = {"tool": "book", "city": "Rome"}
WHY = "the process that tries suspected executions alone"


class FileSite(site.EngineSite):
    """Workers on one SQLite file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"sqlite:///{folder / 'runs.db'}?worker=off", folder)
        self.backend = connect(self.url)

    def recorded(self, handle: Any) -> RecordedExecution:
        raise NotImplementedError


@pytest.fixture(
    params=["sqlite", pytest.param("temporal", marks=pytest.mark.long), pytest.param("dapr", marks=pytest.mark.long)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[site.EngineSite]:
    if request.param == "sqlite":
        found: site.EngineSite = FileSite(tmp_path)
    elif request.param == "temporal":
        from tests.crash.temporal import Site

        found = Site(request.getfixturevalue("temporal"), tmp_path)
    else:
        from tests.crash.sidecars import DaprSite

        found = DaprSite(tmp_path, sidecars=0, steps="off")
    with found:
        yield found


class Workers:
    """One worker at a time, whose file takes a port."""

    def __init__(
        self, place: site.EngineSite, cwd: Path, file: str = BOUND, *, concurrency: int = 10, **env: str
    ) -> None:
        self._place, self._cwd, self._file, self.health = place, cwd, file, free_port()
        self._concurrency = str(concurrency)
        self._env = {"PORT": str(free_port()), **env}
        self.worker = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        health = f"127.0.0.1:{self.health}"
        options = ["--quiet", "--health", health, "--concurrency", self._concurrency]
        return self._place.typed(self._cwd, *options, file=self._file, **self._env)

    def killed(self) -> None:
        """Kill the worker while it runs a tool, and start the next one."""
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.wait()
        self.worker = self.start()

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Return what the worker answers at /ready."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/ready", timeout=10) as answer:
            return answer.status, json.load(answer)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def waiting(place: site.EngineSite) -> list[str]:
    """Return what ``ls --waiting`` says of why executions wait."""
    return [wait.reason for wait in place.run(waits(connect(place.url).working("off"), {}, None))]


def findings(place: site.EngineSite) -> list[str]:
    """Return the warnings of ``doctor``."""
    return [each.text + each.remedy for each in place.run(place.backend.examine()) if each.level == "warning"]


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="fails"),
        pytest.param({"HANG": "1", "START_SECONDS": "2"}, id="hangs", marks=pytest.mark.long),
        pytest.param({"PYTHON": "/no/such/python"}, id="is absent"),
    ],
)
def test_c34_what_cannot_be_tried_in_a_process_of_its_own_is_tried_by_an_idle_worker(
    place: site.EngineSite, tmp_path: Path, env: dict[str, str]
) -> None:
    handle = place.dispatch("run", {"tool": "wait", "path": "go"}, BOOK, "Done.", in_doubt="retry")
    workers = Workers(place, tmp_path, **env)
    place.until_logged(what="wait")
    workers.killed()
    again = place.until_logged(2, what="wait")
    place.touch("go")
    assert str(place.result(handle)) == "Done.\n"
    assert again["pid"] == workers.worker.pid
    assert [entry["attempt"] for entry in place.ledger(what="wait")] == [1, 2]
    assert len(place.ledger(what="book")) == 1


@pytest.mark.long
def test_c34_why_a_suspected_execution_waits_is_said_everywhere(place: site.EngineSite, tmp_path: Path) -> None:
    first = place.dispatch("suspect", {"tool": "wait", "path": "go"}, BOOK, "Done.", in_doubt="retry")
    doomed = Workers(place, tmp_path, concurrency=2).worker
    place.until_logged(what="wait")
    busy = place.dispatch("busy", {"tool": "wait", "path": "busy"}, "Done.", in_doubt="retry")
    place.until_logged(2, what="wait")
    workers = Workers(place, tmp_path)
    later = place.dispatch("later", {"tool": "wait", "path": "later"}, "Done.")  # the other worker has no room
    assert place.until_logged(1, what="wait", execution_id="later")["pid"] == workers.worker.pid
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.wait()
    until(lambda: sum(WHY in reason for reason in waiting(place)) == 2, site.PATIENCE_SECONDS)
    until(lambda: any(WHY in finding for finding in findings(place)), site.PATIENCE_SECONDS)
    until(lambda: workers.ready()[1]["status"] == "degraded", site.PATIENCE_SECONDS)
    status, said = workers.ready()
    assert (status, WHY in said["reasons"][0], "exit code 1" in said["reasons"][0]) == (200, True, True)
    assert len(place.ledger(what="wait")) == 3, "neither of the two was tried beside another"
    for name in ("later", "go", "busy"):
        place.touch(name)
    for handle in (first, busy, later):
        assert str(place.result(handle)) == "Done.\n"
    assert [entry["attempt"] for entry in place.ledger(what="wait", execution_id="suspect")] == [1, 2]
    assert len(place.ledger(what="book")) == 1


@pytest.mark.long
def test_c34_what_kills_the_worker_that_tries_it_fails_after_three_deaths(
    place: site.EngineSite, tmp_path: Path
) -> None:
    bad = place.dispatch("bad", {"tool": "die"}, "Alive.")
    workers = Workers(place, tmp_path)
    for _ in range(4):
        assert workers.worker.wait(site.PATIENCE_SECONDS) == -signal.SIGKILL
        workers.worker = workers.start()
    until(lambda: place.status(bad) == "FAILED", site.PATIENCE_SECONDS)
    assert [entry["attempt"] for entry in place.ledger(what="die")] == [1, 2, 3, 4], "once among others, thrice alone"


@pytest.mark.long
def test_a_process_that_hangs_in_an_import_ends_with_its_worker(tmp_path: Path) -> None:
    def trials() -> list[str]:
        found = subprocess.run(
            ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        return [each for each in found if "--trial" in each and BOUND in each]

    with FileSite(tmp_path) as place:
        place.dispatch("run", {"tool": "wait", "path": "go"}, "Done.", in_doubt="retry")
        workers = Workers(place, tmp_path, HANG="1")
        place.until_logged(what="wait")
        workers.killed()
        until(trials, site.PATIENCE_SECONDS)
        os.kill(workers.worker.pid, signal.SIGKILL)
        workers.worker.wait()
        until(lambda: not trials(), site.PATIENCE_SECONDS)


@pytest.mark.long
def test_the_recipe_for_prometheus_serves_two_workers_and_the_process_that_tries_alone(tmp_path: Path) -> None:
    page = (site.ROOT / "docs" / "telemetry.md").read_text()
    recipe = next(
        block for block in re.findall(r"```python run\n(.*?)```", page, re.DOTALL) if "telemetry_prometheus" in block
    )
    file = tmp_path / "agents.py"
    file.write_text(recipe + "\nfrom tests.crash.crew import scripted\n")
    with FileSite(tmp_path) as place:
        handle = place.dispatch("run", {"tool": "wait", "path": "go"}, BOOK, "Done.", in_doubt="retry")
        port = str(free_port())
        first = Workers(place, tmp_path, str(file), METRICS_PORT=port)
        place.until_logged(what="wait")
        second = Workers(place, tmp_path, str(file), METRICS_PORT=port)
        first.killed()
        again = place.until_logged(2, what="wait")
        place.touch("go")
        assert str(place.result(handle)) == "Done.\n"
        assert again["pid"] not in (first.worker.pid, second.worker.pid), "it was tried in a process of its own"
        assert first.ready()[1]["status"] == second.ready()[1]["status"] == "ok"
