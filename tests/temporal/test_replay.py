"""Histories of every release replay: a running workflow outlives the version of the worker that began it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from strands_durable import ExecutionStatus
from strands_durable._dispatch.runner import ExecutionRunner
from strands_durable._enginekit.agent_loop import AgentLoop
from strands_durable._enginekit.driver import Driver
from strands_durable._enginekit.payloads import PayloadStore
from strands_durable._enginekit.replica import Replica
from strands_durable._records.change_sets import ChangeSet, rows_of
from strands_durable.backends.temporal._history_reader import HistoryReader
from strands_durable.backends.temporal._worker import sandbox
from strands_durable.backends.temporal._workflow import ExecutionWorkflow
from strands_durable.testing import agents as contract
from tests.temporal import agents
from tests.temporal.record import HISTORIES, RECORDS, file_of

RECORDED = sorted(HISTORIES.glob("*/*.json"))
REPORTED = ("completes", "fails_and_is_resumed", "is_answered")
RESUMED = ("completes", "goes_on_in_new_runs", "is_throttled", "is_a_graph", "is_carried_in_pieces")


DESCRIPTIONS = {
    "wait": "Wait until a file is there, or until somebody cancels.",
    "strange": "Return what cannot be recorded.",
    "look": "Tell what the caller gave with the call.",
}
"""What the tools of the contract's agents said of themselves when the histories were recorded: part of their fingerprint."""

ADDED_SINCE = ("book_all",)


@pytest.fixture(autouse=True)
def recorded_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents of the contract, as they were when the histories were recorded."""
    tools_of = contract._tools

    def described(folder: str) -> list[Any]:
        tools = [each for each in tools_of(folder) if each.tool_name not in ADDED_SINCE]
        for each in tools:
            each.tool_spec["description"] = DESCRIPTIONS.get(each.tool_name, each.tool_spec["description"])
        return tools

    monkeypatch.setattr(contract, "_tools", described)


def named(path: Path) -> str:
    return f"{path.parent.name} {path.stem}"


def read(path: Path) -> HistoryReader:
    async def read() -> HistoryReader:
        log = HistoryReader(DataConverter.default, PayloadStore(None))
        for event in WorkflowHistory.from_json("run", path.read_text()).events:
            await log.add(event)
        return log

    return asyncio.run(read())


def moved_to(whole: ChangeSet, folder: Path) -> ChangeSet:
    """Have the tools of an execution write to a folder that exists."""
    (row,) = rows_of(whole, "dispatches")
    spec = json.loads(row["spec"])
    if "folder" in spec["arguments"]:
        spec["arguments"]["folder"] = str(folder)
    row["spec"] = json.dumps(spec)
    return whole


def run(whole: ChangeSet) -> ExecutionStatus:
    """Run an execution as far as it goes, with the agents of today."""
    assert agents.cycler
    assert contract.contract_agent
    replica, news, loop = Replica("run"), threading.Event(), AgentLoop()
    replica.apply(whole)
    driver = Driver(replica, ExecutionRunner(1e9), alone=False, on_notify=news.set)
    assert asyncio.run(driver.refusal()) is None
    loop.run(driver)
    while not (driver.is_over and driver.is_quiescent):
        assert news.wait(30), "nothing more happens"
        news.clear()
        if driver.is_quiescent and driver.has_unreported:
            for turn_id in driver.batch().tickets:
                driver.open(turn_id)
    loop.stop()
    return driver.ended().status


@pytest.mark.parametrize("path", RECORDED, ids=named)
def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(workflows=[ExecutionWorkflow], workflow_runner=sandbox())
    history = WorkflowHistory.from_json("run", path.read_text())
    replayed = asyncio.run(replayer.replay_workflow(history, raise_on_replay_failure=False))
    assert replayed.replay_failure is None, str(replayed.replay_failure)


def reporting(history: str) -> str:
    """Return a history whose workers said which events they report, run by a version of the workflow that ignored that."""
    found, count = json.loads(history), 0
    for event in found["events"]:
        signal = event.get("workflowExecutionSignaledEventAttributes", {})
        if signal.get("signalName") == "progress":
            (payload,) = signal["input"]["payloads"]
            batch = json.loads(base64.b64decode(payload["data"]))
            if batch["number"] == 1:
                batch["reports"], count = ["completed", "failed", "suspended"], count + 1
                payload["data"] = base64.b64encode(json.dumps(batch).encode()).decode()
    assert count
    return json.dumps(found)


@pytest.mark.parametrize("path", [path for path in RECORDED if path.stem in REPORTED], ids=named)
def test_c37_a_history_replays_in_which_an_older_version_has_ignored_what_is_reported(path: Path) -> None:
    replayer = Replayer(workflows=[ExecutionWorkflow], workflow_runner=sandbox())
    history = WorkflowHistory.from_json("run", reporting(path.read_text()))
    replayed = asyncio.run(replayer.replay_workflow(history, raise_on_replay_failure=False))
    assert replayed.replay_failure is None, str(replayed.replay_failure)


@pytest.mark.parametrize("path", RECORDED, ids=named)
def test_a_recorded_history_still_gives_its_execution(path: Path) -> None:
    log = read(path)
    replica = log.replica(log.position())
    assert replica is not None
    expected = ExecutionStatus.CANCELLED if path.stem == "is_cancelled" else ExecutionStatus.COMPLETED
    assert replica.detail().execution.status is expected


@pytest.mark.parametrize("path", [path for path in RECORDED if path.stem in RESUMED], ids=named)
def test_a_recorded_history_resumes_wherever_its_worker_was_lost(path: Path, tmp_path: Path) -> None:
    log = read(path)
    for position in [list(place) for place in log.batches()][:-1]:
        replica = log.replica(position)
        assert replica is not None
        moved = moved_to(replica.export(), tmp_path)
        assert run(moved) is ExecutionStatus.COMPLETED, f"from {position}"


def test_each_kind_of_history_is_recorded_by_the_newest_release() -> None:
    newest = max(path.parent for path in RECORDED)
    assert {path.name for path in newest.glob("*.json")} >= {file_of(name) for name in RECORDS}
    assert len(list(newest.parent.glob("0.1.0/*.json"))) == 9, "what was recorded once stays"


def test_a_workflow_that_does_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strands_durable.backends.temporal._activity_calls.DRIVE", "something_else")
    with pytest.raises(AssertionError, match="something_else"):
        test_a_recorded_history_replays(next(path for path in RECORDED if path.stem == "completes"))
