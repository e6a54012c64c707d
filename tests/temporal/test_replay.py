"""Histories of every release replay: a running workflow outlives the version of the worker that began it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from strands_durable import ExecutionStatus
from strands_durable._enginekit.payloads import PayloadStore
from strands_durable.backends.temporal._history_reader import HistoryReader
from strands_durable.backends.temporal._worker import sandbox
from strands_durable.backends.temporal._workflow import ExecutionWorkflow
from tests.temporal.record import HISTORIES, RECORDS, file_of

RECORDED = sorted(HISTORIES.glob("*/*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(workflows=[ExecutionWorkflow], workflow_runner=sandbox())
    history = WorkflowHistory.from_json("run", path.read_text())
    replayed = asyncio.run(replayer.replay_workflow(history, raise_on_replay_failure=False))
    assert replayed.replay_failure is None, str(replayed.replay_failure)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_recorded_history_still_gives_its_execution(path: Path) -> None:
    async def read() -> ExecutionStatus:
        log = HistoryReader(DataConverter.default, PayloadStore(None))
        for event in WorkflowHistory.from_json("run", path.read_text()).events:
            await log.add(event)
        replica = log.replica(log.position())
        assert replica is not None
        return replica.detail().execution.status

    expected = ExecutionStatus.CANCELLED if path.stem == "is_cancelled" else ExecutionStatus.COMPLETED
    assert asyncio.run(read()) is expected


def test_each_kind_of_history_is_recorded_by_the_newest_release() -> None:
    newest = max(path.parent for path in RECORDED)
    assert {path.name for path in newest.glob("*.json")} >= {file_of(name) for name in RECORDS}
    assert len(list(newest.parent.glob("0.1.0/*.json"))) == 9, "what was recorded once stays"


def test_a_workflow_that_does_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strands_durable.backends.temporal._activity_calls.DRIVE", "something_else")
    with pytest.raises(AssertionError, match="something_else"):
        test_a_recorded_history_replays(next(path for path in RECORDED if path.stem == "completes"))
