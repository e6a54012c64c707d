"""C37 on Dapr: a question, a failure and an end are reported at least once, and no run waits for that."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strands_durable import Notification, Webhook
from strands_durable._dispatch.notifications import hooks as given
from strands_durable._enginekit.key_value.log import notices_key
from strands_durable._enginekit.key_value.notices import StoredNotice, name_of
from strands_durable._enginekit.key_value.store import Value
from strands_durable.backends.dapr import DaprBackend
from strands_durable.backends.dapr._client import Sidecar as Client
from tests import reported
from tests.dapr.running import DaprBench
from tests.receiver import SECRET, is_signed, receiving, silent

ALL = ("suspended", "failed", "completed")


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    """Forget the hooks of a test: a later one may have a sidecar at the same port."""
    yield
    given.hooks._hooks.clear()


def dispatch(bench: DaprBench, agent: str, execution_id: str | None = None, **more: Any) -> Any:
    made = getattr(reported, agent)
    return bench.run(bench.backend.dispatch(made.spec_with(), "Go", execution_id=execution_id or agent, **more))


def report(bench: DaprBench, **to: Any) -> None:
    for sidecar in bench.sidecars:
        DaprBackend(bench.url(sidecar)).notify(**to)


def listed(bench: DaprBench) -> dict[str, float]:
    found: dict[str, float] = bench.run(bench.backend.engine.notices.listed())
    return found


def kept(bench: DaprBench, execution_id: str) -> list[StoredNotice]:
    head = bench.run(bench.backend.engine.log.stored_head(execution_id))
    found: list[StoredNotice] = bench.run(bench.backend.engine.notices.careful_read(name_of(execution_id, head.life)))
    return found


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the keys of notices that are asked for or written."""
    asked: Counter[str] = Counter()
    call = Client._state

    def counting(client: Client, method: str, request: Any) -> Any:
        if "notices" in str(request) or "-watches" in str(request):
            asked[method] += 1
        return call(client, method, request)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "_state", counting)
        yield asked


def test_c37_questions_failures_and_ends_are_reported_with_what_they_are_about(bench: DaprBench) -> None:
    with receiving() as receiver:
        report(bench, webhooks=[Webhook(receiver.url, SECRET)])
        with bench.worker():
            dispatch(bench, "planner", tags={"tenant": "acme"})
            dispatch(bench, "asker")
            dispatch(bench, "broken")
            bench.until(lambda: len(receiver.bodies) == 3)
            bench.until(lambda: not listed(bench))
    assert all(is_signed(*request) for request in receiver.requests)
    assert not any(is_signed(*request, "another secret, as long as it") for request in receiver.requests)
    assert [header["Strands-Durable-Id"] for header, _ in receiver.requests] == [body["id"] for body in receiver.bodies]
    found = {body["execution_id"]: body for body in receiver.bodies}
    assert {name: body["event"] for name, body in found.items()} == {
        "planner": "completed", "asker": "suspended", "broken": "failed",
    }  # fmt: skip
    assert (found["planner"]["agent"], found["planner"]["tags"]) == ("c37-planner", {"tenant": "acme"})
    (question,) = found["asker"]["questions"]
    assert (question["name"], question["reason"]) == ("approval", {"what": "trip"})
    assert "ScriptError" in found["broken"]["error"]


def test_c37_an_execution_that_suspends_and_completes_is_reported_twice(bench: DaprBench) -> None:
    found: list[Notification] = []
    report(bench, on_suspended=found.append, on_completed=found.append)
    with bench.worker():
        handle = dispatch(bench, "asker")
        (question,) = bench.result(handle).interrupts
        bench.until(lambda: len(found) == 1)
        bench.run(handle.respond({question.id: "yes"}))
        bench.until(lambda: len(found) == 2)
        bench.until(lambda: not listed(bench))
    assert [(each.event, bool(each.questions)) for each in found] == [("suspended", True), ("completed", False)]
    assert len({each.notification_id for each in found}) == 2
    assert kept(bench, "asker") == []


def test_c37_a_receiver_that_fails_twice_gets_the_same_notification_again(bench: DaprBench) -> None:
    with receiving(failures=2) as receiver:
        report(bench, webhooks=[Webhook(receiver.url, SECRET)])
        with bench.worker():
            handle = dispatch(bench, "planner")
            bench.until(lambda: bench.run(handle.detail()).undelivered)
            bench.until(lambda: receiver.bodies)
            bench.until(lambda: not listed(bench))
        assert bench.run(handle.detail()).undelivered == ()
    assert receiver.answered == [500, 500, 204]
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 1
    assert all(is_signed(*request) for request in receiver.requests)


