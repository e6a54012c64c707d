"""Reports that an execution waits, has failed or has completed: each is delivered by another execution of the same function.

The message that records a status names the notice, if the function has hooks for it. The next operation starts an execution
that is named after the notice and delivers it; nothing waits for that one. If the process is killed in between, the operation
runs again, and the engine starts no second execution of a name. What delivers calls all hooks at the same time in one step, or
each in a step of its own once such a step has died, and leaves its process between tries.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Collection, Hashable
from dataclasses import asdict, replace
from functools import cached_property, partial
from math import ceil
from typing import Any, TypedDict

from ..._dispatch.notifications.hooks import (
    GIVE_UP_SECONDS,
    GIVE_UP_TRIES,
    MAX_DELAY_SECONDS,
    Hook,
    call_all,
    delay_seconds,
    hooks,
)
from ..._records.crash_points import reach
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ..._records.notifications import Notification
from ..._records.views import Question
from ...errors import CipherError
from ..encryption import Contents
from ..log import Presence, RecordedExecution
from ..notices import Notice, event_of, notification_of
from .port import ERROR_LENGTH, InterruptedOperationError, Message, NoticeRecord, Operations, reason_bytes
from .row_store import text_of

logger = safe_logger(__name__)

Delivery = dict[str, Any]
"""The input of an execution that delivers: a `Notification` as JSON."""


_DIED = {"a hook": "its process died"}


class _Called(TypedDict):
    """What calling hooks records."""

    taken: list[str]
    """The names of those that have taken the notification by now."""
    failures: dict[str, str]
    """Why others have not."""
    is_last: bool
    """Whether the try ends with it."""


def key_of(*given: Hook) -> Hashable:
    """Register the hooks of a function; return what finds them."""
    key = object()
    hooks.add(key, *given)
    return key


class Reports:
    """The notices of one execution, in the process that runs it now."""

    def __init__(
        self, operations: Operations, known: RecordedExecution, hooks_key: Hashable, contents: Contents
    ) -> None:
        self._operations, self._known, self._key, self._contents = operations, known, hooks_key, contents
        self._has_tried = False

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
        if error is not None and self._has_tried:  # not each time that the record is read
            facts = (self._known.execution_id, notice["id"], notice["event"], error)
            logger.error("execution_id=<%s>, notification_id=<%s>, event=<%s>, error=<%s> | notification lost", *facts)

    def _delivery(self, notice: NoticeRecord, catch_up: Callable[[], None]) -> dict[str, Any]:
        self._has_tried = True
        reach("notice:before")
        catch_up()
        found = Notice(notice_id=notice["id"], event=notice["event"], at=notice["at"])
        notification = notification_of(self._known.detail(Presence()), found)
        sealed = self._contents.seal_value(_as_json(notification), _delivery_of(notification.execution_id))
        return {"execution_id": notification.execution_id, "notice": sealed}


class _Given:
    """The input of an execution that delivers, which may not be readable at once."""

    def __init__(self, given: dict[str, Any], contents: Contents) -> None:
        self._given, self.contents = given, contents

    @cached_property
    def notification(self) -> Notification:
        about = _delivery_of(str(self._given.get("execution_id")))
        return _from_json(self.contents.open_value(self._given["notice"], about))

    @property
    def names(self) -> tuple[str, str]:
        """The id and the event of the notification, as far as they are known."""
        try:
            return self.notification.notification_id, self.notification.event
        except CipherError:
            return "", ""


def run_delivery(
    operations: Operations, given: dict[str, Any], hooks_key: Hashable, contents: Contents
) -> dict[str, Any]:
    """Deliver a notification to the hooks of a function, in as many tries as it takes; return how that has ended."""
    found, taken, tries, is_apart = _Given(given, contents), list[str](), 0, False
    while True:
        tries += 1
        failures = _try(operations, partial(_call, hooks_key, found, tries, is_apart), f"try {tries}", taken)
        is_apart = is_apart or _DIED.items() <= failures.items()
        if not failures or is_over(tries):
            break
        operations.wait(ceil(delay_seconds(tries)))
    if failures:
        facts = (*found.names, tries, _text(failures))
        logger.error("notification_id=<%s>, event=<%s>, tries=<%d>, error=<%s> | notification given up", *facts)
    return {"notification_id": found.names[0], "tries": tries, "failures": failures}


def _try(
    operations: Operations, call: Callable[[Collection[str], Collection[str]], str], name: str, taken: list[str]
) -> dict[str, str]:
    """Call the hooks that have not taken a notification yet, in one step or more; return why some have not, by name.

    A step that dies is not repeated: a hook that kills its process, or hangs until its time is over, fails as any other does.
    """
    failures: dict[str, str] = {}
    while True:
        step = partial(call, list(taken), list(failures))
        try:
            found: _Called = json.loads(operations.step(name, step, once=True))
        except InterruptedOperationError:
            return {**failures, **_DIED}
        taken[:], failures = found["taken"], {**failures, **found["failures"]}
        if found["is_last"]:
            return failures


def _call(
    hooks_key: Hashable, given: _Given, tries: int, is_apart: bool, taken: Collection[str], failed: Collection[str]
) -> str:
    """Call the hooks that were not called yet, or one of them if they are called apart, not always the same one first."""
    try:
        notification = given.notification
    except CipherError as missing:  # recorded as a failure, so that a replay makes the same operations
        logger.warning("tries=<%d>, error=<%s> | the notification cannot be decrypted, retrying", tries, missing)
        error = str(missing)[:ERROR_LENGTH]
        return json.dumps(_Called(taken=[*taken], failures={"decryption": error}, is_last=True))
    done = {*taken, *failed}
    rest = [each for each in hooks.of(hooks_key) if notification.event in each.events and each.name not in done]
    chosen = [rest[tries % len(rest)]] if rest and is_apart else rest
    reach("notify:before")
    errors = asyncio.run(call_all(chosen, notification, tries=tries))
    reach("notify:after")
    for name, error in errors.items():
        facts = (notification.notification_id, notification.event, tries, name, error)
        logger.warning(
            "notification_id=<%s>, event=<%s>, tries=<%d>, hook=<%s>, error=<%s> | not delivered, retrying", *facts
        )
    failures = {
        name: "it failed; the function's log says why" if given.contents.is_sealing else error[:ERROR_LENGTH]
        for name, error in errors.items()
    }
    took = [*taken, *(each.name for each in chosen if each.name not in errors)]
    return json.dumps(_Called(taken=took, failures=failures, is_last=len(rest) == len(chosen)))


def is_over(tries: int) -> bool:
    """Return whether that was the last try. Only their number decides, not the clock: a replay makes the same operations."""
    waited = sum(min(MAX_DELAY_SECONDS, 2.0**count) for count in range(min(tries - 1, 1_000)))
    return tries >= GIVE_UP_TRIES and waited >= GIVE_UP_SECONDS


def _delivery_of(execution_id: str) -> str:
    return text_of(execution_id, "a notification")


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
