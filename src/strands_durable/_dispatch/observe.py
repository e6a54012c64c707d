"""A backend as OpenTelemetry gauges: executions by status, the queue, and how long the oldest has waited. Opt-in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._records.deadline import limited
from .._records.executions import ExecutionStatus, StatusCount
from .._records.logs import safe_logger
from .._records.printable import url_for_people
from ..errors import DurableError
from .ports import DurableBackend
from .sync import in_loop

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider, Observation

logger = safe_logger(__name__)

S = ExecutionStatus
_FRESH_SECONDS = 1.0
"""How long one look serves the gauges: a reader asks all of them, one after the other."""
_TIMEOUT_SECONDS = 5.0


def observe(backend: DurableBackend, meter_provider: MeterProvider | None = None) -> None:
    """Report the executions of a backend as OpenTelemetry metrics, each time the metrics of this process are read.

    Call it once for a backend in a process. On SQLite a look is one query on an index. Other engines report only executions
    that have not ended, by listing them.

    Args:
        backend: What to report. Use one of its own, ``observe(connect(url))``: it is read from another event loop.
        meter_provider: Where to report it; by default the global one.
    """
    from opentelemetry.metrics import get_meter

    meter, gauges = get_meter("strands_durable", meter_provider=meter_provider), _Gauges(backend)
    create = meter.create_observable_gauge
    create("strands_durable.executions", [gauges.executions], "{execution}", "Executions by status")
    create("strands_durable.queue.depth", [gauges.depth], "{execution}", "Executions that wait for a worker")
    create(
        "strands_durable.queue.oldest_age", [gauges.oldest_pending], "s", "How long the oldest has waited for a worker"
    )
    create(
        "strands_durable.question.oldest_age",
        [gauges.oldest_question],
        "s",
        "How long the oldest has waited for a person",
    )


class _Gauges:
    """What the gauges of one backend report."""

    def __init__(self, backend: DurableBackend) -> None:
        self._backend, self._lock = backend, threading.Lock()
        self._where = {"strands_durable.backend": url_for_people(backend.url)}
        self._read_at, self._counts = float("-inf"), dict[ExecutionStatus, StatusCount]()
        self._is_silent = False

    def executions(self, options: Any) -> Iterable[Observation]:
        for status, found in self._looked().items():
            yield _observation(found.count, {**self._where, "strands_durable.status": status.value})

    def depth(self, options: Any) -> Iterable[Observation]:
        counts = self._looked()
        return [_observation(counts[S.PENDING].count, self._where)] if S.PENDING in counts else []

    def oldest_pending(self, options: Any) -> Iterable[Observation]:
        return self._age(S.PENDING)

    def oldest_question(self, options: Any) -> Iterable[Observation]:
        return self._age(S.SUSPENDED)

    def _age(self, status: ExecutionStatus) -> Iterable[Observation]:
        found = self._looked().get(status)
        if found is None:
            return []
        seconds = 0.0 if found.oldest_at is None else max(0.0, time.time() - found.oldest_at)
        return [_observation(seconds, self._where)]

    def _looked(self) -> dict[ExecutionStatus, StatusCount]:
        """Return the counts; nothing while the backend cannot be read, which is logged once."""
        with self._lock:
            if time.monotonic() - self._read_at < _FRESH_SECONDS:
                return self._counts
            try:
                self._counts = in_loop(limited(self._backend.counts(), _TIMEOUT_SECONDS))
                self._is_silent = False
            except (DurableError, TimeoutError) as error:
                self._counts = {}
                if not self._is_silent:
                    logger.warning("backend=<%s>, error=<%s> | executions not counted", self._backend.url, error)
                self._is_silent = True
            self._read_at = time.monotonic()
            return self._counts


def _observation(value: float, attributes: Mapping[str, str]) -> Observation:
    from opentelemetry.metrics import Observation

    return Observation(value, attributes)
