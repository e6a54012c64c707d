"""Traces of runs that were killed or waited: every span names its execution, and the last trace leads to the first."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import Span
from strands import Agent, ToolContext, tool

from strands_durable import Durability, connect, durable_agent
from strands_durable._calls import durable_call
from strands_durable.testing import CrashPoints, ScriptedModel, call, forget_process
from strands_durable.testing.temporal import TemporalServer
from tests.crash.scenarios import Ledger
from tests.features import spans
from tests.processes import Child, run
from tests.temporal.running import url_of

OFF = "sqlite:///runs.db?worker=off"
SCRIPT = [call("book", city="Rome"), call("pay", amount=7), "Done."]


@tool
def book(city: str) -> str:
    """Book a hotel."""
    return f"booked {city}"


@tool
def pay(amount: int) -> str:
    """Pay; the first two processes die of it."""
    ledger = Ledger(Path("ledger.jsonl"))
    ledger.write(amount=amount)
    if len(ledger.read()) <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


@tool(context=True)
def approve(tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("approve", reason="May I?"))


@durable_agent(name="traced-payer")
def payer() -> Agent:
    return Agent(name="payer", model=ScriptedModel(SCRIPT), tools=[book, pay], callback_handler=None)


@durable_agent(name="traced-asker")
def asker() -> Agent:
    return Agent(name="asker", model=ScriptedModel([call("approve"), "Done."]), tools=[approve], callback_handler=None)


def _dispatch(folder: str, url: str = OFF) -> None:
    os.chdir(folder)
    spans.record(Path("request.jsonl"))
    for name in ("request", "the same request again"):
        with trace.get_tracer("shop").start_as_current_span(name):
            asyncio.run(payer.on(connect(url)).dispatch_async("Go", execution_id="trip"))  # type: ignore[arg-type]


def _work(folder: str, number: int, url: str = OFF) -> None:
    os.chdir(folder)
    spans.record(Path(f"worker-{number}.jsonl"))

    async def main() -> None:
        backend, stop = connect(url), asyncio.Event()
        working = asyncio.ensure_future(backend.work(stop=stop))
        await (await backend.get("trip")).result(timeout=60)
        stop.set()
        await working

    asyncio.run(main())


def _script(folder: str, number: int) -> None:
    os.chdir(folder)
    spans.record(Path(f"worker-{number}.jsonl"))
    plugins = [Durability("runs.db", execution_id="trip")]
    Agent(name="payer", model=ScriptedModel(SCRIPT), tools=[book, pay], plugins=plugins, callback_handler=None)("Go")


def _killed_twice(target: Any, *more: Any) -> list[list[dict[str, Any]]]:
    """Run a function in three processes, the first two of which are killed; return what each of them has traced."""
    codes = [Child(target, os.getcwd(), number, *more).join().exitcode for number in range(3)]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    return [spans.spans_in(Path(f"worker-{number}.jsonl")) for number in range(3)]


def _agent_span_of(found: list[dict[str, Any]]) -> str:
    """Return the id of the span of the call, as the spans inside it name it: a killed process does not export that one."""
    (cycle,) = [span for span in found if span["name"] == "execute_event_loop_cycle"][:1]
    return str(cycle["parent_id"])


def _attribute(found: list[dict[str, Any]], name: str) -> set[Any]:
    return {span["attributes"].get(f"strands_durable.{name}") for span in found}


def test_every_span_of_a_dispatched_run_that_was_killed_twice_names_it_under_one_trace() -> None:
    assert_one_trace_of_three_workers(OFF)


def test_every_span_of_a_run_on_temporal_that_was_killed_twice_names_it_under_one_trace(
    temporal: TemporalServer,
) -> None:
    assert_one_trace_of_three_workers(url_of(temporal, heartbeat_seconds=2))


def assert_one_trace_of_three_workers(url: str) -> None:
    run(_dispatch, os.getcwd(), url).checked()
    request, _ = spans.spans_in(Path("request.jsonl"))
    workers = _killed_twice(_work, url)
    everything = [span for found in workers for span in found]
    assert {span["context"]["trace_id"] for span in everything} == {request["context"]["trace_id"]}
    assert _attribute(everything, "execution_id") == {"trip"}
    assert _attribute(everything, "call") == {"default#0"}
    *_, last = [
        span for span in workers[2] if span["name"] == "invoke_agent payer"
    ]  # Temporal clears it of suspicion first
    attempt = last["attributes"]["strands_durable.attempt"]
    assert attempt >= 3
    assert last["parent_id"] == request["context"]["span_id"]
    assert last["links"][0]["context"]["span_id"] == _agent_span_of(workers[0])
    assert len(last["links"]) == attempt - 1


def test_steps_have_their_key_and_attempt_on_their_spans_and_one_that_is_recorded_has_none() -> None:
    run(_dispatch, os.getcwd()).checked()
    workers = _killed_twice(_work)
    steps = [
        [(span["name"], span["attributes"]["strands_durable.step"], span["attributes"]["strands_durable.attempt"])
         for span in found if span["attributes"].get("strands_durable.step")]
        for found in workers
    ]  # fmt: skip
    keys = [key for _, key, _ in steps[0]]
    assert [name for name, _, _ in steps[0]] == ["chat", "execute_tool book", "chat"]
    assert keys[0] == "default#0/000001/model~0"
    assert keys[1].startswith("default#0/000001/")
    assert steps[1] == []
    assert [(name, attempt) for name, _, attempt in steps[2]] == [("execute_tool pay", 3), ("chat", 1)]
    assert _attribute(workers[2], "recorded") == {False}


def test_the_trace_of_a_script_that_was_killed_twice_leads_to_its_first_trace() -> None:
    first, second, third = _killed_twice(_script)
    traces = [{span["context"]["trace_id"] for span in found} for found in (first, second, third)]
    assert len(traces[0]) == len(traces[2]) == 1
    assert traces[0] != traces[2]
    (last,) = [span for span in third if span["name"] == "invoke_agent payer"]
    assert len(last["links"]) == 2
    assert {f"{last['links'][0]['context']['trace_id']}"} == traces[0]
    assert last["links"][0]["context"]["span_id"] == _agent_span_of(first)
    assert last["links"][1]["context"]["trace_id"] not in traces[0] | traces[2]
    assert last["links"][0]["attributes"] == {"strands_durable.execution_id": "trip"}


def _answered(folder: str, url: str) -> list[dict[str, Any]]:
    """Dispatch a run that asks, answer it in another span, and return what was traced."""
    os.chdir(folder)
    spans.record(Path("spans.jsonl"))
    tracer = trace.get_tracer("shop")

    async def main() -> None:
        backend, stop = connect(url), asyncio.Event()
        working = asyncio.ensure_future(backend.work(stop=stop, drain_seconds=5))
        with tracer.start_as_current_span("request"):
            handle = await asker.on(backend).dispatch_async("Go", execution_id="trip")
        (question,) = (await handle.result(timeout=60)).interrupts
        with tracer.start_as_current_span("answer"):
            await handle.respond({question.id: "yes"})
        await handle.result(timeout=60)
        stop.set()
        await working
        await backend.close()

    asyncio.run(main())
    return spans.spans_in(Path("spans.jsonl"))


def assert_one_trace_with_a_link(found: list[dict[str, Any]]) -> None:
    (request,) = [span for span in found if span["name"] == "request"]
    calls = [span for span in found if span["name"] == "invoke_agent asker"]
    assert [span["parent_id"] for span in calls] == [request["context"]["span_id"]] * 2
    assert [len(span["links"]) for span in calls] == [0, 1]
    assert calls[1]["links"][0]["context"]["span_id"] == calls[0]["context"]["span_id"]
    assert {span["attributes"].get("strands_durable.execution_id") for span in found} == {"trip", None}
    assert [span["name"] for span in found if not span["attributes"]] == ["request", "answer"]


@pytest.mark.parametrize("url", [OFF, "memory://traces"])
def test_a_run_that_waited_hangs_under_its_dispatch_and_links_to_what_it_was_before(url: str) -> None:
    assert_one_trace_with_a_link(run(_answered, os.getcwd(), url).checked())


def test_a_run_on_temporal_hangs_under_its_dispatch_and_links_to_what_it_was_before(temporal: TemporalServer) -> None:
    assert_one_trace_with_a_link(run(_answered, os.getcwd(), url_of(temporal)).checked())


def _booked(folder: str, number: int) -> None:
    os.chdir(folder)
    spans.record(Path(f"worker-{number}.jsonl"))
    plugins = [Durability("runs.db", execution_id="trip")]
    script = [call("book", city="Rome"), "Done."]
    with CrashPoints().crashing("model.done:after@1", "kill") if number == 0 else nullcontext():
        Agent(model=ScriptedModel(script), tools=[book], plugins=plugins, callback_handler=None)("Go")


def test_a_recorded_step_is_an_event_of_the_span_around_it() -> None:
    assert run(_booked, os.getcwd(), 0).exitcode == -signal.SIGKILL
    run(_booked, os.getcwd(), 1).checked()
    found = spans.spans_in(Path("worker-1.jsonl"))
    events = [(span["name"], event) for span in found for event in span["events"]]
    ours = [(name, event["attributes"]) for name, event in events if event["name"] == "strands_durable.recorded_step"]
    facts = {"execution_id": "trip", "step": "default#0/000001/model~0", "attempt": 1, "recorded": True}
    assert ours == [("execute_event_loop_cycle", {f"strands_durable.{name}": fact for name, fact in facts.items()})]
    assert [span["name"] for span in found].count("chat") == 1


def _damaged(folder: str, number: int) -> None:
    """Run a script whose recorded traces are not what they should be."""
    os.chdir(folder)
    spans.record(Path(f"worker-{number}.jsonl"))
    original = durable_call.DurableCall._write_traces

    def write_other(call: Any) -> None:
        if call.unwritten_traces is not None:
            call.unwritten_traces = ["not JSON", '[7, "no traceparent"]', '{"a": 1}'][number]
        original(call)

    durable_call.DurableCall._write_traces = write_other  # type: ignore[method-assign]
    plugins = [Durability("runs.db", execution_id="trip")]
    Agent(name="payer", model=ScriptedModel(SCRIPT), tools=[book, pay], plugins=plugins, callback_handler=None)("Go")


def test_no_run_fails_because_of_what_is_recorded_of_its_traces() -> None:
    *_, third = _killed_twice(_damaged)
    (last,) = [span for span in third if span["name"] == "invoke_agent payer"]
    assert last["links"] == []
    assert last["status"]["status_code"] == "OK"


def _with_broken_spans(folder: str) -> list[str]:
    os.chdir(folder)
    spans.record(Path("broken.jsonl"))
    add_event, set_attributes = Span.add_event, Span.set_attributes

    def refuse(self: Span, facts: Any, *more: Any) -> None:
        if "strands_durable" in str(facts):
            raise RuntimeError("a span of the application")
        set_attributes(self, facts)

    def refuse_event(self: Span, name: str, *more: Any, **given: Any) -> None:
        if name == "strands_durable.recorded_step":
            raise RuntimeError("a span of the application")
        add_event(self, name, *more, **given)

    Span.set_attributes, Span.add_event = refuse, refuse_event  # type: ignore[method-assign, assignment]
    answers: list[str] = []
    for _ in range(2):
        model = ScriptedModel([call("book", city="Rome"), *([RuntimeError("down")] if not answers else ["Done."])])
        plugin = Durability("runs.db", execution_id="broken")
        agent = Agent(model=model, tools=[book], plugins=[plugin], callback_handler=None, retry_strategy=None)
        try:
            answers.append(str(agent("Go")))
        except Exception as error:
            answers.append(type(error).__name__)
        forget_process()
    return answers


def test_no_run_fails_because_a_span_cannot_be_marked() -> None:
    first, second = run(_with_broken_spans, os.getcwd()).checked()
    assert "Span" not in first
    assert second == "Done.\n"
