"""Traces of dispatched runs: each hangs under the request that dispatched it, whichever request started the worker."""

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


def _traces(folder: str, how: str) -> list[Any]:
    """Make three requests, each with a span of its own, and a dispatch outside one; return every span."""
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
        unasked = await traced.on(backend).dispatch_async("Go", execution_id="run-without-a-trace")
        await unasked.result(timeout=30)
        stop.set()
        if working is not None:
            await working
        await backend.close()

    asyncio.run(main())
    return [
        (span.name, span.context.trace_id, span.parent and span.parent.span_id, span.context.span_id)
        for span in exporter.get_finished_spans()
    ]


def assert_under_their_requests(spans: list[Any]) -> None:
    requests = {span_id: trace_id for name, trace_id, _, span_id in spans if name == "request"}
    runs = [(trace_id, parent) for name, trace_id, parent, _ in spans if name == "invoke_agent traced"]
    assert len(set(requests.values())) == 3, "each request is a trace of its own"
    assert [requests.get(parent) for _, parent in runs[:3]] == [trace_id for trace_id, _ in runs[:3]]
    assert len({trace_id for trace_id, _ in runs}) == 4
    assert runs[3][1] is None, "a dispatch outside a trace is a trace of its own"


def test_c29_runs_of_the_worker_in_this_process_hang_under_the_request_that_dispatched_them() -> None:
    assert_under_their_requests(run(_traces, os.getcwd(), "thread").checked())


def test_c29_runs_of_a_worker_in_a_task_hang_under_the_request_that_dispatched_them() -> None:
    assert_under_their_requests(run(_traces, os.getcwd(), "task").checked())
