"""C37 on Temporal: a question, a failure and an end are reported by workflows of their own, which hold no run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.worker import Plugin, ReplayerConfig, Worker, WorkerConfig

from strands_durable import ExecutionStatus, Notification, Webhook
from strands_durable._dispatch.notifications import hooks
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.backends.temporal._memo import CREATED_AT
from strands_durable.backends.temporal._notifications.deliveries import Deliveries
from strands_durable.backends.temporal._protocol import Delivering
from strands_durable.testing.temporal import TemporalServer
from tests import reported
from tests.receiver import SECRET, is_signed, receiving, silent
from tests.temporal.running import history, kinds, url_of, working
from tests.waiting import until, until_async

PATIENCE = 60.0
AGENTS = {"planner": reported.planner, "asker": reported.asker, "broken": reported.broken}


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


async def dispatch(backend: TemporalBackend, agent: str, **given: Any) -> Any:
    return await backend.dispatch(AGENTS[agent].spec, "Go", execution_id=agent, **given)


async def notify_workflows(backend: TemporalBackend) -> Counter[str]:
    """Return how many workflows that report something are in each state."""
    query = f"WorkflowType = 'strands_durable_notify' AND TaskQueue = '{backend.config.task_queue}'"
    client = await backend.client()
    found = [each.status async for each in client.list_workflows(query)]
    return Counter(each.name for each in found if each is not None)


def test_c37_questions_failures_and_ends_are_reported_with_what_they_are_about(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        await dispatch(backend, "planner", tags={"tenant": "acme"})
        await dispatch(backend, "broken")
        asked = await dispatch(backend, "asker")
        await asyncio.to_thread(until, lambda: len(receiver.bodies) == 3)
        (question,) = next(body["questions"] for body in receiver.bodies if body["event"] == "suspended")
        await asked.respond({question["interrupt_id"]: "yes"})
        await asked.result(PATIENCE)
        await asyncio.to_thread(until, lambda: len(receiver.bodies) == 4)
        listed = sorted(each.execution_id for each in await backend.list())
        assert listed == ["asker", "broken", "planner"], "what reports an execution is not listed as one"

    with receiving() as receiver:
        TemporalBackend(url).notify(webhooks=[Webhook(receiver.url, SECRET)])
        with working(url):
            run(main())
    assert all(is_signed(*request) for request in receiver.requests)
    assert sorted((body["execution_id"], body["event"]) for body in receiver.bodies) == [
        ("asker", "completed"), ("asker", "suspended"), ("broken", "failed"), ("planner", "completed"),
    ]  # fmt: skip
    found = {(body["execution_id"], body["event"]): body for body in receiver.bodies}
    assert found["planner", "completed"]["tags"] == {"tenant": "acme"}
    assert found["planner", "completed"]["agent"] == "c37-planner"
    assert found["asker", "suspended"]["questions"][0]["reason"] == {"what": "trip"}
    assert "ScriptError" in found["broken", "failed"]["error"]
    assert len({body["id"] for body in receiver.bodies}) == 4


def test_c37_a_receiver_that_fails_twice_gets_the_same_notification_again(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        await (await dispatch(backend, "planner")).result(PATIENCE)
        await asyncio.to_thread(until, lambda: receiver.bodies)

    with receiving(failures=2) as receiver:
        TemporalBackend(url).notify(webhooks=[Webhook(receiver.url, SECRET)])
        with working(url):
            run(main())
    assert receiver.answered == [500, 500, 204]
    assert len({headers["Strands-Durable-Id"] for headers, _ in receiver.requests}) == 1


def test_c37_a_hook_that_hangs_or_fails_holds_no_run_and_repeats_no_other(temporal: TemporalServer) -> None:
    url, calls = url_of(temporal), Counter[str]()

    async def takes(notification: Notification) -> None:
        calls["takes"] += 1

    async def fails_once(notification: Notification) -> None:
        calls["fails"] += 1
        if calls["fails"] == 1:
            raise OSError("not up yet")

    async def hangs(notification: Notification) -> None:
        calls["hangs"] += 1
        await asyncio.Event().wait()

    async def main() -> None:
        backend = TemporalBackend(url)
        await (await dispatch(backend, "planner")).result(PATIENCE)
        await asyncio.to_thread(until, lambda: calls["fails"] == 2)
        failed = await dispatch(backend, "broken")
        await asyncio.to_thread(until, lambda: calls["hangs"] == 1)
        assert await failed.status() is ExecutionStatus.FAILED, "it has ended although its report has not"

    backend = TemporalBackend(url)
    backend.notify(on_completed=takes)
    backend.notify(on_completed=fails_once, on_failed=hangs)
    with working(url):
        run(main())
    assert calls == {"takes": 1, "fails": 2, "hangs": 1}


def test_c37_an_error_of_any_length_is_retried_without_repeating_what_was_taken(temporal: TemporalServer) -> None:
    """The server refuses a result of more than 2 MB, and with it what says which hooks have taken the report."""
    url, calls = url_of(temporal), Counter[str]()

    def takes(notification: Notification) -> None:
        calls["takes"] += 1

    def fails_once(notification: Notification) -> None:
        calls["fails"] += 1
        if calls["fails"] == 1:
            raise OSError("x" * 3_000_000)

    async def main() -> None:
        await (await dispatch(TemporalBackend(url), "planner")).result(PATIENCE)
        await asyncio.to_thread(until, lambda: calls["fails"] == 2)

    backend = TemporalBackend(url)
    backend.notify(on_completed=takes)
    backend.notify(on_completed=fails_once)
    with working(url):
        run(main())
    assert calls == {"takes": 1, "fails": 2}


def test_c37_a_failure_can_be_resumed_by_the_hook_that_reports_it(temporal: TemporalServer) -> None:
    """The report may arrive before the workflow that has failed has ended."""
    url, seen = url_of(temporal), list[str]()

    async def resume(notification: Notification) -> None:
        seen.append(notification.notification_id)
        if len(seen) == 1:
            await (await TemporalBackend(url).get(notification.execution_id)).resume()

    async def main() -> None:
        handle = await dispatch(TemporalBackend(url), "broken")
        await asyncio.to_thread(until, lambda: len(seen) == 2)
        detail = await handle.detail()
        assert len(detail.calls[0].failures) == 2

    TemporalBackend(url).notify(on_failed=resume)
    with working(url):
        run(main())
    assert len(set(seen)) == 2


def test_c37_a_failure_is_not_reported_while_its_workflow_is_open(temporal: TemporalServer) -> None:
    url, seen = url_of(temporal), list[str]()

    def report(notification: Notification) -> None:
        seen.append(notification.event)

    async def main() -> None:
        backend = TemporalBackend(url)
        await (await dispatch(backend, "asker")).result(PATIENCE)
        description = await (await backend.client()).get_workflow_handle(backend.workflow_id("asker")).describe()
        given: Delivering = {
            "execution_id": "asker", "workflow_id": description.id, "run_id": description.run_id or "",
            "created_at": (await description.memo())[CREATED_AT], "notice_id": "n", "event": "failed", "at": 1.0,
            "tries": 1, "taken": [],
        }  # fmt: skip
        deliveries = Deliveries(backend, backend._hooks_key, frozenset({"failed"}))
        found = await deliveries._delivered(given)
        assert found["failures"] == {"execution": "its workflow is about to end"}
        assert seen == []
        found = await deliveries._delivered({**given, "run_id": "an earlier one, which has ended"})
        assert (found["failures"], seen) == ({}, ["failed"])

    TemporalBackend(url).notify(on_failed=report)
    with working(url):
        run(main())


def test_c37_a_worker_without_a_hook_for_the_event_leaves_it_to_one_that_has(
    temporal: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(temporal)
    other, seen, is_up = f"{url}&max_events=0", list[str](), False  # the same queue, and hooks of its own

    def report(notification: Notification) -> None:
        if not is_up:
            raise OSError("not up yet")
        seen.append(notification.event)

    TemporalBackend(url).notify(on_suspended=report)
    TemporalBackend(other).notify(on_failed=report)
    with working(url):
        run(dispatch(TemporalBackend(url), "asker"))
        until(lambda: "not up yet" in caplog.text)
    is_up = True
    with working(other):
        until(lambda: "it has no hook for suspended" in caplog.text)
    assert seen == []
    with working(url):
        until(lambda: seen == ["suspended"])


def test_c37_what_was_removed_is_not_reported_as_the_next_execution_of_its_id(
    temporal: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    url, seen, is_up = url_of(temporal), list[str](), False

    def report(notification: Notification) -> None:
        if not is_up:
            raise OSError("not up yet")
        seen.append(notification.event)

    async def main() -> None:
        nonlocal is_up
        backend = TemporalBackend(url)
        await (await backend.dispatch(reported.planner.spec, "Go", execution_id="trip")).result(PATIENCE)
        await asyncio.to_thread(until, lambda: "not up yet" in caplog.text)
        await backend.remove("trip")
        await backend.dispatch(reported.asker.spec, "Go", execution_id="trip")
        is_up = True

        async def is_done() -> bool:
            return (await notify_workflows(backend))[WorkflowExecutionStatus.COMPLETED.name] == 1

        await until_async(is_done, PATIENCE)

    TemporalBackend(url).notify(on_completed=report)
    with working(url):
        run(main())
    assert seen == []


class Forgetful(Plugin):
    """Has a worker replay a workflow from its beginning for each task."""

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        config["max_cached_workflows"] = 0
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        await next(worker)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        return config

    def run_replayer(self, replayer: Any, histories: Any, next: Any) -> Any:
        return next(replayer, histories)


def test_c37_reports_are_started_once_by_workers_that_replay_the_workflow_for_each_task(
    temporal: TemporalServer,
) -> None:
    url, seen = url_of(temporal), list[str]()

    def report(notification: Notification) -> None:
        seen.append(notification.event)

    async def main() -> None:
        handle = await dispatch(TemporalBackend(url), "asker")
        result = await handle.result(PATIENCE)
        await handle.respond({result.interrupts[0].id: "yes"})
        assert str(await handle.result(PATIENCE)) == "Approved.\n"
        await asyncio.to_thread(until, lambda: len(seen) == 2)

    TemporalBackend(url).notify(on_suspended=report, on_completed=report)
    with working(url, plugins=[Forgetful()]):
        run(main())
    assert seen == ["suspended", "completed"]


def test_c37_nothing_is_started_where_no_worker_reports(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        await (await dispatch(backend, "planner")).result(PATIENCE)
        assert kinds(await history(backend, "planner"))["START_CHILD_WORKFLOW_EXECUTION_INITIATED"] == 0

    with working(url):
        run(main())


def test_c37_what_is_given_up_fails_with_the_reason(temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr(hooks, "GIVE_UP_TRIES", 1)
    url = url_of(temporal)

    def refuse(notification: Notification) -> None:
        raise OSError("no receiver")

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await dispatch(backend, "planner")
        await handle.result(PATIENCE)

        async def has_failed() -> bool:
            return (await notify_workflows(backend))[WorkflowExecutionStatus.FAILED.name] == 1

        await until_async(has_failed)
        assert await handle.status() is ExecutionStatus.COMPLETED

    TemporalBackend(url).notify(on_completed=refuse)
    with working(url):
        run(main())


def test_c37_a_receiver_that_never_answers_delays_no_other_hook_and_no_stop(temporal: TemporalServer) -> None:
    url, many = url_of(temporal), 20

    async def main() -> None:
        backend = TemporalBackend(url)
        for number in range(many):
            await backend.dispatch(reported.planner.spec, "Go", execution_id=f"trip-{number}")

    with silent() as first, receiving() as second:
        webhooks = [Webhook(first.url, SECRET, timeout_seconds=28), Webhook(second.url, SECRET)]
        TemporalBackend(url).notify(webhooks=webhooks)
        with working(url):
            run(main())
            until(lambda: len(second.bodies) == many or first.has_lost)
        assert not first.has_lost, (
            "its first request was given up before the others were delivered, or the worker had stopped"
        )
        assert len({body["execution_id"] for body in second.bodies}) == many
