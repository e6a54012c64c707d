"""Traces of dispatched runs: each is a trace of its own, whichever request started the worker."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent

from strands_durable import connect, durable_agent
from strands_durable.testing import ScriptedModel
from tests.processes import run


@durable_agent(name="traced")
def traced() -> Agent:
    return Agent(name="traced", model=ScriptedModel(["Hi."]), callback_handler=None)


def _traces(folder: str, how: str) -> list[tuple[str, int, bool]]:
    """Make three requests, each with a span of its own; return name, trace and whether it is a root of every span."""
    os.chdir(folder)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("requests")

    async def main() -> None:
        backend = connect("sqlite:///runs.db?worker=off" if how == "task" else "sqlite:///runs.db")
        stop, working = asyncio.Event(), None
        for number in range(3):
            with tracer.start_as_current_span("request"):
                handle = await traced.on(backend).dispatch_async("Go", execution_id=f"run-{number}")
                if how == "task" and working is None:
                    working = asyncio.ensure_future(backend.work(stop=stop))
                await handle.result(timeout=30)
        stop.set()
        if working is not None:
            await working
        await backend.close()

    asyncio.run(main())
    return [
        (span.name, span.context.trace_id if span.context else 0, span.parent is None)
        for span in exporter.get_finished_spans()
    ]


def assert_own_traces(spans: list[Any]) -> None:
    roots = [(name, found) for name, found, is_root in spans if is_root]
    assert sorted(name for name, _ in roots) == ["invoke_agent traced"] * 3 + ["request"] * 3
    assert len({found for _, found in roots}) == 6, "each request and each run is a trace of its own"


def test_c29_runs_of_the_worker_in_this_process_are_not_part_of_the_request_that_started_it() -> None:
    assert_own_traces(run(_traces, os.getcwd(), "thread").checked())


def test_c29_runs_of_a_worker_in_a_task_are_not_part_of_the_request_that_started_it() -> None:
    assert_own_traces(run(_traces, os.getcwd(), "task").checked())
