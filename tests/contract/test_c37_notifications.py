"""C37: a question, a failure and an end are reported at least once, whatever is killed in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability, Notification, Webhook, connect, errors
from strands_durable._dispatch.notifications import hooks
from strands_durable.testing import CrashPoints, ScriptedModel, forget_process
from strands_durable.testing.memory import MemoryBackend
from tests import reported
from tests.commands import AGENTS, cli, start
from tests.processes import Child, run
from tests.receiver import SECRET, Receiver, is_signed, receiving
from tests.waiting import until

URL = "sqlite:///runs.db"
OFF = f"{URL}?worker=off"
AGENTS_HERE = {"planner": reported.planner, "asker": reported.asker, "broken": reported.broken}


def dispatch(agent: str, execution_id: str | None = None, **given: Any) -> None:
    asyncio.run(AGENTS_HERE[agent].on(OFF).dispatch_async("Go", execution_id=execution_id or agent, **given))


def work(folder: str, url: str, point: str | None = None) -> list[str]:
    """Be a worker that reports to a URL, until the file ``stop`` exists; crash at a point, or return those reached."""
    os.chdir(folder)
    points = CrashPoints()

    async def until_stopped() -> None:
        backend, stop = connect(URL), asyncio.Event()
        backend.notify(webhooks=[Webhook(url, SECRET)])
        working = asyncio.ensure_future(backend.work(stop=stop))
        while not Path("stop").exists():
            await asyncio.sleep(0.01)
        stop.set()
        await working

    with points.recording() if point is None else points.crashing(point):
        asyncio.run(until_stopped())
    return points.reached


@contextmanager
def worker(receiver: Receiver) -> Iterator[None]:
    Path("stop").unlink(missing_ok=True)
    child = Child(work, os.getcwd(), receiver.url)
    try:
        yield
    finally:
        Path("stop").touch()
        child.join().checked()


def notices() -> int:
    with closing(sqlite3.connect("runs.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM notices").fetchone()[0])


def test_c37_questions_failures_and_ends_are_reported_with_what_they_are_about() -> None:
    with receiving() as receiver, worker(receiver):
        until(Path("runs.db").exists)
        dispatch("planner", tags={"tenant": "acme"})
        dispatch("asker")
        dispatch("broken")
        until(lambda: len(receiver.bodies) == 3)
        until(lambda: notices() == 0)
    assert all(is_signed(*request) for request in receiver.requests)
    assert not any(is_signed(*request, "another secret, as long as it") for request in receiver.requests)
    found = {body["execution_id"]: body for body in receiver.bodies}
    assert [header["Strands-Durable-Id"] for header, _ in receiver.requests] == [body["id"] for body in receiver.bodies]
    assert {name: body["event"] for name, body in found.items()} == {
        "planner": "completed", "asker": "suspended", "broken": "failed",
    }  # fmt: skip
    assert (found["planner"]["agent"], found["planner"]["tags"]) == ("c37-planner", {"tenant": "acme"})
    (question,) = found["asker"]["questions"]
    assert (question["name"], question["reason"]) == ("approval", {"what": "trip"})
    assert "ScriptError" in found["broken"]["error"]


def test_c37_a_receiver_that_fails_twice_gets_the_same_notification_again() -> None:
    with receiving(failures=2) as receiver, worker(receiver):
        until(Path("runs.db").exists)
        dispatch("planner")
        until(lambda: receiver.bodies)
        until(lambda: notices() == 0)
    assert receiver.answered == [500, 500, 204]
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 1
    assert all(is_signed(*request) for request in receiver.requests)


def test_c37_a_worker_killed_between_commit_and_delivery_loses_no_notification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill it at every boundary from the commit that ends the run to the one that forgets the notification."""
    dispatch("planner", "first")
    with receiving() as receiver:
        child = Child(work, os.getcwd(), receiver.url)
        until(lambda: receiver.bodies and notices() == 0)
        Path("stop").touch()
        reached = child.join().checked()
    names = [point.partition("@")[0] for point in reached]
    last = names.index("notice.delivered:after")
    first = names.index("notice.claim:before") - 1
    assert names[first].endswith(":after"), "the commit that ends the run"
    assert {"notify:before", "notify:after"} <= set(names[first:last])
    for number, point in enumerate(reached[first : last + 1]):
        folder = tmp_path / f"at-{number}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        dispatch("planner")
        with receiving() as receiver:
            assert run(work, os.getcwd(), receiver.url, point).exitcode == -signal.SIGKILL, point
            with worker(receiver):
                until(lambda receiver=receiver: receiver.bodies and notices() == 0)  # type: ignore[misc]
        ids = Counter(body["id"] for body in receiver.bodies)
        assert len(ids) == 1, point
        assert sum(ids.values()) == (2 if point.startswith(("notify:after", "notice.delivered:before")) else 1), point
        assert all(is_signed(*request) for request in receiver.requests)


def test_c37_a_killed_worker_of_the_command_line_is_followed_by_another() -> None:
    Path("secret").write_text(f"{SECRET}\n")
    with receiving(failures=1_000) as receiver:
        options = ("--backend", URL, "--webhook", receiver.url, "--webhook-secret-file", "secret")
        first = start("worker", reported.__file__, *options, "--webhook-event", "completed")
        until(Path("runs.db").exists)
        dispatch("planner")
        until(lambda: receiver.requests)
        first.kill()
        first.communicate()
        receiver.failures = 0
        second = start("worker", reported.__file__, *options, "--webhook-event", "completed")
        until(lambda: receiver.bodies)
        second.terminate()
        output = "".join(second.communicate())
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 1
    assert SECRET not in output
    assert "/hook" not in output


