"""What is larger than one payload of Temporal's is sent in pieces, and is there as a whole or not at all."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from strands_durable import ExecutionHandle, errors
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing.temporal import TemporalServer
from tests.temporal import agents
from tests.temporal.running import activities, history, kinds, url_of, working

PATIENCE = 60.0
TEMPORAL = "strands_durable.backends.temporal"


async def dispatched(url: str, sizes: list[Any], **given: Any) -> tuple[TemporalBackend, ExecutionHandle]:
    backend = TemporalBackend(url)
    return backend, await backend.dispatch(agents.greedy.spec_with(sizes=sizes, **given), "Go", execution_id="run")


async def sizes_of(handle: ExecutionHandle) -> list[int]:
    """Return how long the results of tools are; each has run once."""
    steps = [step for step in await handle.steps() if step.kind == "tool"]
    assert {(step.status, step.attempt) for step in steps} == {("done", 1)}
    found = [event async for event in handle.stream() if event["kind"] == "tool"]
    return [len(event["result"]["content"][0]["text"]) for event in found]


def test_results_that_come_together_are_recorded_however_large_they_are_together(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await backend.dispatch(agents.squirrel.spec_with(size=1_200_000), "Go", execution_id="run")
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert sorted(await sizes_of(handle)) == [1_200_000, 1_200_001]
        assert kinds(await history(backend, "run"))["WORKFLOW_EXECUTION_SIGNALED"] == 3, (
            "the first turn, and two pieces"
        )

    with working(url):
        asyncio.run(main())


def test_a_conversation_larger_than_a_payload_continues_in_new_runs(temporal: TemporalServer) -> None:
    url = url_of(temporal, max_events=30)
    sizes = [1_000_000, 1_000_001, 10, 20]

    async def main() -> None:
        backend, handle = await dispatched(url, sizes)
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert await sizes_of(handle) == sizes
        events = await history(backend, "run")
        assert activities(events).count("carry_agent") >= 1
        last = [event for event in events if event.event_id == 1][-1]
        assert last.workflow_execution_started_event_attributes.input.ByteSize() < 5_000

    with working(url):
        asyncio.run(main())


def test_a_large_execution_that_failed_is_resumed(temporal: TemporalServer, tmp_path: Path) -> None:
    url, marker = url_of(temporal), tmp_path / "fixed"
    sizes = [1_200_000, 1_200_001]

    async def main() -> None:
        backend, handle = await dispatched(url, sizes, marker=str(marker))
        with pytest.raises(errors.ExecutionFailedError):
            await handle.result(PATIENCE)
        marker.touch()
        await handle.resume()
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert await sizes_of(handle) == sizes
        assert "carry_agent" in activities(await history(backend, "run"))

    with working(url):
        asyncio.run(main())


def test_what_no_new_run_may_begin_with_continues_in_the_same_run_until_history_is_full(
    temporal: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url, place = url_of(temporal, max_events=30), quote((tmp_path / "payloads").as_uri(), safe="")
    monkeypatch.setattr(f"{TEMPORAL}._continue_as_new.CARRIED_BYTES", 2_000_000)
    caplog.set_level(logging.WARNING)
    sizes = [1_200_000, 1_200_001, 10, 20]

    async def main() -> None:
        backend, handle = await dispatched(url, sizes)
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert await sizes_of(handle) == sizes
        events = await history(backend, "run")
        assert kinds(events)["WORKFLOW_EXECUTION_CONTINUED_AS_NEW"] == 0
        assert activities(events).count("leave_agent") == 1, "it is not tried again with every step"

    async def full() -> None:
        _, handle = await dispatched(f"{url}&prefix=full", sizes)
        with pytest.raises(errors.ExecutionFailedError, match=r"where Temporal ends workflows.*payloads="):
            await handle.result(PATIENCE)

    async def resumed() -> None:
        handle = await TemporalBackend(f"{url}&payloads={place}&prefix=full").get("run")
        await handle.resume()
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        assert await sizes_of(handle) == sizes

    with working(url):
        asyncio.run(main())
    assert "too large for a new run of the workflow, continues in the same one" in caplog.text
    with working(url):
        monkeypatch.setattr(f"{TEMPORAL}._history_size.HISTORY_BYTES", 2_000_000)
        asyncio.run(full())
    with working(f"{url}&payloads={place}"):
        asyncio.run(resumed())


def test_a_batch_that_would_fill_the_history_is_refused_and_named(
    temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(temporal)
    monkeypatch.setattr(f"{TEMPORAL}._history_size.HISTORY_BYTES", 2_000_000)

    async def main() -> None:
        backend = TemporalBackend(url)
        handle = await backend.dispatch(agents.squirrel.spec_with(size=1_200_000), "Go", execution_id="run")
        with pytest.raises(errors.ExecutionFailedError, match=r"of hoard, with the history before it.*payloads="):
            await handle.result(PATIENCE)

    with working(url):
        asyncio.run(main())
