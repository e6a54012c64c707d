"""C34 on Dapr: a run that kills its worker is found out, and does no harm to others. Workers are processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from strands_durable import ExecutionHandle, errors
from tests.crash import crew
from tests.crash.sidecars import DaprSite as Site
from tests.crash.site import PATIENCE_SECONDS
from tests.processes import Child
from tests.waiting import until

BOOK = {"tool": "book", "city": "Rome"}
DIES = [{"tool": "die"}, "Alive."]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, sidecars=4, steps="off") as site:
        yield site


class Supervisor:
    """Keeps workers alive, as a container runtime does."""

    def __init__(self, *starts: Callable[[], subprocess.Popen[bytes] | Child]) -> None:
        self._workers = [(start, start()) for start in starts]
        self.deaths = 0

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something."""
        until(lambda: self._look() or done(), PATIENCE_SECONDS)

    def _look(self) -> None:
        for index, (start, worker) in enumerate(self._workers):
            exitcode = worker.process.exitcode if isinstance(worker, Child) else worker.poll()
            if exitcode is not None:
                assert exitcode == -signal.SIGKILL
                self.deaths += 1
                self._workers[index] = start, start()


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
    workers = Supervisor(lambda: site.typed(tmp_path, "--quiet"), partial(site.worker, target=crew.serve_typed))
    workers.until(lambda: site.status(bad) == "FAILED" and all(site.status(each) == "COMPLETED" for each in good))
    assert failure(site, bad).deaths == 3
    assert [entry["attempt"] for entry in site.ledger(what="die")] == [1, 2, 3, 4], "once among others, thrice alone"
    later = site.dispatch("later", BOOK, "Done.")
    assert str(site.result(later)) == "Done.\n"
    site.touch("fixed")
    site.run(bad.resume())
    assert str(site.result(bad)) == "Alive.\n"
    assert workers.deaths <= 4


def test_c34_what_is_tried_alone_does_not_pay_for_the_deaths_of_others(site: Site) -> None:
    good = site.dispatch("good", {"tool": "wait", "path": "go"}, "Done.")
    workers = Supervisor(partial(site.worker, target=crew.serve_typed))
    site.until_logged(what="wait")
    others = []
    for deaths in range(1, 4):
        others.append(site.dispatch(f"bad-{deaths}", {"tool": "die_once"}, "Alive."))
        workers.until(lambda deaths=deaths: workers.deaths == deaths)
        workers.until(lambda: len(site.ledger(what="wait")) == 2)
    site.touch("go")
    for handle in (good, *others):
        workers.until(lambda handle=handle: site.status(handle) not in ("PENDING", "RUNNING"))
        assert str(site.result(handle)) in ("Done.\n", "Alive.\n")
    assert len(site.ledger(what="wait")) == 2, "once among others, once alone"
    assert [entry["attempt"] for entry in site.ledger(what="die_once", execution_id="bad-3")] == [1, 2]


def test_c34_a_worker_that_is_stopped_has_what_it_tries_alone_end_its_step_too(site: Site) -> None:
    handle = site.dispatch("run", {"tool": "wait", "path": "go"}, BOOK, "Done.", in_doubt="retry")
    first = site.worker()
    site.until_logged(what="wait")
    os.kill(first.pid, signal.SIGKILL)
    second = site.worker(target=crew.serve_typed)
    alone = site.until_logged(2, what="wait")
    assert alone["pid"] != second.pid
    os.kill(second.pid, signal.SIGTERM)
    site.touch("go")
    second.join().checked()
    third = site.worker()
    assert str(site.result(handle)) == "Done.\n"
    assert [entry["attempt"] for entry in site.ledger(what="wait")] == [1, 2]
    assert [entry["pid"] for entry in site.ledger(what="book")] == [third.pid]


def test_c20_what_is_tried_alone_may_wait_for_another_that_is(site: Site) -> None:
    inner = [{"tool": "wait", "path": "go"}, "Waited."]
    outer = site.dispatch("outer", {"tool": "delegate", "url": site.url, "script": inner}, "Done.")
    first = site.worker()
    site.until_logged(what="wait")
    os.kill(first.pid, signal.SIGKILL)
    site.worker()
    site.until_logged(2, what="wait")
    site.touch("go")
    assert str(site.result(outer)) == "Done.\n"


def test_c34_a_run_that_kills_its_worker_before_its_first_step_fails_too(site: Site) -> None:
    handle = site.dispatch("bad", agent=crew.deadly)
    workers = Supervisor(partial(site.worker, target=crew.serve_typed))
    workers.until(lambda: site.status(handle) == "FAILED")
    assert failure(site, handle).deaths == 3
    assert workers.deaths <= 2, "an execution that runs alone kills no other"
