"""What a process has traced, in a file: it outlives the process, however that ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from tests.crash.scenarios import Ledger


class ToFile(SpanExporter):
    """Writes each span as a line, when it has ended."""

    def __init__(self, path: Path) -> None:
        self._ledger = Ledger(path)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write spans."""
        for span in spans:
            self._ledger.write(**json.loads(span.to_json(indent=None)))
        return SpanExportResult.SUCCESS


def record(path: Path) -> None:
    """Have this process trace to a file."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile(path)))
    trace.set_tracer_provider(provider)


def names_in(path: Path) -> Counter[str]:
    """Return how often each name was traced."""
    return Counter(span["name"] for span in spans_in(path))


def spans_in(path: Path) -> list[dict[str, Any]]:
    """Return what was traced."""
    return Ledger(path).read()
