"""An execution as the operations of its log record it, for clients: rows, open callbacks, and answers on their way."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..._dispatch.queue import Queue
from ..._dispatch.requests import Requests
from ..._journal.owner import Owner
from ..._records.change_sets import ChangeSet
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.views import ExecutionDetail
from ...errors import CipherError, DurableError
from ..encryption import outline
from ..log import Presence, RecordedExecution
from ..pieces import Parcels
from ..replica import Replica
from .answers import Answer, answers_in
from .port import ACCEPT_DRIFT, Message, callback_name
from .row_store import RowStore, batch_of, start_of, text_of

S = ExecutionStatus
_ENDED = "engine:ExecutionEnded"
"""The type of the failure of an execution that the engine has ended."""


class Callbacks:
    """The callbacks that answer questions, and those that accept drift."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        """Callback ids by question, and by `ACCEPT_DRIFT`."""
        self._replies: dict[str, str | None] = {}
        """By question; only to the newest callback of each."""
        self._questions: dict[str, str] = {ACCEPT_DRIFT: ACCEPT_DRIFT}
        """Questions by the names of their callbacks."""
        self._newest: dict[str, str] = {}
        """The operation of the newest callback, by question."""

    def ask(self, message: Message) -> None:
        """Take in which questions a message asks, and which answers it has used."""
        self._questions.update({callback_name(each["id"]): each["id"] for each in message.get("questions", ())})
        for question in (*message.get("answered", ()), *message.get("rejected", ())):
            for found in (self._replies, self._newest, self.open):
                found.pop(question, None)

    def start(self, operation: str, name: str, callback_id: str) -> None:
        """Take in that a callback was created."""
        question = self._questions.get(name)
        if question is not None:
            self._newest[question], self.open[question] = operation, callback_id

    def end(self, operation: str, text: str | None, *, has_succeeded: bool) -> None:
        """Take in that a callback has ended; a late reply to one that is not asked for any more does not count."""
        for question in [each for each, newest in self._newest.items() if newest == operation]:
            self.open.pop(question, None)
            if has_succeeded:
                self._replies[question] = text

    @property
    def answers(self) -> dict[str, Answer]:
        """Answers that have arrived and that the function has not used yet, by question."""
        return answers_in(self._replies, self._newest)


class MessageLog:
    """What one log records: the messages in it, and what the engine has added.

    Args:
        name: Identifies it.
        store: Has what was too large for it.
    """

    def __init__(self, name: str, store: RowStore, execution_id: str | None = None) -> None:
        self.name, self.store, self._parcels = name, store, Parcels()
        self.lock = threading.RLock()
        """Held while it is added to, and while it is read by those who follow it."""
        self.execution_id, self.agent = execution_id, ""
        """The execution to which it says it belongs, and its agent."""
        self._sealed_id: str | None = None
        """The execution that the function itself has recorded in it, for which its rows are encrypted."""
        self.size = 0
        """Grows with everything that is added."""
        self.batches = 0
        """How many messages it has, without the pieces of large ones."""
        self._rows: list[ChangeSet] = []
        self._unread: deque[tuple[ChangeSet, str]] = deque()
        self.key_id: str | None = None
        """The key that the newest rows are encrypted with, None if they are in plain text."""
        self._note: Any = None
        """Why the function cannot run the execution now."""
        self.status: str | None = None
        """The status in the last message."""
        self.callbacks = Callbacks()
        self.segment: str | None = None
        """The name of the log that continues this one, if one does."""
        self.closed: ExecutionStatus | None = None
        """How the engine has ended it, if it has."""
        self.error = ""
        """Why, as the engine says."""
        self.has_process = True
        """Whether a process may run it now, as far as is recorded."""

    @property
    def _bound_id(self) -> str:
        return self._sealed_id or str(self.execution_id)

    def begin(self, rows: ChangeSet) -> None:
        """Take in the rows that the log begins with."""
        self._unread.append((rows, start_of(self._bound_id)))

    def add(self, message: Message) -> None:
        """Take in a message; its rows are decrypted when they are asked for."""
        if "piece" in message:
            self._parcels.add(message["piece"])
            return
        if "execution_id" in message:
            self._note = message.get("refused")
            if self._note is None:
                self._sealed_id = message["execution_id"]
                self.begin(message["rows"])
            return
        rows = self._parcels.joined(message["rows"])
        if rows:
            self._unread.append((rows, batch_of(self._bound_id, self.batches)))
        self.count(message)
        self._note, self.status = message.get("refused"), message.get("status")
        self.callbacks.ask(message)

    def count(self, message: Message) -> None:
        """Count a message, which need not be taken in by the process that has made it."""
        self.batches += "piece" not in message

    @property
    def rows(self) -> list[ChangeSet]:
        """The rows of all messages.

        Raises:
            CipherError: The key is missing or wrong, or rows are in plain text after encrypted ones.
        """
        while self._unread:
            recorded, about = self._unread[0]
            rows, key_id = self.store.recorded(recorded, about)
            if self.key_id is not None and key_id is None:
                reason = f"{about} is in plain text, and what was recorded before it is encrypted"
                raise CipherError(self.name, reason, "Give the function the cipher that its clients have.")
            self.key_id = key_id
            self._unread.popleft()
            self._rows.append(rows)
        return self._rows

    @property
    def note(self) -> str | None:
        """Why the function cannot run the execution now."""
        return self.store.readable(self._note, text_of(self._bound_id, "a refusal"))

    @property
    def facts(self) -> dict[str, Any]:
        """What is known without the key."""
        return {"status": self.status or (S.RUNNING if self.batches else S.PENDING).value, "agent": self.agent}


@dataclass(frozen=True, kw_only=True)
class LogChain:
    """The logs of an execution, which may grow."""

    root: MessageLog
    closed: ExecutionStatus | None
    """How the engine had ended the first one before the last one was read."""
    last: MessageLog
    """The one that continues it, or the same."""

    def record(self, execution_id: str, created_at: float, updated_at: float) -> ExecutionRecord:
        """Return the execution as a list shows it; without the key, what is known of it without."""
        try:
            known = OperationHistory(execution_id, self)
            return known.detail(known.presence).execution
        except CipherError as error:
            facts = {**self.last.facts, "agent": self.root.agent, "created_at": created_at, "updated_at": updated_at}
            is_known = self.closed is None or (self.closed is S.COMPLETED and self.last.status is not None)
            return outline(execution_id, facts if is_known else {**facts, "status": self.closed}, error)


class OperationHistory(RecordedExecution):
    """An execution as its logs record it.

    Args:
        execution_id: The execution.
        chain: Its logs.
        attempt: How often it was started: once, and again by each resume after its end.
    """

    def __init__(self, execution_id: str, chain: LogChain, attempt: int = 1) -> None:
        super().__init__(execution_id, _replica(execution_id), None)
        self.root, self.log, self.closed, self.attempt = chain.root, chain.last, chain.closed, attempt
        self._applied, self._has_answers = 0, False
        self.follow(chain)

    def follow(self, chain: LogChain) -> bool:
        """Apply what was recorded since, in the same log or in one that continues it; False if nothing was."""
        position = [chain.root.size, chain.last.name, chain.last.size, chain.closed]
        if position == self.position and chain.last is self.log:
            return False
        with chain.last.lock:
            if self._has_answers or chain.last is not self.log:
                self.replica, self._applied = _replica(self.execution_id), 0
            self.root, self.log, self.closed, self.position = chain.root, chain.last, chain.closed, position
            new = self.log.rows[self._applied :]
            self.replica.apply(*new)
            self._applied += len(new)
            self._has_answers = self.closed is not S.COMPLETED and self._answer()
        return True

    def _answer(self) -> bool:
        """Record the answers that have arrived, which the function uses next; it asks again for those that it cannot use."""
        answers = self.log.callbacks.answers
        for question, answer in answers.items():
            if answer.error is None:
                with suppress(DurableError):
                    about = text_of(self.execution_id, f"the answer to {question!r}")
                    value = self.log.store.contents.open_value(answer.value, about)
                    Requests(self.replica).respond(self.execution_id, {question: value}, answer.by)
        self.replica.changes()
        return bool(answers)

    @property
    def status(self) -> ExecutionStatus:
        """What the execution is doing."""
        recorded, closed = super().status, self.closed
        if closed is S.COMPLETED:  # a cancelled execution returns, too
            return recorded if recorded not in (S.PENDING, S.RUNNING) else S.COMPLETED
        return closed or recorded

    def entries(self) -> list[ChangeSet]:
        """Return its change sets one by one."""
        return list(self.log.rows)

    @property
    def failure(self) -> str:
        """Why the engine has ended it, if the execution itself has not failed."""
        return self.log.error or self.root.error

    @property
    def presence(self) -> Presence:
        """Which process runs it, as recorded, or why the function does not run it."""
        note, is_alive = self.log.note, self.closed is None and self.log.has_process
        is_running = is_alive and not note and self.status is S.RUNNING
        recorded = Queue(self.replica).only().owner if is_running else None
        owner = None if recorded is None else str(Owner.parse(recorded))
        return Presence(owner=owner, note=note, is_alive=is_alive)

    def detail(self, presence: Presence, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows."""
        if self.closed in (S.FAILED, S.CANCELLED):
            self.close(self.closed, _ENDED)
            self._has_answers = True  # the replica has more than the log
        return super().detail(presence, run)


def _replica(execution_id: str) -> Replica:
    return Replica(f"{execution_id}:{uuid.uuid4().hex}")
