"""Questions to people as callbacks, in the function that asks them: each is created once, and answered in any order."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from ..._dispatch.requests import Requests
from ..._records.codec import encodable, encode
from ..._records.crash_points import reach
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ..._records.questions import QUESTION, interrupts_of
from ..._records.results import OpenInterrupt
from ...errors import DurableError
from ..encryption import ChangedError
from ..log import RecordedExecution
from .answers import Answer, answers_in
from .port import START, Callback, Message, Operations, Question, RunSettings, callback_name, plain_name, reason_bytes
from .row_store import text_of

logger = safe_logger(__name__)

_NAME_LENGTH = 300
_REASON, _WHY = "the reason of a question", "why an answer was rejected"


class Questions:
    """The open questions of one execution, as far as this process has read its operations."""

    def __init__(self, operations: Operations, known: RecordedExecution, settings: RunSettings) -> None:
        self._operations, self._known, self._settings = operations, known, settings
        self._contents = settings.payload_store.contents
        self._callbacks: dict[str, Callback] = {}
        self.answers: dict[str, Answer] = {}
        """Answers that have arrived, for the next operation."""
        self.about: Message = {}
        """Which of them were used, to be recorded with it."""

    @property
    def has_open(self) -> bool:
        """Whether a callback is open, or was answered and not used yet."""
        return bool(self._callbacks)

    def take(self, message: Message) -> None:
        """Take in which answers an operation has used."""
        self.answers = {}
        for question in (*message.get("answered", ()), *message.get("rejected", ())):
            self._callbacks.pop(question, None)

    def asking(self) -> Message:
        """Return the open questions, as a message that makes the function wait for their answers."""
        journal = self._known.journal()
        record = journal.call_at(journal.last_position())
        assert record is not None
        answered = journal.replies(record.call_id)
        found = [each for each in interrupts_of(record) if each.id not in answered]
        return {
            "status": ExecutionStatus.SUSPENDED.value,
            "questions": [self._question(each, reason_bytes(len(found))) for each in found],
            "notify": self._settings.notify is not None,
        }

    def _question(self, found: OpenInterrupt, most: int) -> Question:
        reason = json.loads(encode(found.reason)) if encodable(found.reason) else str(found.reason)
        small = None if len(json.dumps(reason)) > most else reason
        return {"id": found.id, "name": found.name[:_NAME_LENGTH], "reason": self._sealed(small, _REASON)}

    def _sealed(self, value: Any, what: str) -> Any:
        return self._contents.seal_value(value, text_of(self._known.execution_id, what))

    def _opened(self, value: Any, what: str) -> Any:
        return self._contents.open_value(value, text_of(self._known.execution_id, what))

    def ask(self, message: Message) -> None:
        """Create a callback for each new question, and call the hook for it."""
        questions = {question["id"]: question for question in message.get("questions", [])}
        new = [name for name in questions if name not in self._callbacks]
        for name in new:
            self._callbacks[name] = self._operations.ask(callback_name(name), self._settings.answer_seconds)
            reach("callback:after")
        for name in new if message.get("notify") else ():
            self._call_hook(questions[name], message.get("rejected", {}).get(name))

    def await_answers(self, message: Message) -> None:
        """Take the answers that have arrived; if none has, leave the process until one does."""
        questions = {question["id"]: question for question in message.get("questions", [])}
        open_names = self._collect(questions)
        if open_names and not self.answers:
            self._callbacks[open_names[0]].wait()

    def _collect(self, questions: dict[str, Question]) -> list[str]:
        """Take the answers that have arrived; return the questions without one."""
        replies = {name: self._callbacks[name].reply() for name in questions}
        pending = [name for name, reply in replies.items() if reply is None]
        texts = {name: reply.text for name, reply in replies.items() if reply is not None and reply.error is None}
        failed = {
            name: _failed(questions[name], reply.error)
            for name, reply in replies.items()
            if reply is not None and reply.error is not None
        }
        self.answers = {**failed, **answers_in(texts, pending)}
        return pending

    def _call_hook(self, question: Question, why: Any) -> None:
        """Notify of a question; a hook that fails does not end the execution."""
        error = self._operations.attempt(plain_name(f"notify {question['id']}"), partial(self._notify, question, why))
        if error is not None:
            logger.error(
                "interrupt_id=<%s>, error=<%s> | the notify hook failed, the question stays open", question["id"], error
            )

    def _notify(self, question: Question, why: Any) -> None:
        if self._settings.notify is not None:
            about = {"execution_id": self._known.execution_id, "interrupt_id": question["id"], "name": question["name"],
                     "reason": self._opened(question["reason"], _REASON), "rejected": self._opened(why, _WHY)}  # fmt: skip
            with self._contents.hidden("the notify hook"):
                self._settings.notify(self._callbacks[question["id"]].callback_id, about)

    def _read(self) -> dict[str, Answer]:
        """Return the answers that have arrived, decrypted; without the key, they stay for a later operation."""
        return {name: self._opened_answer(name, answer) for name, answer in self.answers.items()}

    def _opened_answer(self, name: str, answer: Answer) -> Answer:
        try:
            return replace(answer, value=self._opened(answer.value, f"the answer to {name!r}"))
        except ChangedError as error:
            return replace(answer, value=None, error=error.reason)

    def use(self) -> Message | None:
        """Record the answers that have arrived; return a message if none of them can be used: the questions stay open."""
        answers, self.answers = self._read(), {}
        accepted, rejected = [], dict[str, Any]()
        for name, answer in answers.items():
            try:
                if answer.error is not None:
                    raise ValueError(answer.error)
                Requests(self._known.replica).respond(self._known.execution_id, {name: answer.value}, answer.by)
                accepted.append(name)
            except (DurableError, ValueError) as error:
                logger.warning("interrupt_id=<%s>, error=<%s> | answer rejected, asked again", name, error)
                rejected[name] = self._sealed(str(error), _WHY)
        if answers and not accepted:
            return {"next": START, **self.asking(), "answered": [], "rejected": rejected}
        if answers:
            self.about = {"answered": accepted, "rejected": rejected}
        return None


def _failed(question: Question, reason: str) -> Answer:
    """Return the answer to a question that has no reply in time: the tool gets the error."""
    is_ours = question["name"].startswith(QUESTION)
    return Answer(value="fail" if is_ours else {"error": reason})
