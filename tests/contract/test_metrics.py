"""Metrics: what a process counts of its steps, and what a backend reports of its executions, read by the SDK's own reader."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from strands import Agent, ToolContext, tool

from strands_durable import Durability, ExecutionStatus, connect, durable_agent, observe
from strands_durable._records.counters import counts
from strands_durable.testing import ScriptedModel, call
from tests.processes import run

OFF = "sqlite:///runs.db?worker=off"


@tool
def pay(amount: int) -> str:
    """Pay; the first process dies of it."""
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


@tool(context=True)
def approve(tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("approve", reason="May I?"))


@durable_agent(name="measured-asker")
def asker() -> Agent:
    return Agent(model=ScriptedModel([call("approve"), "Done."]), tools=[approve], callback_handler=None)


def read(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    """Return the metrics of this package: by name and attributes without the prefix, the value."""
    data = reader.get_metrics_data()
    found: dict[str, dict[tuple[Any, ...], Any]] = {}
    for resource in [] if data is None else data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics if scope.scope.name == "strands_durable" else []:
                points = {
                    tuple(
                        value for name, value in sorted((point.attributes or {}).items()) if "backend" not in name
                    ): point.value
                    for point in metric.data.data_points  # type: ignore[union-attr]
                }
                found[metric.name.removeprefix("strands_durable.")] = points
    return found


def _script(folder: str) -> dict[str, Any]:
    """Run an agent, with the meter provider set only after it was built."""
    os.chdir(folder)
    plugins = [Durability("runs.db", execution_id="trip")]
    agent = Agent(
        model=ScriptedModel([call("pay", amount=7), "Done."]), tools=[pay], plugins=plugins, callback_handler=None
    )
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    agent("Go")
    return read(reader)


def test_a_process_counts_what_it_does_itself_and_what_it_takes_over() -> None:
    assert run(_script, os.getcwd()).exitcode == -signal.SIGKILL
    found = run(_script, os.getcwd()).checked()
    assert found["steps"] == {("model", "done"): 1, ("tool", "done"): 1}, "the first model call was the other process's"
    assert found["in_doubt"] == {("tool",): 1}
    assert found["takeovers"] == {(): 1}
    assert found["tokens"].keys() == {("input",), ("output",)}
    assert 0 < found["commits"][()] < 20


def _queued(folder: str, url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    os.chdir(folder)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    async def main() -> None:
        backend, stop = connect(url), asyncio.Event()
        working = asyncio.ensure_future(backend.work(stop=stop))
        waiting = await asker.on(backend).dispatch_async("Go", execution_id="asks")
        await waiting.result(timeout=30)
        stop.set()
        await working
        for number in range(3):
            await asker.on(backend).dispatch_async("Go", execution_id=f"queued-{number}")

    asyncio.run(main())
    observe(connect(url), provider)
    return read(reader), metrics.get_meter_provider().__class__.__name__  # type: ignore[return-value]


@pytest.mark.parametrize("url", [OFF, "memory://measured"])
def test_a_backend_reports_its_executions_by_status_and_what_has_waited_for_long(url: str) -> None:
    found, _ = run(_queued, os.getcwd(), url).checked()
    executions = {status: number for (status,), number in found["executions"].items() if number}
    assert executions == {"PENDING": 3, "SUSPENDED": 1}
    assert found["queue.depth"] == {(): 3}
    assert 0 < found["queue.oldest_age"][()] <= found["question.oldest_age"][()] < 30


def test_a_backend_that_cannot_be_read_reports_nothing_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strands_durable._dispatch.observe._FRESH_SECONDS", 0.0)
    Path("runs.db").write_text("not a store")
    reader = InMemoryMetricReader()
    observe(connect(OFF), MeterProvider([reader]))
    assert read(reader) == {}
    assert read(reader) == {}
    assert [record.getMessage().partition("| ")[2] for record in caplog.records] == ["executions not counted"]


def test_a_store_without_executions_reports_zero_of_each_status() -> None:
    found = asyncio.run(connect(OFF).counts())
    assert {status: (each.count, each.oldest_at) for status, each in found.items()} == dict.fromkeys(
        ExecutionStatus, (0, None)
    )


def test_a_fork_does_not_report_what_its_parent_did() -> None:
    counts["steps", "tool", "done"] += 1
    child = os.fork()
    if child == 0:
        os._exit(1 if counts else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
