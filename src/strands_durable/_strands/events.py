"""What a stream says about steps that it does not stream again."""

from __future__ import annotations

from .._records.steps import StepKind
from .agents import TypedEvent


class RecordedEvent(TypedEvent):
    """Comes before a result that is read from the journal: ``{"recorded": {"key": ..., "kind": ..., "name": ...}}``.

    Its chunks or progress were streamed in the process that made the step; here there is only its result.
    """

    def __init__(self, key: str, kind: StepKind, name: str) -> None:
        super().__init__({"recorded": {"key": key, "kind": kind, "name": name}})