def test_c37_a_function_that_raises_is_called_again_and_one_that_does_not_is_not(bench: DaprBench) -> None:
    calls: Counter[str] = Counter()

    async def fails_once(notification: Notification) -> None:
        calls["fails"] += 1
        if calls["fails"] == 1:
            raise ValueError("not yet")

    def works(notification: Notification) -> None:
        calls["works"] += 1

    report(bench, on_completed=works)
    report(bench, on_completed=fails_once)
    with bench.worker():
        dispatch(bench, "planner")
        bench.until(lambda: calls["fails"] == 2)
        bench.until(lambda: not listed(bench))
    assert calls == {"fails": 2, "works": 1}


def test_c37_two_workers_deliver_each_notification_once(bench: DaprBench) -> None:
    bench.add_sidecar()
    with receiving() as receiver:
        report(bench, webhooks=[Webhook(receiver.url, SECRET)])
        with bench.worker(), bench.worker(bench.sidecars[1]):
            for number in range(12):
                dispatch(bench, "planner", f"run-{number}")
            bench.until(lambda: len(receiver.bodies) >= 12)
            bench.until(lambda: not listed(bench))
    assert sorted(body["execution_id"] for body in receiver.bodies) == sorted(f"run-{number}" for number in range(12))


def test_c37_a_receiver_that_hangs_delays_no_run_and_no_other_notification(bench: DaprBench) -> None:
    seen: list[str] = []

    async def hangs(notification: Notification) -> None:
        if notification.execution_id == "slow":
            await asyncio.Event().wait()
        seen.append(notification.execution_id)

    report(bench, on_completed=hangs)
    with bench.worker():
        handles = [dispatch(bench, "planner", each) for each in ("slow", "quick-0", "quick-1", "quick-2")]
        assert [str(bench.result(handle)).strip() for handle in handles] == ["Your trip is booked."] * 4
        bench.until(lambda: len(seen) == 3)
    assert sorted(seen) == ["quick-0", "quick-1", "quick-2"]
    (waiting,) = kept(bench, "slow")
    assert waiting.tries == 1, "the next worker delivers it"


