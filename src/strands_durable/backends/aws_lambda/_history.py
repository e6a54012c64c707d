"""Reads executions from the events of their durable executions: each event once, then only those that were added."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..._enginekit.operations.history import MessageLog
from ..._enginekit.operations.row_store import RowStore
from ..._records.executions import ExecutionStatus
from ...errors import BackendUnavailableError
from ._client import PAGE, items
from ._protocol import SEGMENT, SUB_TYPE

S = ExecutionStatus
Event = dict[str, Any]
_CLOSED = {"Succeeded": S.COMPLETED, "Failed": S.FAILED, "TimedOut": S.FAILED, "Stopped": S.CANCELLED}


class EventLog(MessageLog):
    """What the events of one durable execution say, as far as they were read."""

    def __init__(self, arn: str, store: RowStore) -> None:
        super().__init__(arn, store)
        self._last: Event = {}
        self._is_partial = False
        """Whether an event did not say everything yet."""

    def update(self, boto: Any) -> bool:
        """Read what was added; False if what was read has changed, so that all must be read again."""
        with self.lock:
            if self._is_partial or self.closed is not None:
                return not self._is_partial
            new = self._newer(boto) if self._last else list(self._events(boto, MaxItems=PAGE))
            for event in new or ():
                self._add(event)
                self._last = _mark(event)
                self.size += 1
            return new is not None

    def _newer(self, boto: Any) -> list[Event] | None:
        """Return the events after the last one that was read; None if that is not what it was."""
        known = self._last["EventId"]
        newest = next(self._events(boto, MaxItems=1, ReverseOrder=True, IncludeExecutionData=False))
        if newest["EventId"] <= known:
            return [] if _mark(newest) == self._last else None
        new: list[Event] = []
        for event in self._events(boto, MaxItems=min(PAGE, newest["EventId"] - known + 1), ReverseOrder=True):
            if event["EventId"] <= known:
                return new[::-1] if _mark(event) == self._last else None
            new.append(event)
        return None

    def _events(self, boto: Any, **given: Any) -> Iterator[Event]:
        given = {"DurableExecutionArn": self.name, "IncludeExecutionData": True, **given}
        return items(boto.get_durable_execution_history, "Events", **given)

    def _add(self, event: Event) -> None:
        kind = event["EventType"]
        details: dict[str, Any] = event.get(f"{kind}Details") or {}
        if kind == "ExecutionStarted":
            given = json.loads(self._payload(details, "Input") or "{}")
            start: dict[str, Any] = given if isinstance(given, dict) else {}
            self.execution_id, self.agent = start.get("execution_id"), start.get("agent", "")
            if "rows" in start:
                self.begin(start["rows"])
        elif kind == "StepSucceeded" and event.get("SubType") == SUB_TYPE:
            text = self._payload(details, "Result")
            self._is_partial |= text is None  # a local runner may show the end of a step before its result
            if text is not None:
                self.add(json.loads(text))
        elif kind == "CallbackStarted":
            self.callbacks.start(event["Id"], event.get("Name", ""), details.get("CallbackId", ""))
        elif kind.startswith("Callback"):
            text = self._payload(details, "Result")
            self.callbacks.end(event["Id"], text, has_succeeded=kind == "CallbackSucceeded")
        elif kind == "ChainedInvokeStarted" and event.get("Name", "").startswith(SEGMENT):
            self.segment = details.get("DurableExecutionArn")
            self._is_partial |= self.segment is None
        elif (how := kind.removeprefix("Execution")) in _CLOSED:
            self.closed = _CLOSED[how]
            error = (details.get("Error") or {}).get("Payload") or {}
            self.error = error.get("ErrorMessage") or f"AWS ended it as {how}"
        self.has_process = kind != "InvocationCompleted"

    def _payload(self, details: dict[str, Any], name: str) -> str | None:
        """Return a payload of an event, which AWS must not have cut off."""
        found = details.get(name) or {}
        if found.get("Truncated"):
            raise BackendUnavailableError(
                self.name,
                "AWS has truncated a payload of its history, so that it cannot be read",
                "Use payloads= for large results.",
            )
        payload: str | None = found.get("Payload")
        return payload


def _mark(event: Event) -> Event:
    """Return what identifies an event. A local runner may change their numbers."""
    return {name: event.get(name) for name in ("EventId", "EventType", "Id", "EventTimestamp")}
