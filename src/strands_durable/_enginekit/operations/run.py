"""Runs one execution in one process of an engine whose log is a sequence of operations: one operation for each batch.

Operations that are on record return their batch without running anything. The first one whose body is called is the head of the
execution: only there the agent is built and runs. A step that a batch has reported runs in the next operation, so its intent is
on record before it begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from ..._dispatch.queue import Queue
from ..._dispatch.requests import Requests
from ..._journal.outcome import result_of
from ..._records.change_sets import ChangeSet
from ..._records.crash_points import reach
from ..._records.exceptions import summary
from ..._records.executions import NO_AGENT, ExecutionStatus
from ..._records.logs import safe_logger
from ..._records.results import ExecutionResult
from ..._records.spec import AgentSpec
from ...errors import CipherError, ExecutionCancelledError, ExecutionFailedError, FormatVersionError, UnreadableError
from ..compaction import packed_size, prune
from ..log import RecordedExecution
from ..pieces import Pieces
from ..progress import end_of
from ..replica import Replica
from .history import MessageLog
from .port import (
    ACCEPT_DRIFT,
    DISPATCH,
    ERROR_LENGTH,
    INTERRUPTED,
    PIECE,
    START,
    InterruptedOperationError,
    Message,
    Operations,
    RunSettings,
    operation_name,
    packed,
)
from .questions import Questions
from .reports import Reports
from .row_store import RowStore, batch_of, start_of, text_of

if TYPE_CHECKING:
    from ..driver import Batch
    from ..head import Head

logger = safe_logger(__name__)

S = ExecutionStatus
_MAX_REFUSED_SECONDS = 3_600
_LOOK_EVERY = 25


class OperationRun:
    """One execution, as far as this process brings it.

    Args:
        operations: The operations of its log.
        execution_id: The execution.
        rows: Its rows when it was dispatched, resumed or continued.
        settings: How the function runs agents.
    """

    def __init__(self, operations: Operations, execution_id: str, rows: ChangeSet, settings: RunSettings) -> None:
        self._operations, self._settings, self._store = operations, settings, settings.payload_store
        self.execution_id, self.contents = execution_id, self._store.contents
        self.replica = Replica(f"{execution_id}:{uuid.uuid4().hex}", self._store.max_text)
        self._known = RecordedExecution(execution_id, self.replica, None)
        self._log = MessageLog(execution_id, self._store, execution_id)
        self._log.begin(rows)
        self._outbox = deque[str]()
        self._head: Head | None = None
        self._batch: Batch
        self._unbegun: list[list[Any]] = []
        self._questions = Questions(operations, self._known, settings)
        self._reports = Reports(operations, self._known, settings.hooks_key, self._store.contents)
        self._is_drift_accepted = self._is_live = self._is_left_behind = False
        self._refusals = 0
        self._fitted_at, self._does_fit = -_LOOK_EVERY, True
        self._last: Message = {}

    def run(self) -> Message:
        """Run the execution until it ends, or another log is to continue it; return the last message."""
        name, once = START, False
        try:
            while True:
                message = self._operate(name, once)
                name, once = message.get("next", PIECE), message.get("strict", False)
                self._unbegun = message.get("turns", []) if once or "refused" in message else []
                if {"status", "segment", "wait"} & message.keys():
                    self._quit(not self._is_left_behind)
                if message.get("status") == S.SUSPENDED.value:
                    self._questions.ask(message)
                    self._reports.start(message, self._catch_up)
                    self._questions.await_answers(message)
                elif "status" in message or "segment" in message:
                    self._reports.start(message, self._catch_up)
                    self._last = message
                    return message
                elif "refused" in message:
                    self._await_acceptance(message["wait"])
                elif "wait" in message:
                    self._operations.wait(message["wait"])
        except BaseException as error:
            self._stop_head(error)
            raise

    def result(self) -> ExecutionResult:
        """Return the result of an execution that has ended; raise what it has failed with.

        The engine records the text of an error that the handler does not catch, and not that of its cause.
        """
        self._catch_up()
        journal = self._known.journal()
        record = journal.call_at(0)
        if record is None or journal.status() is S.CANCELLED:
            raise ExecutionCancelledError(self._known.execution_id)
        if record.status is S.FAILED:
            failure = Requests(self.replica).failure(journal, record)
            if not self.contents.is_sealing:
                raise failure
            hint = "In the handler, it is the __cause__ of this error."
            raise ExecutionFailedError(self.execution_id, "its error is encrypted", hint) from failure.__cause__
        return result_of(journal, record)

    def returned(self) -> dict[str, Any] | None:
        """Return the result as the function returns it, None if there is none here; waits until it can be read."""
        if self._last.get("status") != S.COMPLETED.value:
            return None
        self.settle()
        return end_of(self.replica).result

    def settle(self) -> None:
        """Wait until all can be read, and encrypted. No operation follows: a process with the key makes none of these."""
        end: Message = {"status": self._last["status"]} if "status" in self._last else {}
        while True:
            try:
                self._catch_up()
                return self.contents.prepare()
            except CipherError as error:
                refused = partial(self._refused, str(error), plainly=True)
            text = self._operations.step(START, lambda: packed({**refused(), **end, "rows": {}}), once=False)  # noqa: B023
            self._refusals += 1
            self._operations.wait(json.loads(text)["wait"])

    def handed_over(self) -> ChangeSet:
        """Return the rows with which another log continues."""
        self._catch_up()
        prune(self.replica)
        limit, about = self._settings.handover_bytes, start_of(self._known.execution_id)
        return self._store.record(self.replica.export(), "The execution", about, plainly=False, limit=limit)

    def _quit(self, has_ended: bool) -> None:
        """End the process if something still runs in it: it would be frozen, and continue in a later run."""
        if not has_ended and self._settings.exits:
            os._exit(1)

    # Operations

    def _operate(self, name: str, once: bool) -> Message:
        """Make one operation, or take its result from the record."""
        self._is_live = False
        try:
            text = self._operations.step(name, self._body, once=once)
            reach("operation:after")
        except InterruptedOperationError:
            return {"next": INTERRUPTED}  # the steps had begun when their process died: their policies decide
        message: Message = json.loads(text)
        self._questions.take(message)  # it has used the answers, now or when it was recorded
        self._is_drift_accepted = False
        if "refused" in message:
            self._refusals += 1
        elif "piece" not in message and (message["rows"] or "questions" not in message):
            self._refusals = 0  # a question that is only asked again leads to the same refusal
        if self._is_live:
            self._log.count(message)
        else:
            self._log.add(message)
        return message

    def _catch_up(self) -> None:
        """Apply what recorded operations have returned, all at once."""
        if self._log.rows:
            self.replica.apply(*self._log.rows)
            self._log.rows.clear()

    def _body(self) -> str:
        """Do the work of an operation that is not on record."""
        self._is_live = True
        reach("operation:before")
        return self._outbox.popleft() if self._outbox else self._worked()

    def _worked(self) -> str:
        if self._head is not None:
            self._head.open(self._batch)
            early = None
        else:
            early = self._begun()
        about, self._questions.about = self._questions.about, {}
        if early is not None:
            return self._recorded({**about, **early})
        head = self._head
        assert head is not None
        batch = self._batch = head.next_batch()
        tickets = list(batch.tickets.values())
        message: Message = {"next": operation_name(tickets), **about}
        if head.has_ended:
            message.update(self._left(head))
            self._head = None
        elif tickets:
            message["turns"] = [[ticket.call_id, ticket.key, ticket.attempt] for ticket in tickets]
            message["strict"] = any(not ticket.may_repeat for ticket in tickets)
        return self._recorded(message, batch.rows)

    def _begun(self) -> Message | None:
        """Begin at the head of the record; return a message instead if the agent is not started now."""
        unbegun: Message = {"turns": self._unbegun} if self._unbegun else {}
        try:
            self._catch_up()
            self.contents.prepare()
            self._withdraw(self._unbegun)  # this body would not run if they had begun
            unbegun = {}
            if self._is_drift_accepted:
                Requests(self.replica).accept_drift(self._known.journal())
            return self._questions.use() or self._started()
        except (UnreadableError, FormatVersionError) as error:
            return {**self._refused(f"it cannot be read here: {error}"), **unbegun}
        except CipherError as error:
            return {**self._refused(str(error), plainly=True), **unbegun}

    def _started(self) -> Message | None:
        """Start the agent; return a message instead if it waits for answers, or if this function may not run it."""
        if self._known.status is S.SUSPENDED:  # the log before this one has ended while it waited
            is_known = self._questions.has_open
            return {"next": START, **self._questions.asking(), **({} if is_known else self._reports.about(S.SUSPENDED))}
        from ..head import Head

        head = Head(
            self.replica,
            self._operations.limit,
            is_full=self._is_full,
            is_overfull=lambda: self._operations.is_overfull,
            look=self._operations.check,
            look_seconds=self._settings.stop_poll_seconds,
            name=self._operations.owner,
        )
        why = self._missing_agent() or asyncio.run(head.driver.refusal())
        if why is not None:
            return self._refused(why)
        self._head = head
        head.start()
        return None

    def _withdraw(self, turns: list[list[Any]]) -> None:
        """Take back the intents of steps that have certainly not begun."""
        if not turns:
            return
        journal = self._known.journal()
        with self.replica.transaction("ticket.withdraw"):
            for call_id, key, attempt in turns:
                journal.withdraw(call_id, key, attempt)

    def _recorded(self, message: Message, rows: ChangeSet | None = None) -> str:
        """Return the text to record now; what is too large for one operation is sent in pieces before it."""
        pieces = Pieces(self._store.limits.max_bytes)
        changes = self.replica.changes() if rows is None else rows
        about = batch_of(self._known.execution_id, self._log.batches)
        message["rows"] = self._store.record(changes, "What a step has recorded", about, put=pieces.put)
        self._outbox.extend(packed({"piece": piece}) for piece in pieces.take())
        self._outbox.append(packed(message))
        return self._outbox.popleft()

    # Executions that this function refuses

    def _missing_agent(self) -> str | None:
        name, known = Queue(self.replica).only().agent, self._settings.agents
        if name in known:
            return None
        has = ", ".join(sorted(known))
        return f"{NO_AGENT}{name!r} in this function (there are {has}); deploy one whose handler names it"

    def _refused(self, why: str, *, plainly: bool = False) -> Message:
        """Return a message that makes the function try again later, each time after a longer wait."""
        logger.warning("execution_id=<%s> | cannot be run by this function: %s", self._known.execution_id, why)
        refused = why if plainly else self._sealed(why, "a refusal")
        return {"next": START, "refused": refused, "wait": refused_seconds(self._refusals)}

    def _sealed(self, text: str, what: str) -> Any:
        return self._store.contents.seal_value(text, text_of(self._known.execution_id, what))

    def _await_acceptance(self, seconds: int) -> None:
        """Wait; a client may end the wait by accepting that the agent has changed."""
        self._is_drift_accepted = self._operations.ask(ACCEPT_DRIFT, seconds).wait().error is None

    # The end of a run

    def _is_full(self) -> bool:
        """Return whether another log should continue: not while a callback is open, whose reply it would not hear."""
        if self._settings.handover_bytes is None or not self._operations.is_full:
            return False
        return self._operations.is_overfull or (
            not self._questions.has_open and self._fits(self._settings.handover_bytes)
        )

    def _fits(self, most: int) -> bool:
        """Return whether the execution can be handed over; looked at a few times: with 20,000 steps, a look takes a second."""
        if self._operations.count - self._fitted_at >= _LOOK_EVERY:
            self._fitted_at = self._operations.count
            self._does_fit = self._store.is_external or packed_size(self.replica) < most
        return self._does_fit

    def _stop_head(self, error: BaseException) -> None:
        """Stop the agent, since nothing more can be recorded; it sees its cancel signal if the execution was stopped."""
        head, self._head = self._head, None
        if head is not None:
            self._quit(head.cancel() if self._operations.is_stop(error) else head.abandon())

    def _left(self, head: Head) -> Message:
        """Return what follows once the agent does not run any more."""
        end = head.driver.ended()
        self._is_left_behind = not head.has_stopped
        if end.status is S.SUSPENDED:
            return {**self._questions.asking(), **self._reports.about(end.status)}
        if end.status not in (S.PENDING, S.RUNNING):
            found: Message = {"status": end.status.value, **self._reports.about(end.status)}
            if end.error is None:
                return found
            return {**found, "error": self._sealed(summary(end.error)[:ERROR_LENGTH], "the error")}
        if head.is_log_full:
            return {"segment": True}
        seconds = max(head.wait_seconds or 0, ceil(end.not_before - time.time()))
        if not head.has_opened and seconds <= 1:  # it would end in the same way at once
            why = "building the agent takes most of the function's timeout" if head.wait_seconds else end.note
            return self._refused(why or "it was left before its first step")
        return {"wait": max(1, seconds)}


def load() -> None:
    """Import what runs agents, for a process that will: with Strands it takes a second, for which clients need not wait."""
    from .. import head  # noqa: F401


def dispatched(
    operations: Operations,
    store: RowStore,
    spec: Callable[[], AgentSpec],
    prompt: Any,
    execution_id: str | None,
    state: Any,
) -> tuple[str, ChangeSet]:
    """Record an execution as an operation, for a function that was not started by a client of ours; return id and rows."""

    def body() -> str:
        replica = Replica.new("new")
        found = Requests(replica).dispatch(spec(), prompt, execution_id, state, None)
        if not store.contents.is_sealing:
            return packed({"rows": replica.changes()})
        try:
            rows = store.record(replica.changes(), "What is dispatched", start_of(found))
        except CipherError as error:
            return packed({"rows": {}, "execution_id": "", "refused": str(error), "wait": refused_seconds(refusals)})
        return packed({"rows": rows, "execution_id": found})

    refusals = 0
    while True:
        message: Message = json.loads(operations.step(DISPATCH, body, once=False))
        if "wait" not in message:
            break
        operations.wait(message["wait"])
        refusals += 1
    rows = message["rows"]
    return message.get("execution_id") or rows["tables"]["executions"][0]["execution_id"], rows


def refused_seconds(refusals: int) -> int:
    """Return how long a function waits that refuses an execution, after it has done so some times."""
    return min(_MAX_REFUSED_SECONDS, 1 << min(refusals, 12))
