"""Containers with workers on Temporal come and go: they share nothing but the server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.crash.temporal import Site
from tests.waiting import until

WAIT, BOOK = {"tool": "wait", "path": "go"}, {"tool": "book", "city": "Rome"}


@pytest.fixture
def site(temporal: TemporalServer, tmp_path: Path) -> Iterator[Site]:
    with Site(temporal, tmp_path) as site:
        yield site


def container(site: Site, disk: Path) -> subprocess.Popen[bytes]:
    """Start a worker on an empty disk, under a name of its own."""
    disk.mkdir()
    places = {name: str(disk) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    return site.typed(disk, "--quiet", **places, HOSTNAME=disk.name)


def test_c08_a_container_that_is_killed_before_it_is_drained_leaves_its_tools_in_doubt(
    site: Site, tmp_path: Path
) -> None:
    handles = {each: site.dispatch(each, WAIT, BOOK, "Done.", in_doubt=each) for each in ("retry", "fail")}
    old = container(site, tmp_path / "old")
    site.until_logged(2, what="wait")
    new = container(site, tmp_path / "new")
    old.send_signal(signal.SIGTERM)
    for number in range(3):
        assert str(site.result(site.dispatch(f"other-{number}", BOOK, "Done."))) == "Done.\n"
    assert site.until_logged(what="book", execution_id="other-2")["pid"] == new.pid, "who is stopped takes no execution"
    old.kill()
    site.touch("go")
    for each, handle in handles.items():
        assert str(site.result(handle)) == "Done.\n"
        attempts = [entry["attempt"] for entry in site.ledger(what="wait", execution_id=each)]
        assert attempts == ([1, 2] if each == "retry" else [1])
        assert old.pid not in {entry["pid"] for entry in site.ledger(what="book", execution_id=each)}
    assert [*(tmp_path / "old").iterdir(), *(tmp_path / "new").iterdir()] == []


def test_c08_a_container_that_is_drained_hands_over_at_once_and_repeats_nothing(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Site(temporal, tmp_path, heartbeat_seconds=20) as site:
        handle = site.dispatch("run", WAIT, BOOK, "Done.", in_doubt="ask")
        old = container(site, tmp_path / "old")
        site.until_logged(what="wait")
        new = container(site, tmp_path / "new")
        old.send_signal(signal.SIGTERM)
        assert str(site.result(site.dispatch("other", BOOK, "Done."))) == "Done.\n"
        site.touch("go")
        assert old.wait(30) == 0
        assert str(site.result(handle)) == "Done.\n"
        assert [entry["pid"] for entry in site.ledger(what="wait")] == [old.pid]
        assert [entry["pid"] for entry in site.ledger(what="book", execution_id="run")] == [new.pid]


def test_c08_a_container_whose_tool_outlasts_the_drain_leaves_it_in_doubt_at_once(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Site(temporal, tmp_path, heartbeat_seconds=300) as site:
        handle = site.dispatch("run", WAIT, BOOK, "Done.", in_doubt="fail")
        (tmp_path / "old").mkdir()
        old = site.typed(tmp_path / "old", "--quiet", "--drain-seconds", "1")
        site.until_logged(what="wait")
        container(site, tmp_path / "new")
        old.send_signal(signal.SIGTERM)
        assert old.wait(30) == 0
        assert str(site.result(handle)) == "Done.\n"
        assert len(site.ledger(what="wait")) == 1
        assert len(site.ledger(what="waited")) == 0


def _handles_sigterm(pid: int) -> bool:
    """Return True once a worker has begun to listen for the signal that stops it; before that, the signal ends it."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


def test_c08_a_rolling_deploy_of_all_workers_leaves_nothing_in_doubt(temporal: TemporalServer, tmp_path: Path) -> None:
    script = [{"tool": "book", "city": f"c{number}"} for number in range(8)]
    # What a worker was offered in the moment in which it stopped waits for as long as a heartbeat.
    with Site(temporal, tmp_path, heartbeat_seconds=20) as site:
        handles = [site.dispatch(f"run-{number}", *script, "Done.") for number in range(6)]
        old = [site.worker(2) for _ in range(2)]
        site.until_logged(6, what="book")
        until(lambda: all(_handles_sigterm(worker.pid) for worker in old))
        for worker in old:
            site.worker(2)
            os.kill(worker.pid, signal.SIGTERM)
        for handle in handles:
            assert str(site.result(handle)) == "Done.\n"
        assert {entry["attempt"] for entry in site.ledger()} == {1}
        assert len(site.ledger(what="book")) == 6 * 8
        assert {worker.join().exitcode for worker in old} == {0}
