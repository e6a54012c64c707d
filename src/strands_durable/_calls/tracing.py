"""Spans of a durable call: attributes that name its execution and step, and links to the traces of its earlier attempts.

Strands makes the spans; a step that is answered from the journal has none. What is recorded here is read again only when the
call resumes, and only if its span is recorded. Without a configured tracer nothing happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .._records.keys import path
from .._records.logs import safe_logger
from .._records.steps import StepRecord
from ..errors import DurableError
from .context import current_context, enclosing
from .durable_call import TRACES, DurableCall

logger = safe_logger(__name__)

EXECUTION_ID = "strands_durable.execution_id"
CALL = "strands_durable.call"
STEP = "strands_durable.step"
ATTEMPT = "strands_durable.attempt"
RECORDED = "strands_durable.recorded"
RECORDED_STEP = "strands_durable.recorded_step"
"""The name of a span event: a step was answered from the journal, and so has no span."""
MAX_TRACES = 16
"""How many earlier traces a call remembers: its first, and the latest ones."""

_w3c = TraceContextTextMapPropagator()


def mark(span: Span) -> None:
    """Add what identifies the running call or step to a span that Strands has started."""
    with _harmless():
        _mark(span)


@contextmanager
def _harmless() -> Iterator[None]:
    """Let no run fail because of its traces: spans and processors may be an application's own."""
    try:
        yield
    except Exception as error:
        logger.warning("error=<%s: %s> | span not marked", type(error).__name__, error)


def _mark(span: Span) -> None:
    call = enclosing.get()
    if call is None or not call.is_open:
        return
    if call.traced != call.record.attempt:
        call.traced = call.record.attempt
        span.set_attributes(_of_call(call))
        if call.outer is None:
            _link(call, span)
        return
    step = current_context.get()
    if step is None or step.phase != "running":
        span.set_attributes(_of_call(call))
        return
    view = step.view
    facts: dict[str, Any] = {STEP: view.key, ATTEMPT: view.attempt, RECORDED: view.replaying}
    span.set_attributes({**_of_call(step.call), **facts})


def note_recorded(call: DurableCall, step: StepRecord) -> None:
    """Note on the current span that a step of the call was answered from the journal."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    with _harmless():
        key = path(call.record.scope, call.record.position, step.key)
        facts: dict[str, Any] = {STEP: key, ATTEMPT: step.attempt, RECORDED: True}
        span.add_event(RECORDED_STEP, {EXECUTION_ID: call.execution_id, **facts})


def _of_call(call: DurableCall) -> dict[str, Any]:
    record = call.record
    return {
        EXECUTION_ID: call.execution_id,
        CALL: f"{record.scope}#{record.position}",
        ATTEMPT: record.attempt,
        RECORDED: False,
    }


def _link(call: DurableCall, span: Span) -> None:
    """Link the span of a root call to those of its earlier attempts, and have the next commit record it."""
    before = _recorded(call) if call.record.attempt > 1 else []
    for context in map(_context, before):
        if context is not None:
            span.add_link(context, {EXECUTION_ID: call.execution_id})
    carrier: dict[str, str] = {}
    _w3c.inject(carrier, trace.set_span_in_context(span))
    if "traceparent" in carrier:
        traces = [*before, carrier["traceparent"]]
        latest = traces if len(traces) <= MAX_TRACES else [traces[0], *traces[1 - MAX_TRACES :]]
        call.unwritten_traces = json.dumps(latest)


def _recorded(call: DurableCall) -> list[str]:
    """Return the recorded traceparents; none if they cannot be read, since no run may fail because of its traces."""
    try:
        found = json.loads(call.journal.head(call.record.call_id)[1].get(TRACES, "[]"))
    except (ValueError, DurableError) as error:
        logger.warning("execution_id=<%s>, error=<%s> | earlier traces not linked", call.execution_id, error)
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _context(traceparent: str) -> SpanContext | None:
    context = trace.get_current_span(_w3c.extract({"traceparent": traceparent}, Context())).get_span_context()
    return context if context.is_valid else None
