"""What is reported of an execution that waits for a person, has failed or has completed. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from .executions import ExecutionStatus
from .views import Question

Event = Literal["suspended", "failed", "completed"]
EVENTS: dict[Event, ExecutionStatus] = {
    "suspended": ExecutionStatus.SUSPENDED,
    "failed": ExecutionStatus.FAILED,
    "completed": ExecutionStatus.COMPLETED,
}


@dataclass(frozen=True, kw_only=True)
class Notification:
    """An execution waits for a person, has failed or has completed."""

    notification_id: str
    """The same each time it is delivered: at least once, and more often if a delivery is not known to have succeeded."""
    event: Event
    execution_id: str
    agent: str | None
    at: float
    """When it happened, in seconds since the epoch."""
    tags: Mapping[str, str] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    """What it asks; empty if it has been answered by now."""
    error: str | None = None
    """What it failed with; None if it has been resumed by now."""

    def to_json(self) -> dict[str, Any]:
        """Return what a webhook receives."""
        asked = [
            {"interrupt_id": each.interrupt_id, "name": each.name, "reason": each.reason} for each in self.questions
        ]
        return {
            "id": self.notification_id,
            "event": self.event,
            "execution_id": self.execution_id,
            "agent": self.agent,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds"),
            "tags": dict(self.tags),
            "questions": asked,
            "error": self.error,
        }
