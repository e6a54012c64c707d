"""The counters of this process as OpenTelemetry metrics. Without a configured meter provider they cost nothing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

from opentelemetry.metrics import CallbackOptions, Observation, get_meter

from .._records.counters import Metric, counts

METERS: dict[Metric, tuple[str, str, str]] = {
    "steps": ("{step}", "Attempts of steps that this process ran and recorded", "strands_durable.kind"),
    "commits": ("{commit}", "Commits to journals", ""),
    "in_doubt": ("{step}", "Steps that had started and had no result", "strands_durable.kind"),
    "takeovers": ("{execution}", "Executions taken over from an owner that is gone", ""),
    "tokens": ("{token}", "Tokens of the model calls that this process made", "strands_durable.token_type"),
    "pruned": ("{execution}", "Executions, or contents of executions, removed by retention", "strands_durable.what"),
}
"""Unit, description, and the name of the first attribute."""


@cache
def register() -> None:
    """Offer the counters to the meter provider of this process, whenever it is set."""
    meter = get_meter("strands_durable")
    for metric, (unit, description, _) in METERS.items():
        meter.create_observable_counter(
            f"strands_durable.{metric}", [partial(observed, metric)], unit=unit, description=description
        )


def observed(metric: Metric, options: CallbackOptions) -> Iterable[Observation]:
    """Return what was counted, by attributes."""
    name = METERS[metric][2]
    for (found, kind, status), number in list(counts.items()):
        if found == metric:
            attributes = {name: kind} if name else {}
            yield Observation(number, {**attributes, "strands_durable.status": status} if status else attributes)
