"""The Temporal server is away for longer than a heartbeat: what runs in a living worker is not run again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.crash.temporal import Site

HEARTBEAT_SECONDS = 4
BOOK, WAIT = {"tool": "book", "city": "Rome"}, {"tool": "wait", "path": "go"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TemporalServer]:
    with TemporalServer(tmp_path / "temporal.db") as server:
        yield server
        server.kill()  # an orderly end takes seconds


@pytest.mark.timeout(120)
def test_running_tools_are_not_run_again(server: TemporalServer, tmp_path: Path) -> None:
    with Site(server, tmp_path, heartbeat_seconds=HEARTBEAT_SECONDS) as site:
        during = site.dispatch("during", {"tool": "wait", "path": "ended"}, BOOK, "Done.")
        after = site.dispatch("after", BOOK, WAIT, "Done.")
        models = site.dispatch("models", BOOK, "Done.", waits_for="said")
        first = site.worker(3)
        site.until_logged(2, what="wait")
        site.until_logged(what="model", execution_id="models")
        second = site.worker()
        assert str(site.result(site.dispatch("other", BOOK, "Other."))) == "Other.\n"
        server.kill()
        site.touch("ended")
        site.until_logged(what="waited", path="ended")
        time.sleep(1.5 * HEARTBEAT_SECONDS)  # what is tested is time itself
        server.start()
        site.touch("said")
        for handle in (during, models):
            assert str(site.result(handle)) == "Done.\n"
        site.touch("go")
        assert str(site.result(after)) == "Done.\n"
        assert [entry["pid"] for entry in site.ledger(what="wait")] == [first.pid] * 2, "each tool ran once"
        for handle in (during, after, models):
            assert len(site.ledger(what="book", execution_id=handle.execution_id)) == 1
            tools = [step for step in site.run(handle.steps()) if step.kind == "tool"]
            assert {(step.status, step.attempt) for step in tools} == {("done", 1)}
        assert {entry["pid"] for entry in site.ledger(execution_id="other")} == {second.pid}


class Wire:
    """A connection to a server that can be cut."""

    def __init__(self, port: int) -> None:
        self._to, self._pairs, self._is_cut = port, list[socket.socket](), False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        for each in self._pairs:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            here, _ = self._listener.accept()
            if self._is_cut:
                here.close()
                continue
            there = socket.create_connection(("127.0.0.1", self._to))
            self._pairs += [here, there]
            for pair in ((here, there), (there, here)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.mark.timeout(120)
def test_a_worker_that_comes_back_when_another_has_resumed_the_run_changes_nothing(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    wire = Wire(int(temporal.address.rpartition(":")[2]))
    with Site(temporal, tmp_path, heartbeat_seconds=2) as site:
        handle = site.dispatch("run", WAIT, BOOK, {"tool": "wait", "path": "end"}, "Done.", in_doubt="retry")
        cut_off = site.worker(url=site.url.replace(temporal.address, f"127.0.0.1:{wire.port}"))
        site.until_logged(what="wait")
        wire.cut()
        other = site.worker()
        site.until_logged(2, what="wait", path="go")
        site.touch("go")
        site.until_logged(what="wait", path="end")
        before = site.run(handle.steps())
        wire.restore()
        later = site.dispatch("later", *[BOOK] * 3, "Later.")
        assert str(site.result(later)) == "Later.\n"
        site.touch("end")
        assert str(site.result(handle)) == "Done.\n"
        assert site.run(handle.steps())[: len(before) - 1] == before[:-1]
        assert {entry["pid"] for entry in site.ledger(execution_id="run", what="book")} == {other.pid}
        assert len(site.ledger(execution_id="run", what="book")) == 1
        assert cut_off.process.is_alive()
