"""Signals and updates that no worker and no client of ours sends: they are ignored or refused, and stop nothing."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue

from strands_durable import ExecutionStatus
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing import agents
from strands_durable.testing.contract._bench import BOOK, WAIT
from strands_durable.testing.temporal import TemporalServer
from tests.temporal.running import history, url_of, working
from tests.waiting import until_async

PATIENCE = 60.0
NO_JSON = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{no json"))
UNKNOWN = RawValue(Payload(metadata={"encoding": b"of/mine"}, data=b"\x00\xff"))
BYTES = RawValue(Payload(metadata={"encoding": b"binary/plain"}, data=b"\x00\xff"))
TOLD = {"epoch": 1, "number": 2, "rows": {}, "turns": []}
STRANGE: list[list[Any]] = [
    [],
    [None],
    [7],
    ["words"],
    [[1, 2]],
    [{}],
    [TOLD, TOLD],
    [NO_JSON],
    [UNKNOWN],
    [BYTES],
    [{"epoch": "1", "number": 2, "rows": {}, "turns": []}],
    [{"epoch": 1, "number": 2, "rows": []}],
    [{**TOLD, "number": None}],
    [{**TOLD, "number": True}],
    [{**TOLD, "rows": {"steps": "all"}}],
    [{**TOLD, "rows": {"steps": ["all"]}}],
    [{**TOLD, "rows": {"packed": 1}}],
    [{**TOLD, "rows": None}],
    [{**TOLD, "turns": None}],
    [{**TOLD, "turns": [{}]}],
    [{**TOLD, "turns": [{"id": "2 x", "kind": "dance", "step": [1, "x", 1], "summary": ""}]}],
    [{**TOLD, "turns": [{"id": "2 x", "kind": "tool", "step": [1], "summary": ""}]}],
    [{**TOLD, "turns": [{"id": "2 x", "kind": "tool", "step": [1, "x", 1], "summary": "", "until": "soon"}]}],
    [{**TOLD, "queue": 5}],
    [{**TOLD, "end": "now"}],
]
COMMITS: list[list[Any]] = [
    *STRANGE,
    [{"base": [1, 1]}],
    [{"rows": {}}],
    [{"base": 1, "rows": {}}],
    [{"base": [1], "rows": {}}],
    [{"base": ["1", 1], "rows": {}}],
    [{"base": [1, 1], "rows": 7}],
]


async def bother(workflow: WorkflowHandle[Any, Any]) -> None:
    """Send all that is strange to an execution."""
    for name in ("progress", "alive", "piece", "nobody knows this"):
        for args in STRANGE:
            await workflow.signal(name, args=args)
    for name, strange in (("commit", COMMITS), ("nobody knows this", STRANGE[:2])):
        updates = [workflow.execute_update(name, args=args, id=f"{name} {n}") for n, args in enumerate(strange)]
        for begun in range(0, len(updates), 8):  # a server takes ten at a time
            found = await asyncio.gather(*updates[begun : begun + 8], return_exceptions=True)
            assert [type(each) for each in found] == [WorkflowUpdateFailedError] * len(found)


def test_malformed_signals_and_updates_stop_nothing(
    temporal: TemporalServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(temporal)
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        backend = TemporalBackend(url)
        script = [WAIT, {"tool": "approve", "what": "trip"}, BOOK, "Done."]
        spec = agents.contract_agent.spec_with(folder=str(tmp_path), script=script)
        handle = await backend.dispatch(spec, "Go", execution_id="run")
        workflow = await backend.workflow("run")
        await until_async(lambda: _is_waiting(tmp_path))
        await asyncio.wait_for(bother(workflow), PATIENCE)
        (tmp_path / "go").touch()
        result = await handle.result(PATIENCE)
        assert result.status is ExecutionStatus.SUSPENDED
        await asyncio.wait_for(bother(workflow), PATIENCE)
        await handle.respond({result.interrupts[0].id: "yes"})
        assert str(await handle.result(PATIENCE)) == "Done.\n"
        steps = await handle.steps()
        assert [step.status for step in steps if step.kind == "tool"] == ["done", "interrupted", "done", "done"]
        assert len([event async for event in handle.stream()]) == len(steps)
        events = await history(backend, "run")
        assert not [event for event in events if event.HasField("workflow_task_failed_event_attributes")]

    with working(url):
        asyncio.run(main())
    assert "signal=<progress>" in caplog.text
    assert "signal=<nobody knows this>" in caplog.text


async def _is_waiting(folder: Path) -> bool:
    return any(mark["kind"] == "wait" for mark in agents.marks(folder))
