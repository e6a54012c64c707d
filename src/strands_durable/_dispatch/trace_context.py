"""The trace of the process that dispatches an execution: recorded with the request, and the parent of every run of it.

Workers run in an empty context, since the request that happened to start one has nothing to do with what it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def current_trace() -> dict[str, str]:
    """Return the W3C trace context of the calling code; empty outside a span."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


@contextmanager
def under(trace: Any) -> Iterator[None]:
    """Have the spans of the block hang under a recorded trace. One that is missing or malformed changes nothing."""
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not isinstance(trace, dict) or not all(isinstance(each, str) for each in trace.values()):
        yield
        return
    token = context.attach(TraceContextTextMapPropagator().extract(trace))
    try:
        yield
    finally:
        context.detach(token)
