"""What an invocation that is left looks like from outside: the hooks around a call and its trace are those of a process."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent, tool
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    HookEvent,
)

from strands_durable import connect, durable_agent
from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.aws_lambda import LocalLambda
from tests.processes import run

_EVENTS: list[type[HookEvent]] = [BeforeInvocationEvent, AfterModelCallEvent, AfterToolCallEvent, AfterInvocationEvent]
fired: list[str] = []


@tool
async def work(number: int) -> str:
    """Take a while."""
    await asyncio.sleep(0.8)
    return f"did {number}"


@durable_agent(name="lambda-hooked")
def hooked() -> Agent:
    script = [*(call("work", number=number) for number in range(4)), "Done."]
    agent = Agent(name="hooked", model=ScriptedModel(script), tools=[work], callback_handler=None)
    for event in _EVENTS:
        agent.add_hook(lambda found: fired.append(type(found).__name__.removesuffix("Event")), event)
    return agent


def _left() -> tuple[list[str], list[tuple[str, int, bool]], int]:
    """Run an agent in invocations of six seconds; return what fired, its spans, and the number of invocations."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    with LocalLambda({}, timeout_seconds=6) as aws:
        backend = connect(aws.add("hooked", lambda_handler(hooked, exits=False)))

        async def main() -> Any:
            handle = await backend.dispatch(hooked.spec, "Go", execution_id="run")
            await handle.result(60)
            return await backend.read("run")  # type: ignore[attr-defined]

        known = asyncio.run(main())
        pages = aws.client().get_durable_execution_history(DurableExecutionArn=known.root.name, MaxItems=1000)
        waits = sum(event["EventType"] == "WaitStarted" for event in pages["Events"])
    spans = [
        (span.name, span.context.trace_id if span.context else 0, span.parent is None)
        for span in exporter.get_finished_spans()
    ]
    return fired, spans, waits + 1


def test_c29_hooks_around_a_call_fire_in_each_process_and_all_others_once() -> None:
    found, spans, invocations = run(_left).checked()
    assert invocations > 1
    assert found.count("BeforeInvocation") == found.count("AfterInvocation") == invocations, "as with a drained worker"
    assert found.count("AfterModelCall") == 5
    assert found.count("AfterToolCall") == 4
    names = [name for name, _, _ in spans]
    assert names.count("chat") - names.count("execute_tool work") <= invocations, (
        "a step that has ended is not traced again"
    )
    assert names.count("execute_tool work") == 4
    roots = [(name, number) for name, number, is_root in spans if is_root]
    assert [name for name, _ in roots] == ["invoke_agent hooked"] * invocations
    assert len({number for _, number in roots}) == invocations, "each invocation is a trace of its own"
