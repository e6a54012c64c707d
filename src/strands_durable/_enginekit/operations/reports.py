"""Reports that an execution waits, has failed or has completed: each is delivered by another execution of the same function.

The message that records a status names the notice, if the function has hooks for it. The next operation starts an execution
that is named after the notice and delivers it; nothing waits for that one. If the process is killed in between, the operation
runs again, and the engine starts no second execution of a name. What delivers makes one step for each try, and leaves its
process between tries.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Hashable
from dataclasses import asdict, replace
from functools import partial
from math import ceil
from typing import Any, TypedDict

from ..._dispatch import hooks as registered
from ..._dispatch.hooks import Hook, delay_seconds, deliver, hooks
from ..._records.crash_points import reach
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ..._records.notifications import Notification
from ..._records.views import Question
from ..log import Presence, RecordedExecution
from ..notices import Notice, event_of, notification_of
from .port import ERROR_LENGTH, InterruptedOperationError, Message, NoticeRecord, Operations, reason_bytes

logger = safe_logger(__name__)

Delivery = dict[str, Any]
"""The input of an execution that delivers: a `Notification` as JSON."""


class _Try(TypedDict):
    """What a try to deliver records."""

    took: list[str]
    """The hooks that have taken the notification so far, by name."""
    failures: dict[str, str]


def key_of(*given: Hook) -> Hashable:
    """Register the hooks of a function; return what finds them."""
    key = object()
    hooks.add(key, *given)
    return key


class Reports:
    """The notices of one execution, in the process that runs it now."""

    def __init__(self, operations: Operations, known: RecordedExecution, hooks_key: Hashable) -> None:
        self._operations, self._known, self._key = operations, known, hooks_key

    def about(self, status: ExecutionStatus) -> Message:
        """Return what is recorded with a status: a notice, if the function has a hook for it."""
        event = event_of(status.value)
        if event is None or event not in hooks.events(self._key):
            return {}
        return {"notice": {"id": uuid.uuid4().hex, "event": event, "at": time.time()}}

    def start(self, message: Message, catch_up: Callable[[], None]) -> None:
        """Start what delivers the notice of a message, if it has one; ``catch_up`` applies all that is recorded."""
        notice = message.get("notice")
        if notice is None:
            return
        error = self._operations.start(f"notice-{notice['id']}", partial(self._delivery, notice, catch_up))
        reach("notice:after")
        if error is not None:
            facts = (self._known.execution_id, notice["id"], notice["event"], error)
            logger.error("execution_id=<%s>, notification_id=<%s>, event=<%s>, error=<%s> | notification lost", *facts)

    def _delivery(self, notice: NoticeRecord, catch_up: Callable[[], None]) -> dict[str, Any]:
        reach("notice:before")
        catch_up()
        found = Notice(notice_id=notice["id"], event=notice["event"], at=notice["at"])
        notification = notification_of(self._known.detail(Presence()), found)
        return {"execution_id": notification.execution_id, "notice": _as_json(notification)}


def run_delivery(operations: Operations, given: Delivery, hooks_key: Hashable) -> dict[str, Any]:
    """Deliver a notification to the hooks of a function, in as many tries as it takes; return how that has ended."""
    notification = _from_json(given)
    found: _Try = {"took": [], "failures": {}}
    tries = 0
    while True:
        tries += 1
        body = partial(_tried, notification, hooks_key, found["took"], tries)
        try:
            found = json.loads(operations.step(f"try {tries}", body, once=True))
        except InterruptedOperationError:  # which hooks were called is not known, so all that are left are called again
            found = {"took": found["took"], "failures": {"the process": "it died during the try"}}
        if not found["failures"] or _is_over(tries):
            break
        operations.wait(ceil(delay_seconds(tries)))
    if found["failures"]:
        facts = (notification.notification_id, notification.event, tries, _text(found["failures"]))
        logger.error("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | notification given up", *facts)
    return {"notification_id": notification.notification_id, "tries": tries, "given_up": found["failures"]}


def _tried(notification: Notification, key: Hashable, taken: list[str], tries: int) -> str:
    """Call the hooks that have not taken a notification yet."""
    reach("notify:before")
    took, failures = asyncio.run(deliver(key, notification, taken))
    reach("notify:after")
    if failures:
        facts = (notification.notification_id, notification.event, tries, _text(failures))
        logger.warning("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | not delivered", *facts)
    found: _Try = {"took": took, "failures": {name: why[:ERROR_LENGTH] for name, why in failures.items()}}
    return json.dumps(found)


def _is_over(tries: int) -> bool:
    """Return whether that was the last try. Only their number decides, not the clock: a replay makes the same operations."""
    waited = sum(min(registered.MAX_DELAY_SECONDS, 2.0**count) for count in range(min(tries - 1, 1_000)))
    return tries >= registered.GIVE_UP_TRIES and waited >= registered.GIVE_UP_SECONDS


def _text(failures: dict[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in failures.items())[:300]


def _as_json(notification: Notification) -> Delivery:
    """Return a notification as the input of an execution, without what is too large for one."""
    error, most = notification.error, reason_bytes(len(notification.questions))
    asked = [
        each if len(json.dumps(each.reason, default=str)) <= most else replace(each, reason=None)
        for each in notification.questions
    ]
    small = replace(notification, questions=tuple(asked), error=None if error is None else error[:ERROR_LENGTH])
    found: Delivery = json.loads(json.dumps(asdict(small), default=str))
    return found


def _from_json(given: Delivery) -> Notification:
    return Notification(**{**given, "questions": tuple(Question(**each) for each in given["questions"])})
