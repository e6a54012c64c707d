"""The stream event for a recorded step, which is not streamed again."""

from __future__ import annotations

from strands.types._events import MultiAgentResultEvent

from .._records.steps import StepKind
from .agents import TypedEvent

__all__ = ["MultiAgentResultEvent", "RecordedEvent"]


class RecordedEvent(TypedEvent):
    """Precedes a result that is read from the journal: ``{"recorded": {"key": ..., "kind": ..., "name": ...}}``.

    The process that ran the step streamed its chunks or progress; only its result is available here.
    """

    def __init__(self, key: str, kind: StepKind, name: str) -> None:
        super().__init__({"recorded": {"key": key, "kind": kind, "name": name}})
