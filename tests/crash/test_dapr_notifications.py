"""C37 on Dapr: a worker is killed or frozen between the commit and the delivery, and every event is reported, with one id."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle, Webhook, connect
from strands_durable._records import crash_points
from tests import reported
from tests.crash.sidecars import DaprSite
from tests.crash.site import PATIENCE_SECONDS
from tests.processes import Child
from tests.receiver import SECRET, Receiver, is_signed, receiving
from tests.waiting import until

AGENTS = {"planner": reported.planner, "asker": reported.asker, "broken": reported.broken}
EVENTS = {"planner": "completed", "asker": "suspended", "broken": "failed"}
OURS = ("notice.", "notify:", "append:after")
FIRST, LAST = "notice.record:before", "notice.unlist:after"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DaprSite]:
    with DaprSite(tmp_path) as site:
        yield site


def report(url: str, folder: str, receiver: str, point: str = "") -> None:
    """Be a worker that reports to a receiver, and dies at a point that it reaches after its first notice has begun.

    Without a point, it works until the file ``stop`` exists, and writes down which ones it has reached since then.
    """
    reached: list[str] = []

    def listen(name: str) -> None:
        if name == FIRST or (reached and name.startswith(OURS)):  # the agent, in another thread, may still be ending
            reached.append(name)
        if reached and name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.listen(listen)
    asyncio.run(_work(url, folder, receiver))
    Path(folder, "reached").write_text("\n".join(reached))


def report_frozen(url: str, folder: str, receiver: str, point: str) -> None:
    """Be such a worker that is frozen at a point, and writes to a file which points it has reached since then."""
    reached: list[str] = []

    def listen(name: str) -> None:
        reached.append(name)
        if reached.count(point) == 1 and name == point:
            os.kill(os.getpid(), signal.SIGSTOP)
        if point in reached:
            Path(folder, "reached").write_text("\n".join(reached[reached.index(point) :]))

    crash_points.listen(listen)
    asyncio.run(_work(url, folder, receiver))


async def _work(url: str, folder: str, receiver: str) -> None:
    backend, stop = connect(url), asyncio.Event()
    backend.notify(webhooks=[Webhook(receiver, SECRET)])
    working = asyncio.ensure_future(backend.work(stop=stop))
    while not Path(folder, "stop").exists():
        await asyncio.sleep(0.01)
    stop.set()
    await working


def listed(site: DaprSite) -> dict[str, float]:
    return site.run(site.backend.engine.notices.listed())


def until_reported(site: DaprSite, receiver: Receiver, times: int = 1) -> None:
    until(lambda: len({body["id"] for body in receiver.bodies}) == times, PATIENCE_SECONDS)
    until(lambda: not listed(site), PATIENCE_SECONDS)


def ends(site: DaprSite, handle: ExecutionHandle) -> bool:
    return site.status(handle) not in ("PENDING", "RUNNING")


def reached_points(site: DaprSite, agent: str) -> list[str]:
    """Return the points of an undisturbed run, from before its notice is written until nothing is left of it."""
    with receiving() as receiver:
        site.dispatch("whole", agent=AGENTS[agent])
        worker = site.worker(receiver.url, target=report)
        until_reported(site, receiver)
        site.touch("stop")
        worker.join().checked()
        Path(site.folder, "stop").unlink()
    found = Path(site.folder, "reached").read_text().splitlines()
    assert {"append:after", "notice.claim:after", "notify:before", "notify:after"} <= set(found)
    return list(dict.fromkeys(found[: found.index(LAST) + 1]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", AGENTS)
def test_c37_a_worker_killed_between_commit_and_delivery_loses_no_notification(
    site: DaprSite, agent: str, record_property: Any
) -> None:
    points = reached_points(site, agent)
    assert len(points) > 8
    for number, point in enumerate(points):
        with receiving() as receiver:
            handle = site.dispatch(f"run-{number}", agent=AGENTS[agent])
            victim = site.worker(receiver.url, point, target=report)
            assert victim.join().exitcode == -signal.SIGKILL, point
            heir = site.worker(receiver.url, target=report)
            until(lambda handle=handle: ends(site, handle), PATIENCE_SECONDS)
            until_reported(site, receiver)
            site.killed(heir)
        assert {(body["execution_id"], body["event"]) for body in receiver.bodies} == {(f"run-{number}", EVENTS[agent])}
        is_repeated = point.startswith("notify:after")
        assert Counter(body["id"] for body in receiver.bodies).most_common(1)[0][1] == 1 + is_repeated, point
        assert all(is_signed(*request) for request in receiver.requests)
    record_property("kills", 2 * len(points))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", ["notice.record:before", "notice.list:after"])
def test_c37_a_worker_that_was_replaced_while_it_was_frozen_reports_nothing(site: DaprSite, point: str) -> None:
    with receiving() as receiver:
        handle = site.dispatch("run", agent=reported.planner)
        frozen = site.worker(receiver.url, point, target=report_frozen)
        until(lambda: _is_stopped(frozen), PATIENCE_SECONDS)
        site.worker(receiver.url, target=report)
        assert str(site.result(handle)).strip() == "Your trip is booked."
        until_reported(site, receiver)
        (body,) = receiver.bodies
        os.kill(frozen.pid, signal.SIGCONT)
        reached = Path(site.folder, "reached")
        until(lambda: reached.exists() and "notice.list:after" in reached.read_text(), PATIENCE_SECONDS)
        until(lambda: not listed(site), PATIENCE_SECONDS)
        later = site.dispatch("later", agent=reported.planner)
        site.result(later)
        until_reported(site, receiver, 2)
    first, *others = [each["execution_id"] for each in receiver.bodies]
    assert (first, set(others)) == ("run", {"later"}), (
        "two workers may both report the later one, but not the first again"
    )
    assert receiver.bodies[0] == body


def _is_stopped(worker: Child) -> bool:
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.timeout(300)
def test_c37_what_fails_in_the_process_for_suspects_is_reported_by_a_worker_of_the_command_line(
    site: DaprSite, tmp_path: Path
) -> None:
    with receiving() as receiver:
        handle = site.dispatch("bad", {"tool": "die"}, "Alive.")
        options = ("--quiet", "--webhook", receiver.url, "--webhook-event", "failed")
        env = {"STRANDS_DURABLE_WEBHOOK_SECRET": SECRET}
        workers = [site.typed(tmp_path, *options, **env)]

        def is_failed() -> bool:
            if workers[-1].poll() is not None:
                workers.append(site.typed(tmp_path, *options, **env))
            return site.status(handle) == "FAILED"

        until(is_failed, PATIENCE_SECONDS)
        until_reported(site, receiver)
        workers[-1].send_signal(signal.SIGTERM)
        assert workers[-1].wait(60) == 0
    (body,) = receiver.bodies
    assert (body["execution_id"], body["event"]) == ("bad", "failed")
    assert "WorkerLostError" in body["error"]
