"""What Temporal's history looks like, and what becomes of it when it grows: long runs, large results, waiting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec

from strands_durable import ExecutionResult, ExecutionStatus, errors
from strands_durable._dispatch.requests import Requests
from strands_durable._enginekit.payloads import PayloadStore
from strands_durable._enginekit.replica import Replica
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing.agents import contract_agent
from strands_durable.testing.temporal import TemporalServer
from tests.temporal import agents
from tests.temporal.running import activities, history, kinds, url_of, working

PATIENCE = 60.0


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


async def done(backend: TemporalBackend, spec: Any, execution_id: str = "run") -> ExecutionResult:
    handle = await backend.dispatch(spec, "Go", execution_id=execution_id)
    return await handle.result(PATIENCE)


def test_every_step_is_an_activity_and_history_holds_each_result_once(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        assert str(await done(backend, agents.cycler.spec_with(cycles=5))) == "Done.\n"
        events = await history(backend, "run")
        assert activities(events) == ["run_agent", *(["model_call", "tool_call"] * 5), "model_call"]
        text = b"".join(event.SerializeToString() for event in events)
        assert [text.count(agents.text_of(number).encode()) for number in range(5)] == [1] * 5
        assert kinds(events)["WORKFLOW_EXECUTION_SIGNALED"] == 1, (
            "the first turn is reported by a signal, the others by steps"
        )

    with working(url):
        run(main())


def test_a_long_run_continues_in_new_runs_without_a_visible_difference(temporal: TemporalServer) -> None:
    cycles, url = 16, url_of(temporal, max_events=40)

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await backend.dispatch(agents.cycler.spec_with(cycles=cycles), "Go", execution_id="run")
        streamed = [event async for event in handle.stream()]
        result = await handle.result(PATIENCE)
        assert str(result) == "Done.\n"
        assert result.state["seen"] == list(range(cycles))
        assert result.usage["inputTokens"] == 10 * (cycles + 1)
        steps = await handle.steps()
        assert [(step.kind, step.status, step.attempt) for step in steps] == [
            *([("model", "done", 1), ("tool", "done", 1)] * cycles),
            ("model", "done", 1),
        ]
        assert [event["number"] for event in streamed] == list(range(1, 2 * cycles + 2))
        assert all(event["result"] for event in streamed)
        events = await history(backend, "run")
        assert kinds(events)["WORKFLOW_EXECUTION_CONTINUED_AS_NEW"] >= 4

    with working(url):
        run(main())


def test_a_new_run_for_every_step_is_slow_but_comes_to_an_end(temporal: TemporalServer) -> None:
    url = url_of(temporal, max_events=1)

    async def main() -> None:
        backend = TemporalBackend(url)
        result = await done(backend, agents.cycler.spec_with(cycles=2))
        assert result.state["seen"] == [0, 1]

    with working(url):
        run(main())


def test_c12_a_tool_that_was_loaded_is_there_in_every_run_of_a_workflow(temporal: TemporalServer) -> None:
    cycles, url = 16, url_of(temporal, max_events=40)

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await backend.dispatch(agents.learner.spec_with(cycles=cycles), "Go", execution_id="run")
        result = await handle.result(PATIENCE)
        assert (str(result), result.state["seen"]) == ("Done.\n", list(range(cycles)))
        names = [step.name for step in await handle.steps() if step.kind == "tool"]
        assert names == ["learn", *["look"] * cycles], "what is made again is no step"
        assert kinds(await history(backend, "run"))["WORKFLOW_EXECUTION_STARTED"] > 1, "there was one run only"

    with working(url):
        run(main())


def test_what_an_agent_has_forgotten_is_not_carried_over(temporal: TemporalServer) -> None:
    cycles, url = 16, url_of(temporal, max_events=40)

    async def main() -> None:
        backend = TemporalBackend(url)
        result = await done(backend, agents.forgetful.spec_with(cycles=cycles))
        assert (str(result), result.state["seen"]) == ("Done.\n", list(range(cycles)))
        started = [
            event.workflow_execution_started_event_attributes.input.ByteSize()
            for event in await history(backend, "run")
            if event.event_id == 1
        ]
        assert len(started) > 4
        assert max(started) < 20_000, "the whole conversation has 32 KB"

    with working(url):
        run(main())


def test_c15_a_result_too_large_for_temporal_names_its_tool_and_is_asked_about(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await backend.dispatch(agents.greedy.spec_with(sizes=[3_000_000]), "Go", execution_id="run")
        with pytest.raises(errors.ExecutionFailedError, match=r"tool 'large'.*3,000,\d+ bytes.*payloads="):
            await handle.result(PATIENCE)
        await handle.resume()
        result = await handle.result(PATIENCE)
        assert result.status is ExecutionStatus.SUSPENDED, "it has run, and is not run again without a word"
        await handle.respond({result.interrupts[0].id: {"result": "much"}})
        assert str(await handle.result(PATIENCE)) == "Done.\n"

    with working(url):
        run(main())


def test_a_result_too_large_for_temporal_is_left_to_what_is_recorded(temporal: TemporalServer, tmp_path: Path) -> None:
    url = url_of(temporal, payloads=quote(tmp_path.as_uri(), safe=""))

    async def main() -> None:
        backend = TemporalBackend(url)
        result = await done(backend, agents.hoarder.spec_with(size=2_500_000))
        assert (str(result), len(result.state["kept"])) == ("Done.\n", 2_500_000)
        result = await (await backend.workflow("run")).result()
        assert list(result) == ["omitted"]

    with working(url):
        run(main())


def test_a_step_with_a_long_name_runs_on_every_server(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        assert str(await done(backend, agents.wordy.spec_with(length=2000))) == "Done.\n"
        ids = [
            event.activity_task_scheduled_event_attributes.activity_id
            for event in await history(backend, "run")
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        assert max(len(each.encode()) for each in ids) <= 200

    with working(url):
        run(main())


def test_c33_who_resumes_too_late_does_not_undo_the_run_in_between(temporal: TemporalServer, tmp_path: Path) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        script = [{"fails_until": "never"}]
        spec = contract_agent.spec_with(folder=str(tmp_path), script=script)
        handle = await backend.dispatch(spec, "Go", execution_id="run")
        for _ in range(2):
            with pytest.raises(errors.ExecutionFailedError):
                await handle.result(PATIENCE)
            late = await backend.history("run")
            Requests(late.replica).resume("run")
            await handle.resume()
        with pytest.raises(errors.ExecutionFailedError):
            await handle.result(PATIENCE)
        last = (await backend.describe("run")).run_id
        await backend.resume_run(late)
        assert (await backend.describe("run")).run_id == last

    with working(url):
        run(main())


def test_what_is_too_large_for_temporal_goes_to_a_place_named_by_a_url(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    place = tmp_path / "payloads"
    url = url_of(temporal, payloads=quote(place.as_uri(), safe=""), max_events=40)

    async def main() -> None:
        backend = TemporalBackend(url)
        sizes = [3_000_000, 10, 2_500_000, 20]
        handle = await backend.dispatch(agents.greedy.spec_with(sizes=sizes), "Go", execution_id="run")
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        events = [event async for event in handle.stream() if event["kind"] == "tool"]
        assert [len(event["result"]["content"][0]["text"]) for event in events] == sizes
        assert sum(event.ByteSize() for event in await history(backend, "run")) < 100_000
        assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
        without = TemporalBackend(url.partition("&payloads")[0])
        with pytest.raises(errors.BackendUnavailableError, match="payloads="):
            await (await without.get("run")).steps()

    with working(url):
        run(main())


def test_a_prompt_too_large_for_temporal_is_refused_before_anything_is_sent(temporal: TemporalServer) -> None:
    async def main() -> None:
        backend = TemporalBackend(url_of(temporal))
        prompt = [{"document": {"name": "x", "format": "txt", "source": {"bytes": os.urandom(3_000_000)}}}]
        with pytest.raises(errors.PayloadTooLargeError):
            await backend.dispatch(agents.cycler.spec_with(cycles=1), prompt, execution_id="run")
        with pytest.raises(errors.ExecutionNotFoundError):
            await backend.get("run")

    run(main())


def test_an_execution_that_waits_for_another_takes_no_seat(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        assert str(await done(backend, agents.manager.spec_with(url=url), "outer")) == "Delegated.\n"

    with working(url, concurrency=1):
        run(main())


def test_c13_a_throttled_model_is_waited_for_by_temporal_and_by_no_worker(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await backend.dispatch(agents.throttled.spec_with(folder=str(tmp_path)), "Go", execution_id="run")
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert [(step.status, step.attempt) for step in await handle.steps()] == [("failed", 1), ("done", 2)]
        events = await history(backend, "run")
        assert activities(events) == ["run_agent", "model_call", "wake_agent", "model_call"]
        (timer,) = [event for event in events if event.HasField("timer_started_event_attributes")]
        assert timer.timer_started_event_attributes.start_to_fire_timeout.ToSeconds() in (1, 2)

    with working(url):
        run(main())


def test_c12_the_wait_before_a_retry_of_a_tool_is_a_timer_of_temporal(temporal: TemporalServer, tmp_path: Path) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        assert str(await done(backend, agents.caller.spec_with(folder=str(tmp_path)))) == "Done.\n"
        handle = await backend.get("run")
        tools = [(step.status, step.attempt) for step in await handle.steps() if step.kind == "tool"]
        assert tools == [("failed", 1), ("done", 2)]
        events = await history(backend, "run")
        assert activities(events) == ["run_agent", "model_call", "tool_call", "wake_agent", "tool_call", "model_call"]
        (timer,) = [event for event in events if event.HasField("timer_started_event_attributes")]
        assert timer.timer_started_event_attributes.start_to_fire_timeout.ToSeconds() in (1, 2)

    with working(url):
        run(main())


def test_c17_effects_and_sleep_of_hooks_are_on_record(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        assert str(await done(backend, agents.patient.spec)) == "Rested.\n"
        events = await history(backend, "run")
        assert activities(events) == ["run_agent", "wake_agent", "durable_step", "model_call"]
        assert kinds(events)["TIMER_FIRED"] == 1

    with working(url):
        run(main())


class Mirror(PayloadCodec):
    """Reverses every payload, so that it cannot be read in the history."""

    async def encode(self, payloads: Any) -> list[Payload]:
        return [Payload(metadata={"encoding": b"mirror"}, data=each.SerializeToString()[::-1]) for each in payloads]

    async def decode(self, payloads: Any) -> list[Payload]:
        return [Payload.FromString(each.data[::-1]) for each in payloads]


def test_a_codec_of_ones_own_sees_everything(temporal: TemporalServer) -> None:
    url = url_of(temporal)
    given = {"connect": {"data_converter": DataConverter(payload_codec=Mirror())}}

    async def main() -> None:
        backend = TemporalBackend(url, **given)
        handle = await backend.dispatch(agents.cycler.spec_with(cycles=2), "Go secretly", execution_id="run")
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert [step.kind for step in await handle.steps()] == ["model", "tool", "model", "tool", "model"]
        assert [found.agent for found in await backend.list()] in ([], ["cycler"])
        text = b"".join(event.SerializeToString() for event in await history(backend, "run"))
        assert b"secretly" not in text
        assert b"Done." not in text

    with working(url, **given):
        run(main())


def test_a_client_of_ones_own_is_used(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        client = await Client.connect(temporal.address)
        backend = TemporalBackend(url, client=client)
        assert await backend.client() is client
        assert str(await done(backend, agents.cycler.spec_with(cycles=1))) == "Done.\n"

    with working(url):
        run(main())


@pytest.mark.parametrize(
    "url", ["temporal://host:7233?queue=x", "temporal://user:word@host:7233", "temporal://host/path"]
)
def test_a_url_that_says_what_cannot_be_said_is_refused(url: str) -> None:
    with pytest.raises(errors.UnsupportedFeatureError) as caught:
        TemporalBackend(url)
    assert "word" not in str(caught.value)


def test_a_place_for_payloads_keeps_its_password_to_itself() -> None:
    place = PayloadStore("memory://me:secret@shelf/runs")
    with pytest.raises(errors.BackendUnavailableError, match="memory://shelf/runs") as caught:
        place.load({"o": "0" * 64})
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(TemporalBackend("temporal://host:7233?payloads=memory://me:secret@shelf"))


def test_show_says_failed_where_the_workflow_has_failed_and_the_agent_has_not(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        spec = contract_agent.spec_with(folder=str(tmp_path), script=[{"tool": "wait", "path": "go"}, "Done."])
        replica = Replica.new("new")
        Requests(replica).dispatch(spec, "Go", "run", None, None)
        client = await backend.client()
        await client.start_workflow(
            "strands_durable",
            {**backend._start_of("run", spec.name), "rows": replica.changes()},
            id=backend.workflow_id("run"),
            task_queue=backend.config.task_queue,
            run_timeout=timedelta(seconds=2),
        )
        handle = await backend.get("run")
        with pytest.raises(errors.ExecutionFailedError, match="TIMED_OUT"):
            await handle.result(PATIENCE)
        detail = await handle.detail()
        assert (await handle.status(), detail.execution.status) == (ExecutionStatus.FAILED, ExecutionStatus.FAILED)
        assert [call.status for call in detail.calls] == [ExecutionStatus.FAILED]
        assert [failure.error for failure in detail.calls[0].failures] == [
            "WorkflowFailure: its workflow has ended as TIMED_OUT"
        ]

    with working(url):
        run(main())