# Functions


@pytest.mark.parametrize("event", ["suspended", "failed", "completed"])
def test_c37_a_function_is_called_for_its_event(event: str) -> None:
    found: list[Notification] = []
    backend = connect(URL)
    try:
        backend.notify(**{f"on_{event}": found.append})  # type: ignore[arg-type]
        backend.start()
        until(lambda: Path("runs.db").exists())
        for agent in ("planner", "asker", "broken"):
            dispatch(agent)
        until(lambda: found)
        until(lambda: notices() == 0)
    finally:
        asyncio.run(backend.close())
    (only,) = found
    assert (only.event, only.execution_id) == (
        event, {"suspended": "asker", "failed": "broken", "completed": "planner"}[event],
    )  # fmt: skip
    assert bool(only.questions) is (event == "suspended")
    assert bool(only.error) is (event == "failed")


def test_c37_a_function_that_raises_is_called_again_and_one_that_does_not_is_not() -> None:
    calls: Counter[str] = Counter()

    async def fails_once(notification: Notification) -> None:
        calls["fails"] += 1
        if calls["fails"] == 1:
            raise ValueError("not yet")

    def works(notification: Notification) -> None:
        calls["works"] += 1

    backend = connect(URL)
    try:
        backend.notify(on_completed=works)
        backend.notify(on_completed=fails_once)
        backend.start()
        dispatch("planner")
        until(lambda: calls["fails"] == 2)
        until(lambda: notices() == 0)
    finally:
        asyncio.run(backend.close())
    assert calls == {"fails": 2, "works": 1}


def test_c37_what_is_given_up_stays_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr(hooks, "GIVE_UP_TRIES", 1)

    def refuse(notification: Notification) -> None:
        raise OSError("no receiver")

    backend = connect(URL)
    try:
        backend.notify(on_completed=refuse)
        backend.start()
        dispatch("planner")
        until(lambda: "given up" in cli("show", "planner", "--backend", URL).stdout)
    finally:
        asyncio.run(backend.close())
    shown = json.loads(cli("show", "planner", "--backend", URL, "--json").stdout)["undelivered"]
    assert [(each["event"], each["tries"]) for each in shown] == [("completed", 1)]
    assert shown[0]["error"].endswith("no receiver")
    asyncio.run(connect(OFF).remove("planner"))
    assert notices() == 0


def test_c37_an_inline_run_is_reported_by_the_workers_of_its_file() -> None:
    with receiving() as receiver:
        with worker(receiver):
            until(Path("runs.db").exists)
            until(lambda: watched() == 3)
        plugin = Durability("runs.db", execution_id="script")
        Agent(model=ScriptedModel(["Hi."]), plugins=[plugin], callback_handler=None)("Go")
        assert notices() == 1, "recorded while no worker runs"
        forget_process()
        with worker(receiver):
            until(lambda: receiver.bodies)
    assert [(body["execution_id"], body["event"]) for body in receiver.bodies] == [("script", "completed")]


def watched() -> int:
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect("runs.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM watches").fetchone()[0])
    return 0


def test_c37_nothing_is_recorded_where_no_worker_reports() -> None:
    cli("run", f"{AGENTS}:planner", "Go", "--id", "trip", "--backend", URL)
    assert notices() == 0


def test_c37_a_slow_receiver_delays_no_run_and_no_other_notification() -> None:
    seen: list[str] = []

    async def slow(notification: Notification) -> None:
        if notification.execution_id == "slow":
            await asyncio.Event().wait()
        seen.append(notification.execution_id)

    backend = connect(URL)
    try:
        backend.notify(on_completed=slow)
        backend.start()
        dispatch("planner", "slow")
        for number in range(3):
            dispatch("planner", f"quick-{number}")
        until(lambda: len(seen) == 3)
    finally:
        asyncio.run(backend.close())
    assert sorted(seen) == ["quick-0", "quick-1", "quick-2"]


# What is refused


def test_c37_an_engine_that_cannot_record_notifications_refuses_them_by_name() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="Notifications on memory://x"):
        MemoryBackend("memory://x").notify(on_failed=print)
    Path("secret").write_text(SECRET)
    options = ("--webhook", "https://example.com", "--webhook-secret-file", "secret")
    result = cli("worker", AGENTS, "--backend", "lambda://function:1", *options)
    assert result.exit_code != 0
    assert "Notifications on lambda://function:1, from a client" in result.stderr
    assert "Pass the hooks to lambda_handler(" in result.stderr


@pytest.mark.parametrize(
    ("url", "secret", "why"),
    [
        ("ftp://example.com", SECRET, "must begin with https:// or http://"),
        ("https://", SECRET, "name a host"),
        ("https://example.com", "short", "at least 16 characters"),
    ],
)
def test_c37_a_webhook_that_cannot_work_is_refused_at_the_start(url: str, secret: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Webhook(url, secret)
    env = {"STRANDS_DURABLE_WEBHOOK_SECRET": secret}
    result = cli("worker", AGENTS, "--backend", URL, "--webhook", url, env=env)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


def test_c37_a_webhook_without_a_secret_is_refused_and_shows_no_secret() -> None:
    assert cli("worker", AGENTS, "--backend", URL, "--webhook", "https://example.com").exit_code == 2
    assert cli("worker", AGENTS, "--backend", URL, "--webhook-event", "failed").exit_code == 2
    webhook = Webhook("https://example.com/s3cret", SECRET)
    shown = f"{webhook!r} {webhook}"
    assert SECRET not in shown
    assert "s3cret" not in shown
