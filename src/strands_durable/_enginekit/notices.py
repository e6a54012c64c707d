"""What is reported of an execution that an engine keeps in a log: made when it is sent, from what is on record then."""

from __future__ import annotations

from dataclasses import dataclass

from .._records.notifications import EVENTS, Event, Notification
from .._records.views import ExecutionDetail


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An event that is to be reported."""

    notice_id: str
    event: Event
    at: float


def event_of(status: str) -> Event | None:
    """Return the event that an execution with this status is reported for; None if there is none."""
    return next((event for event, found in EVENTS.items() if found.value == status), None)


def notification_of(detail: ExecutionDetail, notice: Notice) -> Notification:
    """Return what a notice reports: questions and error only while they are those of the execution as it is now."""
    execution, roots = detail.execution, [call for call in detail.calls if call.depth == 0]
    is_current = bool(roots) and event_of(execution.status.value) == notice.event
    failures = roots[-1].failures if is_current and notice.event == "failed" else ()
    return Notification(
        notification_id=notice.notice_id,
        event=notice.event,
        execution_id=execution.execution_id,
        agent=execution.agent,
        at=notice.at,
        tags=dict(execution.tags),
        questions=roots[-1].questions if is_current and notice.event == "suspended" else (),
        error=failures[-1].error if failures else None,
    )
