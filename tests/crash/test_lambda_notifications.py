"""C37 on AWS Lambda: the process of an invocation is killed around recording and delivering, and each report arrives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import reported
from tests.crash import mined
from tests.crash.aws import LambdaSite
from tests.receiver import SECRET, Receiver, is_signed, receiving
from tests.waiting import until

EVENTS = {"completed": reported.planner, "suspended": reported.asker, "failed": reported.broken}
AROUND = {"operation:after", "notice:before", "start:after", "notice:after", "notify:before", "notify:after"}
"""The points from the record of a status to that of its delivery."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as found:
        monkeypatch.setenv("WEBHOOK", found.url)
        monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
        yield found


def delivered(site: LambdaSite) -> list[str]:
    """Return how the durable executions have ended that deliver."""
    found = site.run(site.backend.client.executions())
    return [each["Status"] for each in found if each["DurableExecutionName"].startswith("notice-")]


def dispatch(site: LambdaSite, name: str, agent: Any) -> None:
    site.run(site.backend.dispatch(agent.spec, "Go", execution_id=name))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("event", EVENTS)
def test_c37_a_process_killed_between_record_and_delivery_loses_no_report(
    tmp_path: Path, receiver: Receiver, event: str, record_property: Any
) -> None:
    with LambdaSite(tmp_path) as site:
        dispatch(site, "whole", EVENTS[event])
        until(lambda: delivered(site) == ["SUCCEEDED"], 60)
        points = sorted(set(mined.reached(tmp_path, "whole")))
        names = {point.partition("@")[0] for point in points}
        assert names >= AROUND
        points = [each for each in points if each.startswith(("operation:", "callback:", *AROUND))]
        for number, point in enumerate(points):
            mined.lay(tmp_path, f"run-{number}", point)
            dispatch(site, f"run-{number}", EVENTS[event])
        until(lambda: delivered(site) == ["SUCCEEDED"] * (1 + len(points)), 240)
    assert os.environ["WEBHOOK"] == receiver.url
    for number, point in enumerate(points):
        assert mined.has_blown(tmp_path, f"run-{number}"), point
        bodies = [body for body in receiver.bodies if body["execution_id"] == f"run-{number}"]
        assert {body["event"] for body in bodies} == {event}, point
        (count,) = Counter(body["id"] for body in bodies).values()
        assert count == (2 if point.startswith("notify:after") else 1), point
        assert bool(bodies[0]["questions"]) is (event == "suspended"), point
    assert all(is_signed(*request) for request in receiver.requests)
    record_property("kills", len(points))


@pytest.mark.timeout(300)
def test_c37_kills_while_the_receiver_is_down_lose_no_report(tmp_path: Path, receiver: Receiver) -> None:
    receiver.failures = 1_000
    with LambdaSite(tmp_path) as site:
        dispatch(site, "run", reported.planner)
        handle = site.run(site.backend.get("run"))
        for _ in range(3):
            before = len(receiver.requests)
            until(lambda before=before: len(receiver.requests) > before, 60)  # type: ignore[misc]
            for invocation in site.invocations():
                invocation.kill()
        assert "booked" in str(site.result(handle))
        receiver.failures = 0
        until(lambda: delivered(site) == ["SUCCEEDED"], 120)
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 1
    assert [body["event"] for body in receiver.bodies] == ["completed"]


@pytest.mark.timeout(300)
def test_c37_a_hook_that_kills_its_process_keeps_no_other_from_its_report(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADLY_HOOK", "yes")
    deadly = tmp_path / "deadly hook"
    deadly.touch()
    with LambdaSite(tmp_path) as site:
        dispatch(site, "run", reported.planner)
        until(lambda: receiver.bodies and len(site.ledger(what="hook")) > 1, 60)
        deadly.unlink()
        until(lambda: delivered(site) == ["SUCCEEDED"], 120)
    (body,) = receiver.bodies
    assert {entry["notification_id"] for entry in site.ledger(what="hook")} == {body["id"]}
