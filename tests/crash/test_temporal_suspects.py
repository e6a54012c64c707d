"""C34 on Temporal: a run that kills its worker is found out, and does no harm to others. Workers are processes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strands_durable import ExecutionHandle, errors
from strands_durable.testing.temporal import TemporalServer
from tests.crash.temporal import PATIENCE_SECONDS, Site
from tests.waiting import until

BOOK = {"tool": "book", "city": "Rome"}
DIES = [{"tool": "die"}, "Alive."]


@pytest.fixture
def site(temporal: TemporalServer, tmp_path: Path) -> Iterator[Site]:
    with Site(temporal, tmp_path) as site:
        yield site


class Supervisor:
    """Keeps workers alive, as whoever runs containers does."""

    def __init__(self, site: Site, folder: Path, count: int) -> None:
        self._site, self._folder = site, folder
        self._workers = [self._start() for _ in range(count)]
        self.deaths = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return self._site.typed(self._folder, "--quiet")

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something."""
        until(lambda: self._look() or done(), 2 * PATIENCE_SECONDS)

    def _look(self) -> None:
        for index, worker in enumerate(self._workers):
            if worker.poll() is not None:
                assert worker.returncode == -signal.SIGKILL
                self.deaths += 1
                self._workers[index] = self._start()


def failure(site: Site, handle: ExecutionHandle) -> errors.WorkerLostError:
    with pytest.raises(errors.ExecutionFailedError) as caught:
        site.result(handle)
    assert isinstance(caught.value.__cause__, errors.WorkerLostError)
    return caught.value.__cause__


def test_c34_a_run_that_kills_its_worker_fails_after_three_deaths_alone_and_the_others_complete(
    site: Site, tmp_path: Path
) -> None:
    good = [site.dispatch(f"good-{number}", BOOK, BOOK, "Done.") for number in range(3)]
    bad = site.dispatch("bad", *DIES)
    good += [site.dispatch(f"good-{number}", BOOK, BOOK, "Done.") for number in range(3, 6)]
    workers = Supervisor(site, tmp_path, 2)
    workers.until(lambda: site.status(bad) == "FAILED" and all(site.status(each) == "COMPLETED" for each in good))
    assert failure(site, bad).deaths == 3
    assert [entry["attempt"] for entry in site.ledger(what="die")] == [1, 2, 3, 4], "once among others, thrice alone"
    later = site.dispatch("later", BOOK, "Done.")
    assert str(site.result(later)) == "Done.\n"
    site.touch("mended")
    site.run(bad.resume())
    assert str(site.result(bad)) == "Alive.\n"
    assert workers.deaths <= 4


def test_c34_what_is_tried_alone_does_not_pay_for_the_deaths_of_others(site: Site, tmp_path: Path) -> None:
    good = site.dispatch("good", {"tool": "wait", "path": "go"}, "Done.")
    bad = [site.dispatch("bad-0", *DIES)]
    workers = Supervisor(site, tmp_path, 1)
    for number in range(1, 5):
        workers.until(lambda: len(site.ledger(what="die")) >= number)
        bad.append(site.dispatch(f"bad-{number}", *DIES))
    workers.until(lambda: all(site.status(each) == "FAILED" for each in bad))
    assert site.status(good) == "RUNNING"
    site.touch("go")
    assert str(site.result(good)) == "Done.\n"