def test_c37_what_is_given_up_stays_on_record_until_the_execution_is_removed(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr(given, "GIVE_UP_TRIES", 1)

    def refuse(notification: Notification) -> None:
        raise OSError("no receiver")

    report(bench, on_completed=refuse)
    with bench.worker():
        handle = dispatch(bench, "planner")
        bench.until(lambda: any(each.gave_up_at for each in bench.run(handle.detail()).undelivered))
        bench.until(lambda: not listed(bench))
    (shown,) = bench.run(handle.detail()).undelivered
    assert (shown.event, shown.tries) == ("completed", 1)
    assert str(shown.error).endswith("no receiver")
    bench.run(bench.backend.remove("planner"))
    assert kept(bench, "planner") == []


def test_c37_what_was_removed_is_not_reported(bench: DaprBench) -> None:
    def refuse(notification: Notification) -> None:
        raise OSError("no receiver")

    report(bench, on_completed=refuse)
    with bench.worker():
        handle = dispatch(bench, "planner")
        bench.until(lambda: any(each.tries for each in bench.run(handle.detail()).undelivered))
    given.hooks._hooks.clear()
    bench.run(bench.backend.remove("planner"))
    found: list[Notification] = []
    report(bench, on_completed=found.append)
    with bench.worker():
        bench.until(lambda: not listed(bench))
    assert found == []


def test_c37_a_worker_without_hooks_records_what_another_one_reports(bench: DaprBench) -> None:
    found: list[Notification] = []
    report(bench, on_suspended=found.append)
    with bench.worker():
        bench.until(lambda: bench.run(bench.backend.engine.notices._watches.items()))
    given.hooks._hooks.clear()
    with bench.worker():
        bench.result(dispatch(bench, "asker"))
        bench.result(dispatch(bench, "planner"))
    assert [each.event for each in kept(bench, "asker")] == ["suspended"]
    assert kept(bench, "planner") == [], "no worker reports ends"
    report(bench, on_suspended=found.append)
    with bench.worker():
        bench.until(lambda: found)
        bench.until(lambda: not listed(bench))
    assert [(each.execution_id, each.event) for each in found] == [("asker", "suspended")]


def test_c37_nothing_is_recorded_and_nothing_is_asked_where_no_worker_reports(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench.worker():
        bench.result(dispatch(bench, "planner", "first"))
        with counted(monkeypatch) as asked:
            bench.result(dispatch(bench, "asker"))
            bench.result(dispatch(bench, "planner"))
    assert set(asked) <= {"GetBulkState"}, "read with the heartbeats, in a request that is made in any case"
    assert listed(bench) == {}


def test_c37_what_a_worker_that_was_replaced_has_written_is_dropped(bench: DaprBench) -> None:
    found: list[Notification] = []
    with bench.worker():
        handle = dispatch(bench, "asker")
        bench.result(handle)

    async def announce_as_another_writer() -> None:
        """Write what a worker writes that has lost the execution without knowing it."""
        head = await bench.backend.engine.log.stored_head("asker")
        assert head is not None
        given.hooks.add(bench.backend.engine.store.where, given.Hook.of(print, *ALL))
        late = head.next({"tables": {"executions": [{"status": "COMPLETED"}]}})
        assert await bench.backend.engine.notices.announce("asker", head, late)
        given.hooks._hooks.clear()

    bench.run(announce_as_another_writer())
    report(bench, on_suspended=found.append, on_completed=found.append, on_failed=found.append)
    with bench.worker():
        bench.until(lambda: len(listed(bench)) == 1)
        (waiting,) = kept(bench, "asker")
        assert waiting.event == "completed"
        assert bench.run(handle.detail()).undelivered == (), "as long as its batch may come, it is no event"
        (question,) = bench.run(handle.interrupts())
        bench.run(handle.respond({question.id: "yes"}))
        bench.result(handle)
        bench.until(lambda: not listed(bench))
    assert [each.event for each in found] == ["completed"]
    assert found[0].notification_id != waiting.notice_id


def test_c37_damaged_notices_stop_no_others_and_no_run(bench: DaprBench) -> None:
    found: list[Notification] = []

    def refuse(notification: Notification) -> None:
        raise OSError("no receiver")

    report(bench, on_suspended=refuse)
    with bench.worker():
        for name in ("one", "two", "three"):
            bench.result(dispatch(bench, "asker", name))
        bench.until(lambda: all(kept(bench, name) and kept(bench, name)[0].tries for name in ("one", "two", "three")))
    given.hooks._hooks.clear()

    async def damage() -> None:
        store, log = bench.backend._sidecar, bench.backend.engine.log
        for name, data in (("one", b"{"), ("two", json.dumps({"x": {"event": "nothing"}}).encode())):
            head = await log.stored_head(name)
            assert head is not None
            await store.save(Value(key=notices_key(name, head.life), data=data))
        await store.save(Value(key=bench.backend.engine.notices.watch_keys[0], data=b"{"))

    bench.run(damage())
    report(bench, on_suspended=found.append, on_completed=found.append)
    with bench.worker():
        bench.until(lambda: [each.execution_id for each in found] == ["three"])
        handle = bench.run(bench.backend.get("one"))
        (question,) = bench.run(handle.interrupts())
        bench.run(handle.respond({question.id: "yes"}))
        bench.result(handle)
        bench.until(lambda: len(found) == 2)
    assert (found[1].execution_id, found[1].event) == ("one", "completed")


def test_c37_start_reports_what_its_own_worker_runs(bench: DaprBench) -> None:
    found: list[Notification] = []
    bench.backend.working("off").notify(on_completed=found.append)
    bench.backend.start()
    bench.result(dispatch(bench, "planner"))
    bench.until(lambda: found)
    assert found[0].execution_id == "planner"


def test_c37_a_receiver_that_never_answers_delays_no_other_hook_and_no_stop(bench: DaprBench) -> None:
    many = 20
    with silent() as first, receiving() as second:
        report(bench, webhooks=[Webhook(first.url, SECRET, timeout_seconds=28), Webhook(second.url, SECRET)])
        with bench.worker():
            for number in range(many):
                dispatch(bench, "planner", execution_id=f"trip-{number}")
            bench.until(lambda: len(second.bodies) == many or first.has_lost)
        assert not first.has_lost, (
            "its first request was given up before the others were delivered, or the worker had stopped"
        )
        assert len({body["execution_id"] for body in second.bodies}) == many
